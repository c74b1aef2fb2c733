"""What ``voicegate`` exits with. Scripts may rely on these."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    """Something broke that no other code names."""
    USAGE = 2
    """Wrong flags or settings."""
    MODELS = 3
    """A model is missing or damaged."""
    SOURCE = 4
    """A microphone or file cannot be used."""
    PROFILE = 5
    """A clip or profile was refused."""
    TOOLS = 6
    """The tools or their journal cannot be used."""
    INTERRUPTED = 130
    """Ctrl-C."""
