"""A key that shows itself to nobody. It comes from the environment and goes into one header."""

from __future__ import annotations

from collections.abc import Mapping

from models.audio_llm.conversation import BackendError, Status

SHOWN_AS = "(key)"


class Key:
    """A secret. ``str`` and ``repr`` give ``(key)``.

    Args:
        value: the secret; white space around it is left out.
        name: the variable that holds it, for messages.

    Raises:
        BackendError: NO_KEY when no key looks like that. A client would put it into its own error message.
    """

    __slots__ = ("_value", "name")

    def __init__(self, value: str, name: str = "the key") -> None:
        self._value = value.strip()
        self.name = name
        if not self._value or not all("!" <= char <= "~" for char in self._value):
            raise BackendError(Status.NO_KEY, f"{name} holds no key")

    def __repr__(self) -> str:
        return SHOWN_AS

    def header(self, prefix: str = "") -> str:
        """The header's value, for the request and for nothing else."""
        return prefix + self._value

    def scrubbed(self, text: str) -> str:
        """A text with the key taken out."""
        return text.replace(self._value, SHOWN_AS)


def key_from(environ: Mapping[str, str], *names: str) -> Key | None:
    """The key in the first of these variables that is set and not blank, or None.

    Raises:
        BackendError: NO_KEY when what it holds is none.
    """
    return next((Key(environ[name], name) for name in names if environ.get(name, "").strip()), None)


def required_key(environ: Mapping[str, str], *names: str) -> Key:
    """The same, where one is needed.

    Raises:
        BackendError: NO_KEY when there is none.
    """
    key = key_from(environ, *names)
    if key is None:
        raise BackendError(Status.NO_KEY, f"no key in the environment: set {' or '.join(names)}")
    return key
