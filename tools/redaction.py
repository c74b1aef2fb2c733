"""One-line texts for journal and log, with what looks like a secret blotted out.

Errors of HTTP and MQTT clients quote URLs, headers and settings. This is a net, not a proof: a tool should not put a
secret into an error in the first place.
"""

from __future__ import annotations

import re

_BLOT = "***"
_RULES = (
    re.compile(r"(?<=://)[^\s/@]+(?=@)"),
    re.compile(r"(?i)(?<=\bbearer )\S+|(?<=\bbasic )\S+"),
    re.compile(
        r"(?ix) (?<![a-z]) (?P<name>[a-z_-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|authorization))"
        r"""(?P<sep>["']?\s*[:=]\s*["']?)(?!(?:bearer|basic)\s)[^\s"',;&]+"""
    ),
    re.compile(r"(?<![\w+=-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}(?![\w+=-])"),
)


def one_line(text: str, max_chars: int = 300) -> str:
    """``text`` on one line, secrets replaced by ``***``, cut to ``max_chars``."""
    # Lone surrogates (a file name in an OSError) have no UTF-8 form, and neither journal nor log could store them.
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    for rule in _RULES:
        line = rule.sub(lambda found: "".join(part or "" for part in found.groups()) + _BLOT, line)
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def error_line(error: BaseException) -> str:
    """An exception as its type and its redacted message, also when its ``__str__`` is broken."""
    try:
        message = one_line(str(error))
    except Exception:
        message = "(no message)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
