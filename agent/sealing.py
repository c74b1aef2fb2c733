"""Sealing: a small secret, encrypted and authenticated under a passphrase.

scrypt (RFC 7914) makes a key of the passphrase and a fresh salt; AES-256-GCM (NIST SP 800-38D) encrypts under that key.
All that opening takes, apart from the passphrase, stands beside the ciphertext and is authenticated with it.
"""

from __future__ import annotations

import os
import unicodedata
from typing import Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

SEAL_VERSION = 1
MAX_SCRYPT_MEMORY_BYTES = 512 * 1024 * 1024
"""A file may not ask for more: its parameters are read before anything about it can be trusted."""
_KEY_BYTES = 32
_SALT_BYTES = 16
_NONCE_BYTES = 12
_TAG_BYTES = 16


class SealError(Exception):
    """What is sealed cannot be opened, or nothing can be sealed. The message says why, and never holds a secret."""


class ScryptCost(BaseModel):
    """What one guess at a passphrase costs.

    Attributes:
        n: rounds, a power of two.
        r: block size. One derivation takes ``128 * n * r`` bytes.
        p: how often that is done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    n: int = Field(default=2**17, ge=2)
    r: int = Field(default=8, ge=1)
    p: int = Field(default=1, ge=1, le=4)

    @property
    def memory_bytes(self) -> int:
        """How much memory one derivation takes."""
        return 128 * self.n * self.r

    @model_validator(mode="after")
    def _bearable(self) -> ScryptCost:
        if self.n & (self.n - 1):
            raise ValueError("n is no power of two")
        if self.memory_bytes > MAX_SCRYPT_MEMORY_BYTES:
            raise ValueError(f"scrypt would take more than {MAX_SCRYPT_MEMORY_BYTES} bytes")
        return self


class Sealed(BaseModel):
    """A sealed secret, as it stands in a file. Bytes are base64 in JSON.

    Attributes:
        version: of this format.
        kdf: makes the key.
        cost: its parameters.
        cipher: encrypts.
        salt: of the key.
        nonce: of the cipher.
        ciphertext: the secret, and behind it the tag.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64"
    )

    version: int
    kdf: Literal["scrypt"] = "scrypt"
    cost: ScryptCost
    cipher: Literal["aes-256-gcm"] = "aes-256-gcm"
    salt: bytes = Field(min_length=_SALT_BYTES, max_length=_SALT_BYTES)
    nonce: bytes = Field(min_length=_NONCE_BYTES, max_length=_NONCE_BYTES)
    ciphertext: bytes = Field(min_length=_TAG_BYTES)


class Sealer:
    """Seals under one passphrase.

    Args:
        passphrase: opens it again.
        cost: of a guess; by default the half second and 128 MiB that OWASP recommends.
    """

    def __init__(self, passphrase: SecretStr, cost: ScryptCost | None = None) -> None:
        self._passphrase = passphrase
        self._cost = cost or ScryptCost()

    def seal(self, content: bytes, label: bytes) -> Sealed:
        """Encrypt, with a salt, and so a key, that was never used before.

        Args:
            content: the secret.
            label: what stands beside it in clear and must not be exchanged; the same is needed to open it.

        Raises:
            SealError: when there is not enough memory to derive a key.
        """
        empty = Sealed(
            version=SEAL_VERSION, cost=self._cost, salt=os.urandom(_SALT_BYTES), nonce=os.urandom(_NONCE_BYTES),
            ciphertext=bytes(_TAG_BYTES),
        )  # fmt: skip
        ciphertext = _cipher(empty, self._passphrase).encrypt(empty.nonce, content, _authenticated(empty, label))
        return empty.model_copy(update={"ciphertext": ciphertext})


def open_sealed(sealed: Sealed, label: bytes, passphrase: SecretStr) -> bytes:
    """Decrypt.

    Args:
        sealed: from ``Sealer.seal``.
        label: what it was sealed with.
        passphrase: what it was sealed under.

    Raises:
        SealError: when the passphrase is wrong, when anything was changed (which looks the same), when the format is
            another version's, or when there is not enough memory to derive a key.
    """
    if sealed.version != SEAL_VERSION:
        raise SealError(f"encrypted in format {sealed.version}, this is {SEAL_VERSION}")
    try:
        return _cipher(sealed, passphrase).decrypt(sealed.nonce, sealed.ciphertext, _authenticated(sealed, label))
    except InvalidTag as error:
        raise SealError("the passphrase is wrong, or the file was altered") from error


def _cipher(sealed: Sealed, passphrase: SecretStr) -> AESGCM:
    # One passphrase can be typed as different code points (é, or e and an accent) on different keyboards. Bytes of the
    # environment that are no UTF-8 arrive as surrogates, which a strict encoder would quote in its error.
    secret = unicodedata.normalize("NFC", passphrase.get_secret_value()).encode("utf-8", "surrogatepass")
    cost = sealed.cost
    try:
        kdf = Scrypt(salt=sealed.salt, length=_KEY_BYTES, n=cost.n, r=cost.r, p=cost.p)
        return AESGCM(kdf.derive(secret))
    except MemoryError as error:
        raise SealError(f"not enough memory: the key takes {cost.memory_bytes / 2**20:.0f} MiB") from error


def _authenticated(sealed: Sealed, label: bytes) -> bytes:
    return sealed.model_dump_json(exclude={"ciphertext"}).encode() + label
