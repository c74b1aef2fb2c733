"""Options of a policy, as they stand behind its name: ``qwen2-audio:dir=FOLDER,dtype=bfloat16``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from models.components import UnknownComponentError
from models.store_errors import ModelError, ModelFault


class OptionsError(UnknownComponentError):
    """An option does not exist or its value is none of those it takes. The message says which there are."""


class Options:
    """Takes options out one by one; what is left over at the end was never an option.

    Args:
        policy: the policy's name, for messages.
        values: what was given, by key.
    """

    def __init__(self, policy: str, values: Mapping[str, str]) -> None:
        self._policy = policy
        self._values = values
        self._known: list[str] = []

    def text(self, key: str, default: str = "") -> str:
        """A value as it stands."""
        self._known.append(key)
        return self._values.get(key, default)

    def choice(self, key: str, choices: Iterable[str], default: str) -> str:
        """One of several words.

        Raises:
            OptionsError: for another one.
        """
        allowed = list(choices)
        value = self.text(key, default)
        if value not in allowed:
            raise OptionsError(f"{self._policy}:{key}={value}: there are {', '.join(allowed)}")
        return value

    def choices(self, key: str, choices: Iterable[str]) -> tuple[str, ...] | None:
        """Several words joined by ``+``, none for ``none``; None where the option is not given.

        Raises:
            OptionsError: when one of them is unknown.
        """
        value = self.text(key)
        if not value or value == "none":
            return () if value else None
        allowed = list(choices)
        for word in value.split("+"):
            if word not in allowed:
                raise OptionsError(f"{self._policy}:{key}={word}: there are {', '.join(allowed)}, none")
        return tuple(value.split("+"))

    def is_on(self, key: str, default: bool = False) -> bool:
        """Whether ``on`` or ``off`` was said.

        Raises:
            OptionsError: for another word.
        """
        return self.choice(key, ("on", "off"), "on" if default else "off") == "on"

    def count(self, key: str, default: int) -> int:
        """A whole number from 1.

        Raises:
            OptionsError: for anything else.
        """
        value = self.text(key, str(default))
        if not (value.isascii() and value.isdecimal()) or int(value) < 1:
            raise OptionsError(f"{self._policy}:{key}={value}: not a whole number from 1")
        return int(value)

    def folder(self, key: str) -> Path | None:
        """A folder that exists, or None where the option is not given.

        Raises:
            ModelError: when it does not exist.
        """
        value = self.text(key)
        if not value:
            return None
        path = Path(value).expanduser()
        if not path.is_dir():
            raise ModelError(ModelFault.MISSING, f"{path} is no folder", f"Correct {self._policy}:{key}=FOLDER")
        return path

    def end(self) -> None:
        """Refuse options that nothing asked for.

        Raises:
            OptionsError: naming the first of them.
        """
        for key in self._values:
            if key not in self._known:
                close = get_close_matches(key, self._known, 1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise OptionsError(f"{self._policy} has no option {key!r}.{hint} There are: {', '.join(self._known)}")
