"""Error texts on one line, without secrets."""

from __future__ import annotations

import pytest

from tools.redaction import error_line, one_line


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("GET https://ana:hunter2@host/x failed", "host/x failed", "hunter2"),
        ("mqtt://user@broker", "broker", "user"),
        ("Authorization: Bearer abc.def-ghi", "Authorization", "abc.def"),
        ("header 'Authorization': 'Basic dXNlcjpwYXNz' rejected", "rejected", "dXNlcjpwYXNz"),
        ("authorization=abcdef; retry", "retry", "abcdef"),
        ("password=hunter2 for ana", "for ana", "hunter2"),
        ('{"api_key": "k-123", "a": 1}', '"a": 1', "k-123"),
        ("client_secret: s3cret!", "client_secret", "s3cret"),
        ("https://h/x?access_token=zzz9&b=2", "b=2", "zzz9"),
        ("key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b refused", "refused", "9f86d081"),
        ("line one\nline\ttwo", "line one line two", "\n"),
        ("file \udcff name", "file ? name", "\udcff"),
    ],
)
def test_secrets_are_blotted_out_and_the_rest_is_kept(text: str, kept: str, gone: str) -> None:
    line = one_line(text)
    assert kept in line
    assert gone not in line


@pytest.mark.parametrize(
    "text",
    [
        "connection refused",
        "bad user name or password",
        "no such device: kitchen light",
        "the token is missing",
        "[Errno 28] No space left on device: '/var/lib/voicegate/journal.db'",
        "a_long_function_name_without_digits failed",
    ],
)
def test_ordinary_errors_are_left_as_they_are(text: str) -> None:
    assert one_line(text) == text


def test_a_long_text_is_cut() -> None:
    assert one_line("ab " * 1000, max_chars=50) == ("ab " * 17)[:49] + "…"


def test_an_error_names_its_type_even_when_its_text_is_broken_or_empty() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_line(ValueError("bad")) == "ValueError: bad"
    assert error_line(TimeoutError()) == "TimeoutError"
    assert error_line(BrokenError()) == "BrokenError: (no message)"
