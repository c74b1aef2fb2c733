"""The action grammar: what a policy may write, read strictly and written canonically.

The forms are those of VGBench (*Do Audio LLMs Listen Before They Act?*, section 3.4) plus the repair of *Pardon?*::

    [Mute]
    <|TOOL|>{"name": "send_message", "params": {"recipient": "Priya"}}</|TOOL|>
    Pardon? Who should I text?
    any other text, which is an answer

The paper prints its tool form with the doubled braces of a Python format string; both spellings are read. Nothing is
repaired by guessing: single quotes, trailing commas, comments, ``NaN``, cut-off calls and text around a call are
faults, and a fault is never an action. Where a text holds several actions the one that does least wins: Mute, then
Pardon.
"""

from __future__ import annotations

import json
import re

from gate.actions import (
    Action,
    AnswerAction,
    MuteAction,
    PardonAction,
    Parsed,
    ParseFault,
    ToolAction,
    Unparseable,
)
from gate.catalogue import ToolCall

MUTE = "[Mute]"
TOOL_OPEN = "<|TOOL|>"
TOOL_CLOSE = "</|TOOL|>"
PARDON = "Pardon?"
MAX_CHARS = 16_384
"""Longer outputs are refused unread: an endless generation is a fault, not an answer."""
MAX_DEPTH = 8
"""How deep lists and objects may nest in a call. No tool needs more, and whatever walks a call may then recurse."""

_MUTE_RE = re.compile(r"\[\s*mute\s*\]", re.IGNORECASE)
_PARDON_RE = re.compile(r"pardon\s*\?", re.IGNORECASE)
TERMINATORS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|EOT|>", "<|end|>", "<|im_kimia_text_eos|>",
    "<|im_msg_end|>", "<end_of_turn>", "</s>",
)  # fmt: skip
"""What models write at their end; cut off before reading."""
_SPECIAL_RE = re.compile(r"<\|[^|<>]*\|>|</s>|<s>")
# Either key alone may stand in an answer; both together are a call in some other grammar.
_NAME_KEY_RE = re.compile(r"""["'](?:name|function|tool|tool_name)["']\s*:""")
_PARAMS_KEY_RE = re.compile(r"""["'](?:params|arguments|parameters|args)["']\s*:""")
_LITERALS = frozenset({"null", "none", "[]", "{}", '""', "true", "false"})


class _DuplicateKeyError(ValueError):
    pass


def _reject_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in pairs:
        if key in out:
            raise _DuplicateKeyError(key)
        out[key] = value
    return out


def _reject_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is out of range")
    return value


def _load(text: str) -> object:
    return json.loads(
        text,
        object_pairs_hook=_reject_duplicates,
        parse_constant=_reject_constant,
        parse_float=_finite_float,
    )


def _collapse_doubled_braces(text: str) -> str:
    """``{{`` to ``{`` and ``}}`` to ``}`` outside of strings."""
    out: list[str] = []
    index, in_string = 0, False
    while index < len(text):
        char = text[index]
        out.append(char)
        if in_string and char == "\\" and index + 1 < len(text):
            index += 1
            out.append(text[index])
        elif char == '"':
            in_string = not in_string
        elif not in_string and char in "{}" and text[index + 1 : index + 2] == char:
            index += 1
        index += 1
    return "".join(out)


def _close_index(text: str, start: int) -> int:
    """Index of the first end tag outside a JSON string from ``start``, or -1."""
    index, in_string = start, False
    while index < len(text):
        char = text[index]
        if in_string:
            if char == "\\":
                index += 1
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif text.startswith(TOOL_CLOSE, index):
            return index
        index += 1
    return -1


def _read_call(body: str) -> ToolCall | Unparseable:
    body = body.strip()
    candidates = [body]
    if body.startswith("{{") and body.endswith("}}"):
        candidates = [body[1:-1], _collapse_doubled_braces(body)]
    value: object = None
    problem: Unparseable | None = None
    for candidate in candidates:
        try:
            value = _load(candidate)
        except _DuplicateKeyError as error:
            problem = Unparseable(ParseFault.DUPLICATE_KEY, f"key {error} stands twice")
        except (ValueError, RecursionError) as error:
            problem = problem or Unparseable(ParseFault.MALFORMED_JSON, str(error)[:200])
        else:
            problem = None
            break
    if problem is not None:
        return problem
    if not isinstance(value, dict) or set(value) != {"name", "params"}:
        return Unparseable(ParseFault.WRONG_SHAPE, 'a call is an object with exactly "name" and "params"')
    name, params = value["name"], value["params"]
    if not isinstance(name, str) or not name:
        return Unparseable(ParseFault.WRONG_SHAPE, '"name" must be a non-empty string')
    if not isinstance(params, dict):
        return Unparseable(ParseFault.WRONG_SHAPE, f'"params" must be an object, not {type(params).__name__}')
    if _depth(params) > MAX_DEPTH:
        return Unparseable(ParseFault.WRONG_SHAPE, f"arguments nested deeper than {MAX_DEPTH}")
    call = ToolCall(name, params)
    if not _is_unicode(_canonical(call)):
        return Unparseable(ParseFault.WRONG_SHAPE, "half a surrogate pair is no character")
    return call


def _depth(value: object) -> int:
    """Levels of lists and objects, counted without recursion: the parser lets some hundreds through."""
    depth = 0
    level = [value]
    while holders := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [item for holder in holders for item in (holder.values() if isinstance(holder, dict) else holder)]
    return depth


def _canonical(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "params": dict(call.params)}, ensure_ascii=False, allow_nan=False)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_calls(text: str) -> Parsed:
    calls: list[ToolCall] = []
    outside: list[str] = []
    position = 0
    while (start := text.find(TOOL_OPEN, position)) >= 0:
        outside.append(text[position:start])
        end = _close_index(text, start + len(TOOL_OPEN))
        if end < 0:
            return Unparseable(ParseFault.TRUNCATED, f"no {TOOL_CLOSE} after the call")
        call = _read_call(text[start + len(TOOL_OPEN) : end])
        if isinstance(call, Unparseable):
            return call
        # The same call twice in one text is one call. Compared as text: in Python 1, 1.0 and True are equal.
        if _canonical(call) not in map(_canonical, calls):
            calls.append(call)
        position = end + len(TOOL_CLOSE)
    outside.append(text[position:])
    rest = "".join(outside).strip()
    if rest:
        return Unparseable(ParseFault.TEXT_AROUND_CALL, f"text beside the call: {rest[:80]!r}")
    if len(calls) > 1:
        return Unparseable(ParseFault.SEVERAL_CALLS, f"{len(calls)} different calls in one text")
    return ToolAction(calls[0])


def parse(text: str) -> Parsed:
    """Read one action.

    Args:
        text: a policy's whole output.

    Returns:
        The action, or ``Unparseable`` with the fault. Raises nothing.
    """
    if len(text) > MAX_CHARS:
        return Unparseable(ParseFault.TOO_LONG, f"{len(text)} characters, at most {MAX_CHARS}")
    if not _is_unicode(text):
        return Unparseable(ParseFault.WRONG_SHAPE, "half a surrogate pair is no character")
    text = _without_terminators(text)
    if TOOL_OPEN not in text and not _SPECIAL_RE.sub("", text).strip():
        return Unparseable(ParseFault.EMPTY, "no text")
    if text.casefold() in _LITERALS:
        return Unparseable(ParseFault.EMPTY, f"only {text!r}")
    # A mute label or a call inside an argument's string is the argument's text, so look outside of well-formed calls.
    bare = _without_call_bodies(text)
    if _MUTE_RE.search(bare):
        return MuteAction()
    # "Pardon?" inside of an answer may be quoted; beside a call it takes the call back.
    if pardon := _PARDON_RE.search(bare) if TOOL_OPEN in text else _PARDON_RE.match(text):
        # A blank in place of each mark, or what is left could close up into a mark.
        question = bare[pardon.end() :].replace(TOOL_OPEN, " ").replace(TOOL_CLOSE, " ")
        return PardonAction(_without_terminators(" ".join(question.split())))
    if TOOL_OPEN in text:
        return _read_calls(text)
    if TOOL_CLOSE in text:
        return Unparseable(ParseFault.TRUNCATED, f"{TOOL_CLOSE} without {TOOL_OPEN}")
    if _NAME_KEY_RE.search(text) and _PARAMS_KEY_RE.search(text):
        return Unparseable(ParseFault.NONCANONICAL_CALL, "a call outside the grammar's marks")
    return AnswerAction(text)


def _without_terminators(text: str) -> str:
    text = text.strip()
    while ending := next((mark for mark in TERMINATORS if text.endswith(mark)), ""):
        text = text.removesuffix(ending).rstrip()
    return text


def _without_call_bodies(text: str) -> str:
    out: list[str] = []
    position = 0
    while (start := text.find(TOOL_OPEN, position)) >= 0:
        out.append(text[position : start + len(TOOL_OPEN)])
        end = _close_index(text, start + len(TOOL_OPEN))
        if end < 0:
            # A string that never closes hides nothing: a mute label behind a broken call still counts.
            position = start + len(TOOL_OPEN)
            break
        position = end
    out.append(text[position:])
    return "".join(out)


def render(action: Action) -> str:
    """Write an action canonically, so that ``parse(render(action)) == action`` for every action ``parse`` returns.

    Raises:
        ValueError: when the arguments hold a value that JSON cannot carry, an answer would read as another action, or
            the canonical form is longer than ``MAX_CHARS``.
    """
    match action:
        case MuteAction():
            return MUTE
        case ToolAction(call):
            try:
                text = f"{TOOL_OPEN}{_canonical(call)}{TOOL_CLOSE}"
            except (TypeError, RecursionError) as error:
                raise ValueError(f"arguments are not JSON: {error}") from error
        case PardonAction(question):
            text = f"{PARDON} {question}".strip()
        case AnswerAction(answer):
            text = answer
    if parse(text) != action:
        raise ValueError(f"not expressible in the grammar: {text[:80]!r}")
    return text
