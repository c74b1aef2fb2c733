"""The grammar: what a policy writes is one action or a fault, and a fault is never an action."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.actions import (
    Action,
    ActionKind,
    AnswerAction,
    MuteAction,
    PardonAction,
    ParseFault,
    ToolAction,
    Unparseable,
    kind_of,
)
from gate.catalogue import ToolCall
from gate.grammar import MAX_CHARS, MAX_DEPTH, TERMINATORS, TOOL_CLOSE, TOOL_OPEN, parse, render

OPEN, CLOSE = TOOL_OPEN, TOOL_CLOSE
LIGHT = '{"name": "light", "params": {"on": true}}'
LIGHT_CALL = ToolAction(ToolCall("light", {"on": True}))


def wrapped(body: str) -> str:
    return f"{OPEN}{body}{CLOSE}"


def fault(text: str) -> ParseFault | None:
    parsed = parse(text)
    return parsed.fault if isinstance(parsed, Unparseable) else None


# The forms of the papers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[Mute]", " [mute]\n", "[ MUTE ]", "[Mute]<|im_end|>", "[Mute]</s></s>"])
def test_mute_in_any_spelling_is_silence(text: str) -> None:
    assert parse(text) == MuteAction()


@pytest.mark.parametrize(
    "text",
    [
        wrapped(LIGHT),
        f"  {wrapped(LIGHT)}\n",
        wrapped(f"\n{LIGHT} "),
        wrapped(LIGHT) + "<|im_end|>",
        wrapped(LIGHT) + " <|eot_id|>\n</s>",
        wrapped('{"params":{"on":true},"name":"light"}'),
        wrapped('{{"name": "light", "params": {"on": true}}}'),
        wrapped('{{"name": "light", "params": {{"on": true}}}}'),
    ],
    ids=["plain", "blank", "inner-blank", "one-end", "two-ends", "keys-swapped", "outer-doubled", "all-doubled"],
)
def test_a_call_alone_is_read_in_both_spellings_of_its_braces(text: str) -> None:
    assert parse(text) == LIGHT_CALL


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ('{{"name": "say", "params": {"text": "{{x}} }}"}}}', {"text": "{{x}} }}"}),
        ('{{"name": "say", "params": {{"text": "{{x}} }} {"}}}}', {"text": "{{x}} }} {"}),
        ('{{"name": "say", "params": {{"text": "\\"{{"}}}}', {"text": '"{{'}),
        ('{{"name": "say", "params": {}}}', {}),
        ('{{"name": "say", "params": {{}}}}', {}),
        ('{{"name": "say", "params": {"a": {"b": {}}}}}', {"a": {"b": {}}}),
        ('{{"name": "say", "params": {{"a": {{"b": {{}}}}}}}}', {"a": {"b": {}}}),
        ('{"name": "say", "params": {"a": {"b": {}}}}', {"a": {"b": {}}}),
    ],
)
def test_doubled_braces_are_undone_outside_of_strings_only(body: str, params: dict[str, object]) -> None:
    assert parse(wrapped(body)) == ToolAction(ToolCall("say", params))


def test_an_end_tag_and_braces_inside_of_a_string_are_the_strings_own() -> None:
    text = f"}} {CLOSE} {{ {OPEN} \\"
    call = ToolCall("say", {"text": text})
    assert parse(wrapped(json.dumps({"name": "say", "params": {"text": text}}))) == ToolAction(call)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Pardon?", ""),
        ("pardon ?", ""),
        ("Pardon? Who should I text?", "Who should I text?"),
        ("PARDON?Who?</s>", "Who?"),
        ("Pardon?  How\n much?", "How much?"),
    ],
)
def test_pardon_carries_its_question(text: str, question: str) -> None:
    assert parse(text) == PardonAction(question)


@pytest.mark.parametrize(
    "text",
    [
        "It is noon.",
        "Pardon me, it is noon.",
        'He said "pardon?" and left.',
        "Mute the TV? I cannot.",
        'The "name": field is empty.',
        'Use "params": for that.',
        "0",
        "no",
        "<b>bold</b>",
        "{curly}",
        "李雷 said नमस्ते \U0001f600",
    ],
)
def test_other_text_is_an_answer_word_for_word(text: str) -> None:
    assert parse(text) == AnswerAction(text)


# Who wins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"[Mute]{wrapped(LIGHT)}",
        f"{wrapped(LIGHT)}[Mute]",
        f"{wrapped(LIGHT)} so [mute]",
        "[Mute] Pardon? Who?",
        "Pardon? [Mute]",
        "That was not for me. [Mute]",
        f'{OPEN}{{"name": "light", "params": {{"a": "[Mute]',
        f'{OPEN}{{"name": "li [Mute]',
    ],
)
def test_mute_wins_over_whatever_stands_beside_it(text: str) -> None:
    assert parse(text) == MuteAction()


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (f"Pardon? {wrapped(LIGHT)}", ""),
        (f"Pardon? Which one? {wrapped(LIGHT)}", "Which one?"),
        (f"{wrapped(LIGHT)} Pardon? Which one?", "Which one?"),
        (f"Hm. {wrapped(LIGHT)} pardon?", ""),
        (f"Pardon? {wrapped(LIGHT)}{wrapped(LIGHT)}", ""),
        (f"Pardon? {OPEN}{{ cut", "{ cut"),
        (f"Pardon? <|{OPEN}TOOL|>", "<| TOOL|>"),
        (f"Pardon? Who?</s> {wrapped(LIGHT)}", "Who?"),
    ],
)
def test_pardon_wins_over_a_call(text: str, question: str) -> None:
    assert parse(text) == PardonAction(question)


def test_a_mute_label_or_a_pardon_that_is_an_arguments_text_stays_one() -> None:
    call = ToolCall("say", {"text": "[Mute] Pardon? Who?"})
    assert parse(render(ToolAction(call))) == ToolAction(call)


# Faults -----------------------------------------------------------------------------------------------------------

_DEEP = "[" * 4000 + "]" * 4000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Nothing.
        ("", ParseFault.EMPTY),
        (" \n\t\u00a0", ParseFault.EMPTY),
        ("null", ParseFault.EMPTY),
        ("None", ParseFault.EMPTY),
        ("[]", ParseFault.EMPTY),
        ("{}", ParseFault.EMPTY),
        ('""', ParseFault.EMPTY),
        ("true", ParseFault.EMPTY),
        ("null</s>", ParseFault.EMPTY),
        ("<|im_start|><|im_end|>", ParseFault.EMPTY),
        ("<|foo|> <s></s>", ParseFault.EMPTY),
        ("</s>" * 4096, ParseFault.EMPTY),
        # Endless.
        ("word " * 10_000, ParseFault.TOO_LONG),
        ("x" * (MAX_CHARS + 1), ParseFault.TOO_LONG),
        (wrapped(LIGHT) + " " * MAX_CHARS, ParseFault.TOO_LONG),
        # Prose around a call, several calls.
        (f"Sure! {wrapped(LIGHT)}", ParseFault.TEXT_AROUND_CALL),
        (f"{wrapped(LIGHT)} Done.", ParseFault.TEXT_AROUND_CALL),
        (f"{wrapped(LIGHT)} and {wrapped(LIGHT)}", ParseFault.TEXT_AROUND_CALL),
        (f"\u200b{wrapped(LIGHT)}", ParseFault.TEXT_AROUND_CALL),
        (f"<s>{wrapped(LIGHT)}", ParseFault.TEXT_AROUND_CALL),
        (f"```json\n{wrapped(LIGHT)}\n```", ParseFault.TEXT_AROUND_CALL),
        (f"{wrapped(LIGHT)}{wrapped(LIGHT.replace('true', 'false'))}", ParseFault.SEVERAL_CALLS),
        (f"{wrapped(LIGHT)}{wrapped(LIGHT.replace('true', '1'))}", ParseFault.SEVERAL_CALLS),
        (f"{wrapped(LIGHT)}{wrapped(LIGHT.replace('true', '1.0'))}", ParseFault.SEVERAL_CALLS),
        (f"{wrapped(LIGHT)}{CLOSE}", ParseFault.TEXT_AROUND_CALL),
        # Calls in another grammar.
        (LIGHT, ParseFault.NONCANONICAL_CALL),
        ('Sure! {"name":"light","arguments":{"on":true}} Done.', ParseFault.NONCANONICAL_CALL),
        (f"```json\n{LIGHT}\n```", ParseFault.NONCANONICAL_CALL),
        ('<tool_call>{"arguments": {"on": true}, "name": "light"}</tool_call>', ParseFault.NONCANONICAL_CALL),
        ("{'name': 'light', 'arguments': {'on': True}}", ParseFault.NONCANONICAL_CALL),
        # Cut off.
        (OPEN, ParseFault.TRUNCATED),
        (CLOSE, ParseFault.TRUNCATED),
        (f"{LIGHT}{CLOSE}", ParseFault.TRUNCATED),
        (f'{OPEN}{{"name":"light","params":{{"on":tr', ParseFault.TRUNCATED),
        (f'{OPEN}{{"name":"say","params":{{"text":"}} {CLOSE}', ParseFault.TRUNCATED),
        (f"{OPEN}{LIGHT}{CLOSE[:-1]}", ParseFault.TRUNCATED),
        (f"{wrapped(LIGHT)}{OPEN}{LIGHT}", ParseFault.TRUNCATED),
        # No JSON, and no repair.
        (wrapped(""), ParseFault.MALFORMED_JSON),
        (wrapped("light"), ParseFault.MALFORMED_JSON),
        (wrapped("{'name': 'light', 'params': {}}"), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"on": true,}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"on": True}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {} /* on */}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {}} // on'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": NaN}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": Infinity}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": -Infinity}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": 1e309}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": -1e309}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": 0x10}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": +1}}'), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"level": ' + "9" * 5000 + "}}"), ParseFault.MALFORMED_JSON),
        (wrapped('{"name": "light", "params": {"a": "line\nbreak"}}'), ParseFault.MALFORMED_JSON),
        (wrapped(f"{LIGHT} {LIGHT}"), ParseFault.MALFORMED_JSON),
        (wrapped(f"{LIGHT}trailing"), ParseFault.MALFORMED_JSON),
        (wrapped(f"```json\n{LIGHT}\n```"), ParseFault.MALFORMED_JSON),
        (wrapped("{{{" + LIGHT[1:] + "}}"), ParseFault.MALFORMED_JSON),
        (wrapped(_DEEP), ParseFault.MALFORMED_JSON),
        (wrapped('{"a":' * 2000 + "1" + "}" * 2000), ParseFault.MALFORMED_JSON),
        # Twice the same key, in any depth.
        (wrapped('{"name": "a", "name": "b", "params": {}}'), ParseFault.DUPLICATE_KEY),
        (wrapped('{"name": "a", "params": {"on": true, "on": false}}'), ParseFault.DUPLICATE_KEY),
        (wrapped('{"name": "a", "params": {"o": {"x": 1, "\\u0078": 2}}}'), ParseFault.DUPLICATE_KEY),
        (wrapped('{{"name": "a", "params": {{"on": true, "on": false}}}}'), ParseFault.DUPLICATE_KEY),
        # JSON, but no call.
        (wrapped("[]"), ParseFault.WRONG_SHAPE),
        (wrapped("null"), ParseFault.WRONG_SHAPE),
        (wrapped("7"), ParseFault.WRONG_SHAPE),
        (wrapped(f"[{LIGHT}]"), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light"}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"params": {}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light", "arguments": {}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light", "params": {}, "id": 1}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "", "params": {}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": null, "params": {}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": ["light"], "params": {}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light", "params": null}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light", "params": []}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "light", "params": "{\\"on\\":true}"}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "a", "params": {"x": ' + "[" * 300 + "]" * 300 + "}}"), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "a", "params": {"x": "\\ud800"}}'), ParseFault.WRONG_SHAPE),
        (wrapped('{"name": "a", "params": {"\\udfff": 1}}'), ParseFault.WRONG_SHAPE),
        ("\ud800 hello", ParseFault.WRONG_SHAPE),
    ],
)
def test_what_is_outside_the_grammar_is_a_fault_of_its_own_kind_and_never_runs(text: str, expected: ParseFault) -> None:
    assert fault(text) is expected


def test_the_same_call_twice_in_one_text_is_one_call() -> None:
    assert parse(f"{wrapped(LIGHT)}\n{wrapped(LIGHT)}") == LIGHT_CALL
    assert parse(wrapped(LIGHT) + wrapped(LIGHT.replace(" ", ""))) == LIGHT_CALL


@pytest.mark.parametrize(
    "name", ["Light", "light ", "l\u0456ght", "__class__", "os.system", "../../x", "; rm -rf /", "home/+/set", "#"]
)
def test_the_name_is_kept_as_written_so_a_look_alike_is_never_taken_for_a_tool(name: str) -> None:
    parsed = parse(wrapped(json.dumps({"name": name, "params": {}})))
    assert parsed == ToolAction(ToolCall(name, {}))
    assert name != "light"


@pytest.mark.parametrize("value", ["false", "off", "22", "1e309", "null", "[Mute]", "x" * 10_000])
def test_a_string_stays_a_string_so_false_never_becomes_true(value: str) -> None:
    parsed = parse(wrapped(json.dumps({"name": "a", "params": {"x": value}})))
    assert isinstance(parsed, ToolAction)
    assert parsed.call.params == {"x": value}
    assert type(parsed.call.params["x"]) is str


@pytest.mark.parametrize(("written", "kind"), [("0", int), ("1", int), ("-5", int), ("22.7", float), ("true", bool)])
def test_a_number_and_a_boolean_keep_their_kind(written: str, kind: type) -> None:
    parsed = parse(wrapped(LIGHT.replace("true", written)))
    assert isinstance(parsed, ToolAction)
    assert type(parsed.call.params["on"]) is kind


def test_nesting_is_read_to_its_limit() -> None:
    def nested(depth: int) -> str:
        return wrapped('{"name": "a", "params": {"x": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}}")

    assert isinstance(parse(nested(MAX_DEPTH)), ToolAction)
    assert fault(nested(MAX_DEPTH + 1)) is ParseFault.WRONG_SHAPE


def test_a_call_inside_of_an_answers_words_is_no_call() -> None:
    assert fault(f'You could write "{wrapped(LIGHT)}" for that.') is ParseFault.TEXT_AROUND_CALL


# Properties -------------------------------------------------------------------------------------------------------

_NASTY_PIECES = (
    OPEN, CLOSE, "{{", "}}", "{", "}", '"', "\\", "[Mute]", "Pardon?", "</s>", "<|im_end|>", "\u2028", "\x00", "'",
    ", ",
)  # fmt: skip
_NASTY = st.sampled_from(_NASTY_PIECES)
_UNICODE = st.text(st.characters(codec="utf-8"), max_size=12)
_STRINGS = st.lists(st.one_of(_NASTY, _UNICODE), max_size=6).map("".join)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(min_value=-(10**30), max_value=10**30),
        st.floats(allow_nan=False, allow_infinity=False),
        _STRINGS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_STRINGS, inner, max_size=3)),
    max_leaves=6,
)


def _depth(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


_CALLS = st.builds(
    ToolCall,
    _STRINGS.filter(bool),
    st.dictionaries(_STRINGS, _VALUES, max_size=4).filter(lambda params: _depth(params) <= MAX_DEPTH),
)
_TEXTS = st.lists(st.one_of(_NASTY, _UNICODE, st.just(LIGHT), st.just(wrapped(LIGHT))), max_size=8).map("".join)


@given(_CALLS)
@settings(max_examples=100, deadline=None)
def test_every_call_is_read_back_as_it_was_written(call: ToolCall) -> None:
    parsed = parse(render(ToolAction(call)))
    assert isinstance(parsed, ToolAction)
    assert json.dumps(parsed.call.params) == json.dumps(dict(call.params))
    assert parsed.call.name == call.name


@given(_CALLS)
@settings(max_examples=100, deadline=None)
def test_a_call_in_doubled_braces_is_the_same_call(call: ToolCall) -> None:
    text = json.dumps({"name": call.name, "params": dict(call.params)}, ensure_ascii=False)
    assert parse(wrapped(f"{{{text}}}")) == ToolAction(call)
    assert parse(wrapped(_doubled(text))) == ToolAction(call)


def _doubled(text: str) -> str:
    """A JSON text with its structural braces doubled, as a format string has them."""
    out: list[str] = []
    in_string = escaped = False
    for char in text:
        out.append(char * 2 if char in "{}" and not in_string else char)
        if char == '"' and not escaped:
            in_string = not in_string
        escaped = char == "\\" and not escaped
    return "".join(out)


@given(st.one_of(_TEXTS, st.text()))
@settings(max_examples=200, deadline=None)
@example(f"Pardon? <|{OPEN}TOOL|>")
@example(f"{OPEN}{{{{{CLOSE}")
def test_any_text_is_read_and_what_was_read_is_written_and_read_again_the_same(text: str) -> None:
    parsed = parse(text)
    if isinstance(parsed, Unparseable):
        assert parsed.detail
    else:
        assert parse(render(parsed)) == parsed


@given(_CALLS, st.one_of(_UNICODE, _NASTY), st.one_of(_UNICODE, _NASTY))
@settings(max_examples=100, deadline=None)
def test_text_on_either_side_of_a_call_keeps_it_from_running(call: ToolCall, before: str, after: str) -> None:
    written = render(ToolAction(call))
    blank_after = after.strip() in ("", *TERMINATORS)
    parsed = parse(f"{before}{written}{after}")
    if before.strip() or not blank_after:
        assert not isinstance(parsed, ToolAction)
    else:
        assert parsed == ToolAction(call)


@given(_CALLS, st.data())
@settings(max_examples=100, deadline=None)
def test_a_call_cut_off_anywhere_never_runs(call: ToolCall, data: st.DataObject) -> None:
    written = render(ToolAction(call))
    cut = data.draw(st.integers(min_value=0, max_value=len(written) - 1))
    assert not isinstance(parse(written[:cut]), ToolAction)
    assert not isinstance(parse(written[len(written) - cut :]), ToolAction)


@given(_CALLS)
@settings(max_examples=100, deadline=None)
def test_mute_beside_any_call_is_silence(call: ToolCall) -> None:
    written = render(ToolAction(call))
    assert parse(f"{written}[Mute]") == parse(f"[Mute]{written}") == MuteAction()


@pytest.mark.parametrize(
    "action",
    [
        ToolAction(ToolCall("a", {"x": float("nan")})),
        ToolAction(ToolCall("a", {"x": float("inf")})),
        ToolAction(ToolCall("a", {"x": object()})),
        ToolAction(ToolCall("", {})),
        ToolAction(ToolCall("a", {"x": "\ud800"})),
        ToolAction(ToolCall("a", {"x": "y" * MAX_CHARS})),
        AnswerAction(""),
        AnswerAction(" padded "),
        AnswerAction("[Mute]"),
        AnswerAction("Pardon? Who?"),
        AnswerAction(wrapped(LIGHT)),
        AnswerAction(LIGHT),
        AnswerAction("null"),
        AnswerAction("bye</s>"),
        AnswerAction("x" * (MAX_CHARS + 1)),
        PardonAction("[Mute]"),
        PardonAction("two  blanks"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(action: Action) -> None:
    with pytest.raises(ValueError, match=r"JSON|grammar"):
        render(action)


@pytest.mark.parametrize(
    ("action", "text", "kind"),
    [
        (MuteAction(), "[Mute]", ActionKind.MUTE),
        (LIGHT_CALL, '<|TOOL|>{"name": "light", "params": {"on": true}}</|TOOL|>', ActionKind.TOOL),
        (AnswerAction("Noon."), "Noon.", ActionKind.ANSWER),
        (PardonAction(""), "Pardon?", ActionKind.PARDON),
        (PardonAction("Who?"), "Pardon? Who?", ActionKind.PARDON),
    ],
)
def test_the_canonical_forms_are_the_papers_own(action: Action, text: str, kind: ActionKind) -> None:
    assert render(action) == text
    assert kind_of(action) is kind


@pytest.mark.parametrize("size", [2_000, 4_000, 8_000])
@pytest.mark.parametrize("piece", ["</s>", "[ ", "{{", '"name":"', "pardon ", OPEN, CLOSE, '"', "\\", "<|", "[" * 50])
def test_reading_takes_no_more_than_a_few_passes_over_the_text(piece: str, size: int) -> None:
    # A quadratic reader would take minutes for all of these together.
    parse((piece * size)[:MAX_CHARS])
    parse((OPEN + piece * size)[:MAX_CHARS])
    parse((OPEN + piece * size)[: MAX_CHARS - len(CLOSE)] + CLOSE)
