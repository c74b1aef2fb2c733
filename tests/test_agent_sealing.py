"""Sealing: what is sealed opens unchanged under its passphrase, and otherwise not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from agent.sealing import MAX_SCRYPT_MEMORY_BYTES, ScryptCost, Sealed, Sealer, SealError, open_sealed

CHEAP = ScryptCost(n=2, r=1, p=1)
PASSPHRASE = SecretStr("correct horse battery staple")
LABEL = b"Ada's"


def seal(content: bytes = b"a secret", label: bytes = LABEL) -> Sealed:
    return Sealer(PASSPHRASE, CHEAP).seal(content, label)


@given(content=st.binary(max_size=200), label=st.binary(max_size=50), passphrase=st.text(min_size=1, max_size=40))
def test_what_is_sealed_comes_back_under_any_passphrase(content: bytes, label: bytes, passphrase: str) -> None:
    secret = SecretStr(passphrase)
    sealed = Sealer(secret, CHEAP).seal(content, label)
    read = Sealed.model_validate_json(sealed.model_dump_json())
    assert open_sealed(read, label, secret) == content


@given(other=st.text(max_size=40))
def test_no_other_passphrase_opens_it(other: str) -> None:
    if other == PASSPHRASE.get_secret_value():
        return
    with pytest.raises(SealError, match="passphrase is wrong"):
        open_sealed(seal(), LABEL, SecretStr(other))


def test_one_passphrase_typed_on_another_keyboard_still_opens_it() -> None:
    composed, decomposed = SecretStr("caf\u00e9 au lait"), SecretStr("cafe\u0301 au lait")
    assert open_sealed(Sealer(composed, CHEAP).seal(b"a secret", LABEL), LABEL, decomposed) == b"a secret"


def test_a_passphrase_that_is_no_unicode_is_used_and_not_quoted_in_an_error() -> None:
    odd = SecretStr("caf\udce9 au lait")
    assert open_sealed(Sealer(odd, CHEAP).seal(b"a secret", LABEL), LABEL, odd) == b"a secret"


def test_what_was_sealed_under_one_label_does_not_open_under_another() -> None:
    with pytest.raises(SealError):
        open_sealed(seal(), b"Ben's", PASSPHRASE)


@pytest.mark.parametrize(
    "change",
    [
        {"cost": ScryptCost(n=4, r=1, p=1)},
        {"cost": ScryptCost(n=2, r=2, p=1)},
        {"cost": ScryptCost(n=2, r=1, p=2)},
        {"salt": bytes(16)},
        {"nonce": bytes(12)},
        {"ciphertext": bytes(40)},
        {"version": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_no_part_of_the_header_can_be_exchanged(change: dict[str, object]) -> None:
    with pytest.raises(SealError):
        open_sealed(seal().model_copy(update=change), LABEL, PASSPHRASE)


def test_another_versions_format_is_named_so_that_nobody_hunts_for_the_passphrase() -> None:
    with pytest.raises(SealError, match="format 2, this is 1"):
        open_sealed(seal().model_copy(update={"version": 2}), LABEL, PASSPHRASE)


def test_the_same_secret_never_looks_the_same_so_two_files_tell_nothing_of_each_other() -> None:
    first, second = seal(), seal()
    assert first.salt != second.salt
    assert first.nonce != second.nonce
    assert first.ciphertext != second.ciphertext


def test_by_default_a_guess_costs_what_is_recommended() -> None:
    cost = ScryptCost()
    assert (cost.n, cost.r, cost.p, cost.memory_bytes) == (2**17, 8, 1, 2**27)


@pytest.mark.parametrize(
    "cost",
    [
        {"n": 2**40, "r": 8, "p": 1},
        {"n": 2**17, "r": 2**20, "p": 1},
        {"n": 2**17, "r": 8, "p": 10**6},
        {"n": 3, "r": 8, "p": 1},
        {"n": 1, "r": 8, "p": 1},
        {"n": 2, "r": 0, "p": 1},
        {"n": -2, "r": -8, "p": 1},
    ],
)
def test_a_file_cannot_make_the_gate_take_all_memory_or_compute_for_ever(cost: dict[str, int]) -> None:
    content = json.loads(seal().model_dump_json()) | {"cost": cost}
    with pytest.raises(ValidationError):
        Sealed.model_validate_json(json.dumps(content))


def test_the_dearest_parameters_that_are_taken_stay_within_the_limit() -> None:
    assert ScryptCost(n=2**19, r=8, p=4).memory_bytes == MAX_SCRYPT_MEMORY_BYTES


def test_without_enough_memory_it_is_said_how_much_a_key_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = seal().model_copy(update={"cost": ScryptCost()})

    def none_left(**given: object) -> None:
        raise MemoryError

    monkeypatch.setattr("agent.sealing.Scrypt", none_left)
    with pytest.raises(SealError, match="128 MiB"):
        open_sealed(sealed, LABEL, PASSPHRASE)
