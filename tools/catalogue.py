"""The tools of one session: finds one, checks a call against it, lists them. The gate's ``Catalogue``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from gate.catalogue import CallFault, CallProblem, ToolCall, ToolFacts
from tools.builtin import BUILTIN
from tools.spec import PARAM_MISSING, PARAM_REFUSED, SpecError, ToolSpec, is_tool

_MAX_SHOWN_CHARS = 60


class CallRefusedError(Exception):
    """A call does not fit its tool. Nothing was executed.

    Attributes:
        problems: what is wrong, at least one, parameters in call order.
    """

    def __init__(self, problems: tuple[CallProblem, ...]) -> None:
        super().__init__("; ".join(problem.detail for problem in problems))
        self.problems = problems


class ToolCatalogue:
    """An immutable set of tools.

    Args:
        tools: tool classes in the order in which they are listed.

    Raises:
        SpecError: when one is no tool, or two have the same name.
    """

    def __init__(self, tools: Iterable[type[ToolSpec]]) -> None:
        self._tools: dict[str, type[ToolSpec]] = {}
        for tool in tools:
            if not is_tool(tool):
                raise SpecError(f"{tool!r} is no tool: it needs name, description and risk as class arguments")
            other = self._tools.get(tool.facts.name)
            if other is not None:
                raise SpecError(
                    f"two tools are named {tool.facts.name!r}: "
                    f"{other.__module__}.{other.__qualname__} and {tool.__module__}.{tool.__qualname__}"
                )
            self._tools[tool.facts.name] = tool

    @classmethod
    def builtin(cls, extra: Iterable[type[ToolSpec]] = ()) -> ToolCatalogue:
        """The ten built-in tools, followed by ``extra`` (see ``tools.loading.load_user_tools``)."""
        return cls((*BUILTIN, *extra))

    def only(self, names: Iterable[str]) -> ToolCatalogue:
        """The catalogue cut down to ``names``, in this catalogue's order.

        Raises:
            SpecError: when a name is not here, so that a typing error in an allow-list cannot pass unseen.
        """
        kept = self._known(names)
        return ToolCatalogue(tool for name, tool in self._tools.items() if name in kept)

    def without(self, names: Iterable[str]) -> ToolCatalogue:
        """The catalogue less ``names``.

        Raises:
            SpecError: when a name is not here, so that a typing error in a deny-list cannot leave a tool on.
        """
        dropped = self._known(names)
        return ToolCatalogue(tool for name, tool in self._tools.items() if name not in dropped)

    def find(self, name: str) -> ToolFacts | None:
        """The tool of exactly that name, or None."""
        tool = self._tools.get(name)
        return None if tool is None else tool.facts

    def all(self) -> tuple[ToolFacts, ...]:
        """Every tool, in a fixed order."""
        return tuple(tool.facts for tool in self._tools.values())

    def check(self, call: ToolCall) -> tuple[CallProblem, ...]:
        """What is wrong with ``call``; empty when it can be executed as it stands. Never raises."""
        try:
            self.parse(call)
        except CallRefusedError as error:
            return error.problems
        return ()

    def summary(self, call: ToolCall) -> str:
        """The call as a sentence ("Send Ben 60 dollars").

        Raises:
            CallRefusedError: when the call does not fit its tool.
        """
        return self.parse(call).summary()

    def parse(self, call: ToolCall) -> ToolSpec:
        """The call as its tool's validated, frozen model.

        Raises:
            CallRefusedError: when the tool does not exist or the arguments do not fit it.
        """
        tool = self._tools.get(call.name) if isinstance(call.name, str) else None
        if tool is None:
            detail = f"no tool {_shown(call.name)}; there are {', '.join(self._tools) or 'none'}"
            raise CallRefusedError((CallProblem(CallFault.UNKNOWN_TOOL, None, detail),))
        if not isinstance(call.params, Mapping):
            detail = f"{call.name}: the arguments are {type(call.params).__name__}, not an object"
            raise CallRefusedError((CallProblem(CallFault.BAD_VALUE, None, detail),))
        try:
            return tool.model_validate(dict(call.params))
        except ValidationError as error:
            raise CallRefusedError(_problems(tool.facts, error)) from None
        except Exception as error:
            # A tool of the user's may have a validator with a bug in it; a bug is a doubt, and doubt never executes.
            detail = f"{call.name}: its check failed with {type(error).__name__}"
            raise CallRefusedError((CallProblem(CallFault.BAD_VALUE, None, detail),)) from error

    def _known(self, names: Iterable[str]) -> frozenset[str]:
        wanted = frozenset(names)
        unknown = sorted(wanted - self._tools.keys())
        if unknown:
            raise SpecError(f"no tool {', '.join(map(_shown, unknown))}; there are {', '.join(self._tools)}")
        return wanted


def describe(catalogue: ToolCatalogue) -> list[dict[str, Any]]:
    """The catalogue as JSON-ready rows for ``tools list``.

    Returns:
        One row a tool: ``name``, ``risk`` ("low", "medium", "high"), ``description`` and ``params``, each of which has
        ``name``, ``kind``, ``required``, ``choices``, ``description`` and ``ask``.
    """
    return [
        {
            "name": tool.name,
            "risk": tool.risk.name.lower(),
            "description": tool.description,
            "params": [
                {
                    "name": param.name,
                    "kind": param.kind.value,
                    "required": param.required,
                    "choices": list(param.choices),
                    "description": param.description,
                    "ask": param.ask,
                }
                for param in tool.params
            ],
        }
        for tool in catalogue.all()
    ]


def _problems(facts: ToolFacts, error: ValidationError) -> tuple[CallProblem, ...]:
    found: list[CallProblem] = []
    for item in error.errors(include_url=False, include_input=False):
        param: str | None = str(item["loc"][0]) if item["loc"] else None
        fault = CallFault.BAD_VALUE
        match item["type"]:
            case "missing":
                fault = CallFault.MISSING_PARAM
            case "extra_forbidden":
                fault = CallFault.EXTRA_PARAM
            case _ if item["type"] in (PARAM_MISSING, PARAM_REFUSED):
                param = str(item["ctx"]["param"])
                fault = CallFault.MISSING_PARAM if item["type"] == PARAM_MISSING else CallFault.BAD_VALUE
        known = param is None or facts.param(param) is not None
        where = facts.name if param is None else f"{facts.name}.{param if known else _shown(param)}"
        message = item["msg"].removeprefix("Value error, ")
        found.append(CallProblem(fault, param, f"{where}: {message[:1].lower()}{message[1:]}"))
    return tuple(found)


def _shown(value: object) -> str:
    """A model's text for a log line: one line, ASCII (so that look-alike letters show), bounded."""
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
