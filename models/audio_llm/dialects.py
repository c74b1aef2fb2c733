"""What models write in their native dialects, converted to the canonical form by named, strict converters.

VGBench scores with one strict parser and grants each model a normalisation (section 4.1): Audio Flamingo 3, say, writes
calls in square brackets, and gets no credit for them in the canonical form. Both readings are of use, so both are kept:
the text as written, and this one beside it.

A converter reads a *whole* text or leaves it alone. Nothing is guessed: a name that is no tool's, a value without
quotation marks, an argument without a name, a key that stands twice, a second call, a word before or after: each leaves
the text as it was. What already is a Mute, a Pardon or a call in the canonical form is never made into another action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gate import grammar
from gate.actions import Action, AnswerAction, MuteAction, ToolAction, Unparseable
from gate.catalogue import ParamKind, ToolCall, ToolFacts

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
THINKING = "thinking"
TERMINATOR = "terminator"

_ARGUMENT_KEYS = ("arguments", "parameters", "params", "args")
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACKETED_RE = re.compile(
    rf"\[\s*(?P<lead>(?:tool|tool_call|call|function|action)\s*:\s*)?(?P<name>{_IDENTIFIER})\s*(?P<rest>.*?)\s*\]",
    re.IGNORECASE | re.DOTALL,
)
_ARGUMENT_RE = re.compile(
    rf"""(?P<key>{_IDENTIFIER})\s*[=:]\s*(?:(?P<double>"(?:[^"\\]|\\.)*")|'(?P<single>[^'"\\]*)'|(?P<bare>[-+.\w]+))""",
    re.DOTALL,
)
_BARE_VALUES = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NUMBER_RE = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_TAGGED_RE = re.compile(r"<(?P<tag>tool_call|TOOLCALL|function_call)>(?P<body>.*)</(?P=tag)>", re.DOTALL)
_XML_CALL_RE = re.compile(rf"<function=(?P<name>{_IDENTIFIER})>(?P<params>.*)</function>", re.DOTALL)
_XML_PARAM_RE = re.compile(rf"\s*<parameter=(?P<key>{_IDENTIFIER})>(?P<value>.*?)</parameter>\s*", re.DOTALL)
_FENCED_RE = re.compile(r"```(?:json|tool_call|tool|text)?[ \t]*\n(?P<body>.*)\n[ \t]*```", re.DOTALL)
_MUTE_WORD_RE = re.compile(r"""[\s\[(<{"'`*]*mute[\s\])>}"'`*.!]*""", re.IGNORECASE)
_ACTION_MARK_RE = re.compile(
    r"""<\|TOOL\|>|\[\s*mute\s*\]|pardon\s*\?|<tool_?call>|<function|["']name["']""", re.IGNORECASE
)

Tools = Mapping[str, ToolFacts]
Converter = Callable[[str, Tools], Action | None]
"""Reads a stripped text whole, or returns None."""


@dataclass(frozen=True, slots=True)
class Normalised:
    """A text in the canonical form.

    Attributes:
        text: the text; as it was given where no converter read it.
        dialect: names of what was applied, joined by ``+`` ("thinking+tool_call_tags"); empty where nothing was.
    """

    text: str
    dialect: str = ""


def split_thinking(text: str) -> tuple[str, str]:
    """Take the thinking off a reply.

    Args:
        text: a reply. One that begins inside of thinking (the prompt opened it) may lack ``<think>``.

    Returns:
        The thinking with its tags, and what follows; together they are ``text``. Everything up to the first
        ``</think>`` is thinking, whether or not ``<think>`` stands before it. Thinking that was opened and never
        closed is all there is: nothing follows, and nothing is an action.
    """
    end = text.find(THINK_CLOSE)
    if end >= 0 and not isinstance(grammar.parse(text), ToolAction):  # a well-formed call may say anything in it
        end += len(THINK_CLOSE)
        return text[:end], text[end:]
    return (text, "") if text.lstrip().startswith(THINK_OPEN) else ("", text)


def normalise(text: str, tools: Sequence[ToolFacts], names: Sequence[str] | None = None) -> Normalised:
    """Read a text in the native dialects of models.

    Args:
        text: what a model wrote.
        tools: the tools that may be named.
        names: which converters of ``DIALECTS`` to try; None tries all.

    Returns:
        The canonical text, or ``text`` itself with an empty dialect. Raises nothing but ``KeyError`` for an unknown
        name.
    """
    converters = {name: DIALECTS[name] for name in (DIALECTS if names is None else names)}
    if len(text) > grammar.MAX_CHARS:
        return Normalised(text)
    thinking, rest = split_thinking(text)
    applied = [THINKING] if thinking else []
    if (cut := _before_terminator(rest)) is not None:
        rest, applied = cut, [*applied, TERMINATOR]
    if isinstance(grammar.parse(rest), AnswerAction | Unparseable):
        known = {tool.name: tool for tool in tools}
        for name, convert in converters.items():
            action = convert(_bare(rest), known)
            canonical = None if action is None else _rendered(action)
            if canonical is not None:
                return Normalised(canonical, "+".join([*applied, name]))
    return Normalised(rest, "+".join(applied)) if applied else Normalised(text)


def _before_terminator(text: str) -> str | None:
    """The text up to its first terminator, when words follow that one and none of them is an action of its own."""
    ends = [index for mark in grammar.TERMINATORS if (index := text.find(mark)) >= 0]
    if not ends or _bare(text) == _bare(text[: min(ends)]):
        return None
    return None if _ACTION_MARK_RE.search(text[min(ends) :]) else text[: min(ends)]


def _bare(text: str) -> str:
    """Without white space and terminators at its end."""
    text = text.strip()
    while ending := next((mark for mark in grammar.TERMINATORS if text.endswith(mark)), ""):
        text = text.removesuffix(ending).rstrip()
    return text


def _rendered(action: Action) -> str | None:
    try:
        return grammar.render(action)
    except ValueError:
        return None


# JSON ---------------------------------------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice")
    return out


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _json(text: str) -> object:
    """Strict JSON, or None (which no converter takes for a call)."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _call(name: object, arguments: object, tools: Tools) -> Action | None:
    """A call of a known tool, or the Mute that some models write as a function."""
    if isinstance(arguments, str):
        arguments = _json(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    if name in tools:
        return ToolAction(ToolCall(name, arguments))
    return MuteAction() if name.casefold() == "mute" and not arguments else None


def _function(value: object, tools: Tools) -> Action | None:
    """``{"name", "arguments"}``, bare or in the frames that chat servers put around it."""
    if isinstance(value, dict) and set(value) == {"tool_calls"}:
        value = value["tool_calls"]
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if not isinstance(value, dict) or value.get("type", "function") != "function":
        return None
    frame: dict[str, Any] = {key: item for key, item in value.items() if key not in ("type", "id", "index")}
    if set(frame) == {"function"} and isinstance(frame["function"], dict):
        frame = frame["function"]
    key = next((key for key in _ARGUMENT_KEYS if key in frame), None)
    if key is None or set(frame) != {"name", key}:
        return None
    return _call(frame["name"], frame[key], tools)


def _function_json(text: str, tools: Tools) -> Action | None:
    return _function(_json(text), tools)


def _marked_function(text: str, tools: Tools) -> Action | None:
    """A function call between the canonical marks."""
    if not (text.startswith(grammar.TOOL_OPEN) and text.endswith(grammar.TOOL_CLOSE)):
        return None
    return _function_json(text[len(grammar.TOOL_OPEN) : -len(grammar.TOOL_CLOSE)], tools)


def _tool_call_tags(text: str, tools: Tools) -> Action | None:
    """``<tool_call>`` of Qwen, ``<TOOLCALL>`` of Nemotron: JSON inside, or functions and parameters as tags."""
    tagged = _TAGGED_RE.fullmatch(text)
    if tagged is None:
        return None
    body = tagged["body"].strip()
    written = _XML_CALL_RE.fullmatch(body)
    return _function_json(body, tools) if written is None else _xml_call(written["name"], written["params"], tools)


def _xml_call(name: str, text: str, tools: Tools) -> Action | None:
    if name not in tools:
        return None
    found: dict[str, object] = {}
    position = 0
    while position < len(text.rstrip()):
        param = _XML_PARAM_RE.match(text, position)
        if param is None or param["key"] in found or "<parameter" in param["value"] or "<function" in param["value"]:
            return None
        found[param["key"]] = _typed(param["value"], tools[name], param["key"])
        position = param.end()
    return ToolAction(ToolCall(name, found))


def _typed(text: str, tool: ToolFacts, key: str) -> object:
    """A value written between tags, where nothing says of which kind it is but the tool itself."""
    text = text.removeprefix("\n").removesuffix("\n")
    facts = tool.param(key)
    if facts is None or facts.kind in (ParamKind.TEXT, ParamKind.CHOICE):
        return text
    value = _BARE_VALUES.get(text) if facts.kind is ParamKind.BOOLEAN else _number(text)
    return text if value is None else value


def _json_fence(text: str, tools: Tools) -> Action | None:
    """A call in a Markdown fence, canonical or a function's."""
    fenced = _FENCED_RE.fullmatch(text)
    if fenced is None or "```" in fenced["body"]:
        return None
    body = fenced["body"].strip()
    parsed = grammar.parse(body)
    if isinstance(parsed, ToolAction):
        return parsed
    return _function_json(body, tools) or _marked_function(body, tools) or _tool_call_tags(body, tools)


# Brackets -----------------------------------------------------------------------------------------------------------


def _af3_brackets(text: str, tools: Tools) -> Action | None:
    """``[send_message(recipient="Ben")]``, ``[Tool: send_message, recipient: "Ben"]``, ``[send_message {...}]``.

    A bare ``[name]`` is no call: sounds are written so too ("[music]").
    """
    found = _BRACKETED_RE.fullmatch(text)
    if found is None:
        return None
    rest = found["rest"]
    arguments: object
    if not rest:
        return _call(found["name"], {}, tools) if found["lead"] else None
    if rest.startswith("("):
        arguments = _arguments(rest[1:-1]) if rest.endswith(")") else None
    elif (body := rest.removeprefix(":").removeprefix(",").strip()).startswith("{"):
        arguments = _json(body)
    else:
        arguments = _arguments(body)
    return _call(found["name"], arguments, tools) if isinstance(arguments, dict) else None


def _arguments(text: str) -> dict[str, object] | None:
    """``key="value", other=3``: separated by commas or blanks, each named once, or None."""
    found: dict[str, object] = {}
    text, position = text.strip(), 0
    while position < len(text):
        argument = _ARGUMENT_RE.match(text, position)
        if argument is None or argument["key"] in found:
            return None
        try:
            found[argument["key"]] = _argument_value(argument)
        except ValueError:
            return None
        gap = re.compile(r"\s*,\s*|\s+|$").match(text, argument.end())
        if gap is None:
            return None
        position = gap.end()
        if position == len(text) and "," in gap[0]:
            return None
    return found


def _argument_value(argument: re.Match[str]) -> object:
    if argument["double"] is not None:
        return json.loads(argument["double"])
    if argument["single"] is not None:
        return argument["single"]
    bare = argument["bare"]
    if bare in _BARE_VALUES:
        return _BARE_VALUES[bare]
    value = _number(bare)
    if value is None:
        raise ValueError(f"{bare!r} is neither quoted nor a number")
    return value


def _number(text: str) -> int | float | None:
    if not _NUMBER_RE.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def _mute_word(text: str, tools: Tools) -> Action | None:
    """The word alone, in whatever brackets."""
    return MuteAction() if _MUTE_WORD_RE.fullmatch(text) else None


DIALECTS: Mapping[str, Converter] = {
    "mute_word": _mute_word,
    "function_json": _function_json,
    "marked_function": _marked_function,
    "tool_call_tags": _tool_call_tags,
    "json_fence": _json_fence,
    "af3_brackets": _af3_brackets,
}
"""Every converter by name. Thinking and terminators are not here: what they frame is taken off for all of them."""
