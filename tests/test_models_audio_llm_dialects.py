"""Native dialects: each converter reads its own form whole, and nothing ambiguous ever becomes a call."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.actions import MuteAction, ToolAction, Unparseable
from gate.catalogue import ToolCall
from gate.grammar import MAX_CHARS, TERMINATORS, parse, render
from models.audio_llm.dialects import DIALECTS, Normalised, normalise, split_thinking
from tools.catalogue import ToolCatalogue

TOOLS = ToolCatalogue.builtin(()).all()
CALL = ToolCall("send_message", {"recipient": "Ben", "body": "I'm late"})
PAY = ToolCall("transfer_money", {"recipient": "Ben", "amount": 60})


def canonical(call: ToolCall) -> str:
    return render(ToolAction(call))


def as_json(call: ToolCall, key: str = "arguments") -> str:
    return json.dumps({"name": call.name, key: dict(call.params)})


def as_brackets(call: ToolCall) -> str:
    arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in call.params.items())
    return f"[{call.name}({arguments})]"


def as_xml(call: ToolCall) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in call.params.items())
    return f"<tool_call>\n<function={call.name}>\n{values}</function>\n</tool_call>"


WRITERS: dict[str, Callable[[ToolCall], str]] = {
    "function_json": as_json,
    "marked_function": lambda call: f"<|TOOL|>{as_json(call)}</|TOOL|>",
    "tool_call_tags": lambda call: f"<tool_call>\n{as_json(call)}\n</tool_call>",
    "json_fence": lambda call: f"```json\n{as_json(call)}\n```",
    "af3_brackets": as_brackets,
}

calls = st.builds(
    lambda recipient, body: ToolCall("send_message", {"recipient": recipient, "body": body}),
    st.text(st.characters(codec="utf-8", exclude_characters="<[]`"), min_size=1, max_size=20),
    st.text(st.characters(codec="utf-8", exclude_characters="<[]`"), max_size=20),
)
words = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()))


def test_there_is_a_writer_for_every_converter() -> None:
    """A converter without a test here would be free to guess."""
    assert set(WRITERS) | {"mute_word"} == set(DIALECTS)


@pytest.mark.parametrize("name", WRITERS)
@given(call=calls)
def test_a_call_in_a_native_dialect_comes_back_whole(name: str, call: ToolCall) -> None:
    """A lost or changed argument would send the wrong words to the wrong person."""
    if any("mute" in str(value).casefold() or "pardon" in str(value).casefold() for value in call.params.values()):
        return  # the canonical grammar reads these as the lesser action
    normal = normalise(WRITERS[name](call), TOOLS)
    assert (normal.dialect, parse(normal.text)) == (name, ToolAction(call))


@pytest.mark.parametrize("name", WRITERS)
@given(beside=words, before=st.booleans())
def test_words_beside_a_native_call_keep_it_from_being_one(name: str, beside: str, before: bool) -> None:
    """ "Don't do this: [unlock_door(...)]" must not open a door."""
    written = WRITERS[name](CALL)
    text = f"{beside} {written}" if before else f"{written} {beside}"
    assert not isinstance(parse(normalise(text, TOOLS).text), ToolAction)


@pytest.mark.parametrize("name", WRITERS)
def test_two_native_calls_are_none(name: str) -> None:
    """Which of two was meant would be a guess."""
    text = f"{WRITERS[name](CALL)}\n{WRITERS[name](PAY)}"
    assert not isinstance(parse(normalise(text, TOOLS).text), ToolAction)


@pytest.mark.parametrize("name", WRITERS)
@given(cut=st.integers(1, 60))
def test_a_cut_off_native_call_is_none(name: str, cut: int) -> None:
    """Half a call may lack the half that matters."""
    written = WRITERS[name](CALL)
    assert not isinstance(parse(normalise(written[: -min(cut, len(written) - 1)], TOOLS).text), ToolAction)


@given(st.text(max_size=200))
def test_no_text_without_a_tools_name_becomes_a_call(text: str) -> None:
    """Sounds, lists and stage directions are not calls."""
    if not any(tool.name in text for tool in TOOLS):
        assert not isinstance(parse(normalise(text, TOOLS).text), ToolAction)


@given(st.one_of(st.text(max_size=80), st.sampled_from([write(CALL) for write in WRITERS.values()])))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    """The log can be read again with the same result."""
    once = normalise(text, TOOLS)
    assert normalise(once.text, TOOLS).text == once.text


@given(st.text(max_size=80), st.sampled_from([write(CALL) for write in WRITERS.values()]))
def test_a_mute_is_never_made_into_more(text: str, written: str) -> None:
    """Where the strict reading does least, the generous one must not do more."""
    both = f"[Mute] {text} {written}"
    assert isinstance(parse(both), MuteAction)
    assert isinstance(parse(normalise(both, TOOLS).text), MuteAction | Unparseable)


@pytest.mark.parametrize(
    "text",
    [
        "[send_message]",
        "[music]",
        '[send_message("Ben", "hi")]',
        "[send_message(recipient=Ben, body=hi)]",
        '[send_message(recipient="Ben", recipient="Eve", body="hi")]',
        '[send_message(recipient="Ben",)]',
        '[send_message(recipient="Ben" body="hi"]',
        '[Note: send_message(recipient="Ben")]',
        '[call_me(recipient="Ben")]',
        '{"name": "send_message", "arguments": {"recipient": "Ben", "recipient": "Eve"}}',
        '{"name": "send_message", "arguments": {"recipient": "Ben"}, "confidence": 0.1}',
        '{"name": "send_message", "arguments": ["Ben"]}',
        '{"name": "send_message", "arguments": {"amount": NaN}}',
        '{"name": "send_messages", "arguments": {}}',
        '[{"name": "unlock_door", "arguments": {"door": "a"}}, {"name": "unlock_door", "arguments": {"door": "b"}}]',
        '<tool_call>{"name": "make_call", "arguments": {"contact": "A"}}</tool_call>'
        '<tool_call>{"name": "make_call", "arguments": {"contact": "B"}}</tool_call>',
        "<tool_call><function=make_call><parameter=contact>A</parameter><parameter=contact>B</parameter></function>"
        "</tool_call>",
        '<tool_call>{"name": "make_call", "arguments": {"contact": "A"}}</function_call>',
        '```json\n{"name": "make_call", "arguments": {"contact": "A"}}\n```\nor\n```json\n{}\n```',
        "send_message",
    ],
)
def test_what_could_be_read_in_two_ways_is_no_call(text: str) -> None:
    """Each of these needs a guess at a value, a name or which of two was meant."""
    assert normalise(text, TOOLS) == Normalised(text)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("[Tool: unlock_door(door='front door')]", ToolCall("unlock_door", {"door": "front door"})),
        ('[TOOL: unlock_door, door: "front door"]', ToolCall("unlock_door", {"door": "front door"})),
        ('[unlock_door {"door": "front door"}]', ToolCall("unlock_door", {"door": "front door"})),
        ('[transfer_money(recipient="Ben", amount=60)]', PAY),
        ('{"type": "function", "function": {"name": "unlock_door", "arguments": "{\\"door\\": \\"front door\\"}"}}',
         ToolCall("unlock_door", {"door": "front door"})),
        ('{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "make_call", "arguments": '
         '{"contact": "Eve"}}}]}', ToolCall("make_call", {"contact": "Eve"})),
        ('<TOOLCALL>[{"name": "make_call", "arguments": {"contact": "Eve"}}]</TOOLCALL>',
         ToolCall("make_call", {"contact": "Eve"})),
        (as_xml(PAY), PAY),
        (as_xml(CALL), CALL),
    ],
)  # fmt: skip
def test_the_frames_that_servers_and_models_use_are_read(text: str, call: ToolCall) -> None:
    """The papers grant each model its own form."""
    assert parse(normalise(text, TOOLS).text) == ToolAction(call)


@pytest.mark.parametrize("text", ["mute", "Mute.", "(MUTE)", "**Mute**", '{"name": "mute", "arguments": {}}'])
def test_mute_in_other_words_is_mute(text: str) -> None:
    """A model that means silence must not be read aloud."""
    assert isinstance(parse(normalise(text, TOOLS).text), MuteAction)


def test_only_the_named_converters_are_tried() -> None:
    """A model is granted its own dialect, not everybody's."""
    assert normalise(as_brackets(CALL), TOOLS, ["function_json"]).dialect == ""
    assert normalise(as_brackets(CALL), TOOLS, ["af3_brackets"]).dialect == "af3_brackets"
    with pytest.raises(KeyError):
        normalise("x", TOOLS, ["nonsense"])


@pytest.mark.parametrize(
    ("text", "thinking", "rest"),
    [
        ("<think>call?</think>[Mute]", "<think>call?</think>", "[Mute]"),
        ("it is a call</think>\n[Mute]", "it is a call</think>", "\n[Mute]"),
        ("<think>never done [Mute]", "<think>never done [Mute]", ""),
        ("no thought", "", "no thought"),
    ],
)
def test_thinking_is_taken_off_whole(text: str, thinking: str, rest: str) -> None:
    """What a model only considers must neither run nor be read aloud."""
    assert split_thinking(text) == (thinking, rest)


@given(st.text(max_size=60), st.text(max_size=60))
def test_thinking_and_rest_are_the_text(before: str, after: str) -> None:
    """The log keeps every character that was written."""
    for text in (before + after, f"<think>{before}</think>{after}", f"{before}</think>{after}"):
        assert "".join(split_thinking(text)) == text


def test_a_call_in_unfinished_or_second_thoughts_is_none() -> None:
    """A thought about a call is not a call."""
    call = canonical(CALL)
    for text in (f"<think>maybe {call}", f"<think>a</think>{call}</think>[Mute] no", f"<think>a</think>b<think>{call}"):
        assert not isinstance(parse(normalise(text, TOOLS).text), ToolAction)


def test_a_closing_tag_inside_of_an_argument_is_the_arguments() -> None:
    """A dictated "</think>" must not cut a call in two."""
    call = ToolCall("send_message", {"recipient": "Ben", "body": "write </think> here"})
    assert normalise(canonical(call), TOOLS) == Normalised(canonical(call))


@pytest.mark.parametrize("mark", TERMINATORS)
def test_a_turn_that_the_model_makes_up_after_its_own_is_cut_off(mark: str) -> None:
    """Servers without the right stop token go on and play the user too."""
    text = f"{canonical(CALL)}{mark}\nuser\nthank you"
    assert normalise(text, TOOLS) == Normalised(canonical(CALL), "terminator")


def test_a_second_action_after_the_terminator_leaves_the_text_alone() -> None:
    """Two actions are ambiguous, whatever stands between them."""
    text = f"{canonical(CALL)}<|im_end|>{canonical(PAY)}"
    assert normalise(text, TOOLS) == Normalised(text)


def test_an_endless_text_is_left_alone() -> None:
    """It is refused unread, and reading it would take long."""
    text = as_json(CALL) + " " * MAX_CHARS
    assert normalise(text, TOOLS) == Normalised(text)


@pytest.mark.parametrize("opening", ["[", '{"function": ', '{"tool_calls": ['])
def test_deep_nesting_is_left_alone(opening: str) -> None:
    """A model stuck on one bracket must not end the reader."""
    text = opening * (MAX_CHARS // len(opening))
    for deep in (text, text[: 900 * len(opening)] + "1" + "}]"):
        assert normalise(deep, TOOLS) == Normalised(deep)
