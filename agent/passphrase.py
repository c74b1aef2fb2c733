"""Where the passphrase of an encrypted profile comes from: the environment, or a person at a terminal.

Never from a flag, which every process on the machine can read, nor from the settings file.
"""

from __future__ import annotations

import getpass
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

PASSPHRASE_VARIABLE = "VOICEGATE_PROFILE_PASSPHRASE"
MIN_NEW_CHARACTERS = 8
"""NIST SP 800-63B's least for what a person chooses."""

Ask = Callable[[str], str]
"""Puts a question and returns the answer."""


class PassphraseError(Exception):
    """There is no passphrase that can be used. The message says what to do, and never holds one."""


def passphrase_from_environment() -> SecretStr | None:
    """The passphrase in the environment; None where the variable is not set, or empty."""
    value = os.environ.get(PASSPHRASE_VARIABLE, "")
    return SecretStr(value) if value else None


def passphrase_to_open(path: Path, *, ask: Ask | None = None) -> SecretStr:
    """The passphrase of a profile that is there: the environment's, or what a person types.

    Args:
        path: the profile, named in the question.
        ask: puts the question; by default ``getpass`` on a terminal, and nobody otherwise.

    Raises:
        PassphraseError: when it is in neither place.
    """
    return passphrase_from_environment() or SecretStr(_asked(f"passphrase of {path}: ", f"{path} is encrypted", ask))


def passphrase_to_seal(*, ask: Ask | None = None) -> SecretStr:
    """A passphrase for a new profile: the environment's, or what a person types twice.

    Args:
        ask: as ``passphrase_to_open`` takes it.

    Raises:
        PassphraseError: when there is none, it is too short, or it was typed differently the second time.
    """
    given = passphrase_from_environment()
    if given is None:
        why = "the profile is to be encrypted"
        first = _asked("passphrase for the profile (nobody can recover it): ", why, ask)
        if _asked("the same again: ", why, ask) != first:
            raise PassphraseError("the two passphrases differ; nobody was enrolled, try again")
        given = SecretStr(first)
    if len(given.get_secret_value()) < MIN_NEW_CHARACTERS:
        raise PassphraseError(
            f"the passphrase is too short: it needs {MIN_NEW_CHARACTERS} characters or more; a few words are good"
        )
    return given


def _asked(question: str, why: str, ask: Ask | None) -> str:
    if ask is None and (sys.stdin is None or not sys.stdin.isatty()):
        raise PassphraseError(
            f"{why}, and there is no passphrase: set {PASSPHRASE_VARIABLE}, or run in a terminal, which asks for it"
        )
    try:
        answer = (ask or _typed_unseen)(question)
    except EOFError:
        answer = ""
    if not answer:
        raise PassphraseError(f"{why}, and no passphrase was typed; try again, or set {PASSPHRASE_VARIABLE}")
    return answer


def _typed_unseen(question: str) -> str:
    with warnings.catch_warnings():
        # Where the echo cannot be switched off, getpass would warn and show what is typed.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(question)
        except getpass.GetPassWarning as error:
            raise PassphraseError(
                f"this terminal would show what is typed; set {PASSPHRASE_VARIABLE} instead"
            ) from error
