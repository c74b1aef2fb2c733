"""What can go wrong with the recordings of real people."""

from __future__ import annotations


class PeopleError(Exception):
    """The recordings, or a run over them, cannot be used. The message says what to do."""
