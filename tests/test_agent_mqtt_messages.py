"""What is published of each event, and what is not: nobody's words leave the machine unasked."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from pydantic import BaseModel

from agent import events
from agent.events import Event
from agent.mqtt_messages import Topics, as_json, decision_fields, event_id, event_message
from agent.mqtt_outbox import Waiting
from tests.mqtt_harness import SECRET, decided, executed, turn_opened

KINDS: tuple[type[BaseModel], ...] = typing.get_args(typing.get_args(Event)[0])
PLAIN = {
    "session", "turn", "tool", "policy", "code", "message", "reason", "sentence", "missing_param", "tools_off", "where",
    "kind", "output",
}  # fmt: skip
"""Text that is ours, not a speaker's: codes, names of tools and parameters, and sentences of a closed list."""
SCORE = 0.8125


def full_of_words(kind: Any) -> Any:
    """A value for any type in the schema: a secret wherever words fit, a telling score wherever a number does."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {
            name: "plain"
            if name in PLAIN and field.annotation in (str, str | None)
            else full_of_words(field.annotation)
            for name, field in kind.model_fields.items()
            if name not in ("v", "event")
        }
    if origin is typing.Literal:
        return arguments[0]
    if origin is dict:
        if arguments[1] is str:  # names of models and their checksums
            return {"name": "plain"}
        return {SECRET if arguments[1] is object else "name": full_of_words(arguments[1])}
    if origin is tuple:
        return [full_of_words(argument) for argument in arguments if argument is not Ellipsis]
    if arguments:  # a union: the first that is not None
        return full_of_words(next(argument for argument in arguments if argument is not type(None)))
    return {str: SECRET, object: SECRET, float: SCORE, int: 1, bool: True}[kind]


def message(event: Event, *, transcripts: bool, **changes: Any) -> dict[str, Any]:
    options = {"now_s": 5.0, "late_after_s": 10.0, "dropped_before": 0, **changes}
    return json.loads(event_message(Waiting(event, 0.0, 1234.5678, 0), transcripts=transcripts, **options))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_event_of_any_kind_carries_words_unless_asked(kind: type[BaseModel]):
    event = kind.model_validate(full_of_words(kind))
    assert SECRET not in json.dumps(message(event, transcripts=False))  # type: ignore[arg-type]
    if SECRET in event.model_dump_json():
        assert SECRET in json.dumps(message(event, transcripts=True))  # type: ignore[arg-type]


def test_the_search_for_words_has_words_to_find():
    found = {kind.__name__ for kind in KINDS if SECRET in kind.model_validate(full_of_words(kind)).model_dump_json()}
    assert found >= {"Proposed", "Decided", "Executed", "LateResult", "ClaimWithoutExecution", "Failed"}


def test_scores_stay_at_home_with_the_words():
    told = message(decided(0), transcripts=False)["evidence"]
    assert told["speaker"] == {"verdict": "owner"}
    assert told["distance"] == {"verdict": "near"}
    everything = message(decided(0), transcripts=True)["evidence"]
    assert everything["speaker"]["score"] == SCORE
    assert everything["transcript"] == SECRET


def test_an_event_that_this_module_does_not_know_yet_tells_only_that_it_happened():
    class Overheard(events.Envelope):
        event: str = "overheard"
        words: str

    told = message(
        Overheard(seq=3, session="s", at_s=1.0, clock_s=1.0, words=SECRET), transcripts=False  # type: ignore[arg-type]
    )  # fmt: skip
    assert told["event"] == "overheard"
    assert set(told) == {
        "id", "unix_s", "late", "dropped_before", "v", "seq", "session", "at_s", "clock_s", "event",
    }  # fmt: skip


def test_a_message_has_its_id_its_time_and_what_became_of_it_on_the_way():
    told = message(executed(7), transcripts=False, now_s=10.5, dropped_before=3)
    assert (told["id"], told["unix_s"], told["late"], told["dropped_before"]) == ("s-7", 1234.568, True, 3)
    assert not message(executed(7), transcripts=False, now_s=10.0)["late"]


@pytest.mark.parametrize("event", [turn_opened(0), decided(1), executed(2)], ids=lambda event: event.event)
def test_with_transcripts_a_message_reads_back_as_the_very_event(event: Event):
    assert events.EVENT.validate_python(message(event, transcripts=True)) == event


def test_ids_are_unique_over_sessions():
    other = executed(0).model_copy(update={"session": "t"})
    assert len({event_id(event) for event in (executed(0), executed(1), other)}) == 3


def test_the_last_decision_in_brief_has_the_reason_and_no_words():
    brief = decision_fields(decided(0), unix_s=1.0, transcripts=False)
    assert SECRET not in as_json(brief)
    assert (brief["action"], brief["reason"], brief["speaker"], brief["latency_s"]) == (
        "tool",
        "licensed",
        "owner",
        0.75,
    )
    assert decision_fields(decided(0), unix_s=1.0, transcripts=True)["transcript"] == SECRET


def test_topics_lie_below_the_base():
    topics = Topics("home/gate")
    assert [topics.state, topics.last_decision, topics.mute_set, topics.mute_state, topics.event(executed(0))] == [
        "home/gate/state", "home/gate/last_decision", "home/gate/mute/set", "home/gate/mute/state",
        "home/gate/events/executed",
    ]  # fmt: skip


def test_text_that_is_no_text_still_becomes_bytes():
    as_json({"text": "half a character: \ud83d"}).encode()
