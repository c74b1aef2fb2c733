"""Where a passphrase comes from: the environment or a terminal, and it is never shown."""

from __future__ import annotations

import getpass
import os
import pty
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import passphrase
from agent.passphrase import (
    PASSPHRASE_VARIABLE,
    PassphraseError,
    passphrase_from_environment,
    passphrase_to_open,
    passphrase_to_seal,
)

SECRET = "correct horse battery staple"
PROFILE = Path("wearer.json")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)


def types(*answers: str) -> Callable[[str], str]:
    waiting = list(answers)
    return lambda question: waiting.pop(0)


def nobody(question: str) -> str:
    raise AssertionError(f"asked {question!r}")


def closed(question: str) -> str:
    raise EOFError


def test_the_environments_is_taken_and_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLE, SECRET)
    assert passphrase_to_open(PROFILE, ask=nobody).get_secret_value() == SECRET
    assert passphrase_to_seal(ask=nobody).get_secret_value() == SECRET


def test_an_empty_variable_is_no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "")
    assert passphrase_from_environment() is None
    assert passphrase_to_open(PROFILE, ask=types(SECRET)).get_secret_value() == SECRET


def test_a_new_one_is_typed_twice_so_that_a_slip_locks_nobody_out() -> None:
    assert passphrase_to_seal(ask=types(SECRET, SECRET)).get_secret_value() == SECRET
    with pytest.raises(PassphraseError, match="differ") as caught:
        passphrase_to_seal(ask=types(SECRET, SECRET + "r"))
    assert SECRET not in str(caught.value)


def test_a_new_one_that_is_quickly_guessed_is_refused_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PassphraseError, match="8 characters"):
        passphrase_to_seal(ask=types("hunter2", "hunter2"))
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "hunter2")
    with pytest.raises(PassphraseError, match="8 characters") as caught:
        passphrase_to_seal(ask=nobody)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "get", [lambda ask: passphrase_to_open(PROFILE, ask=ask), lambda ask: passphrase_to_seal(ask=ask)]
)
@pytest.mark.parametrize("ask", [closed, types("", "")], ids=["end of input", "only return"])
def test_who_types_nothing_is_told_what_else_to_do(get: Callable[[object], object], ask: Callable[[str], str]) -> None:
    with pytest.raises(PassphraseError, match=PASSPHRASE_VARIABLE):
        get(ask)


@pytest.mark.parametrize("get", [lambda: passphrase_to_open(PROFILE), passphrase_to_seal])
@pytest.mark.parametrize("closed_input", [False, True])
def test_without_a_terminal_nothing_waits_and_the_variable_is_named(
    get: Callable[[], object], closed_input: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getpass", nobody)
    with open(os.devnull) as empty:
        monkeypatch.setattr("sys.stdin", None if closed_input else empty)
        with pytest.raises(PassphraseError, match=PASSPHRASE_VARIABLE):
            get()


def test_a_terminal_that_would_show_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def shows(question: str) -> str:
        warnings.warn("Can not control echo on the terminal.", getpass.GetPassWarning, stacklevel=2)
        return SECRET

    monkeypatch.setattr(getpass, "getpass", shows)
    with pytest.raises(PassphraseError, match=PASSPHRASE_VARIABLE):
        passphrase_to_open(PROFILE, ask=passphrase._typed_unseen)


def test_what_is_typed_in_a_terminal_is_read_and_never_shown() -> None:
    program = (
        "from pathlib import Path\nfrom agent.passphrase import passphrase_to_open\n"
        "got = passphrase_to_open(Path('wearer.json'))\nprint(got, len(got.get_secret_value()))"
    )
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    try:
        # The question comes once the echo is off; what is typed before would be shown by the terminal itself.
        while b"passphrase of wearer.json: " not in seen:
            seen += os.read(ours, 1024)
        os.write(ours, SECRET.encode() + b"\n")
        while f" {len(SECRET)}".encode() not in seen:
            seen += os.read(ours, 1024)
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert SECRET.encode() not in seen
