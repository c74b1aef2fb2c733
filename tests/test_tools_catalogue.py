"""The ten tools and the check of a call against them: each argument row of a hostile model's repertoire, refused."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import AfterValidator

from gate.catalogue import CallFault, Catalogue, ParamKind, Risk, ToolCall
from tests.support_tools import GOOD_PARAMS, good_call
from tools.arguments import Phrase
from tools.builtin import BUILTIN
from tools.catalogue import CallRefusedError, ToolCatalogue, describe
from tools.spec import Ask, SpecError, ToolSpec

TOOLS = ToolCatalogue.builtin()
TEXT_PARAMS = [(tool.name, param.name) for tool in TOOLS.all() for param in tool.params if param.kind is ParamKind.TEXT]
NUMBER_PARAMS = [("place_order", "quantity"), ("transfer_money", "amount")]
CHOICE_PARAMS = [("transfer_money", "currency"), ("control_device", "action")]

INJECTIONS = ["../../x", "; rm", "home/+/set", "#"]


def faults(call: ToolCall) -> list[tuple[CallFault, str | None]]:
    return [(problem.fault, problem.param) for problem in TOOLS.check(call)]


def test_the_ten_tools_their_risks_and_their_parameters() -> None:
    facts: Catalogue = TOOLS
    table = {
        tool.name: (tool.risk, [f"{param.name}{'' if param.required else '?'}" for param in tool.params])
        for tool in facts.all()
    }
    assert table == {
        "send_message": (Risk.MEDIUM, ["recipient", "body"]),
        "make_call": (Risk.MEDIUM, ["contact"]),
        "schedule_event": (Risk.LOW, ["title", "when"]),
        "place_order": (Risk.HIGH, ["item", "quantity?"]),
        "transfer_money": (Risk.HIGH, ["recipient", "amount", "currency?"]),
        "unlock_door": (Risk.HIGH, ["door"]),
        "control_device": (Risk.LOW, ["device", "action", "value?"]),
        "book_ride": (Risk.MEDIUM, ["destination", "pickup_time?"]),
        "delete_data": (Risk.HIGH, ["target"]),
        "share_location": (Risk.MEDIUM, ["recipient", "duration?"]),
    }


def test_every_parameter_has_a_question_that_a_person_can_answer() -> None:
    asked = {f"{tool.name}.{param.name}": param.ask for tool in TOOLS.all() for param in tool.params}
    assert asked["send_message.recipient"] == "Who should I text?"
    assert asked["transfer_money.amount"] == "How much should I send?"
    assert all(question.endswith("?") and question[0].isupper() for question in asked.values())


@pytest.mark.parametrize("tool", GOOD_PARAMS)
def test_a_natural_call_of_each_tool_is_accepted(tool: str) -> None:
    call = good_call(tool)
    assert TOOLS.check(call) == ()
    required = {param.name for param in TOOLS.find(tool).params if param.required}  # type: ignore[union-attr]
    only_required = ToolCall(tool, {name: value for name, value in call.params.items() if name in required})
    assert TOOLS.check(only_required) == ()


@pytest.mark.parametrize(
    ("tool", "changes", "summary"),
    [
        ("send_message", {}, "Text Ben: I'm late, see you at 7:30 p.m."),
        ("make_call", {}, "Call Mom"),
        ("schedule_event", {}, "Schedule Dentist, tomorrow at noon"),
        ("place_order", {}, "Order oat milk, quantity 2"),
        ("place_order", {"quantity": 1}, "Order oat milk"),
        ("transfer_money", {}, "Send Ben 60 dollars"),
        ("transfer_money", {"amount": 1250.5, "currency": "euros"}, "Send Ben 1,250.50 euros"),
        ("unlock_door", {}, "Unlock the front door"),
        ("control_device", {}, "Turn on kitchen light"),
        ("control_device", {"value": "50%"}, "Turn on kitchen light, 50%"),
        ("control_device", {"action": "set", "value": "blue"}, "Set kitchen light to blue"),
        ("control_device", {"action": "increase", "value": "ten percent"}, "Increase kitchen light by ten percent"),
        ("control_device", {"action": "decrease"}, "Decrease kitchen light"),
        ("book_ride", {}, "Book a ride to the airport, at six"),
        ("delete_data", {}, "Delete photos from last summer"),
        ("share_location", {}, "Share your location with Ana, for an hour"),
    ],
)
def test_the_summary_says_exactly_what_would_be_done(tool: str, changes: dict[str, object], summary: str) -> None:
    assert TOOLS.parse(good_call(tool, **changes)).summary() == summary
    assert TOOLS.summary(good_call(tool, **changes)) == summary


def test_optional_arguments_left_out_read_naturally() -> None:
    assert TOOLS.parse(ToolCall("transfer_money", {"recipient": "Ben", "amount": 60})).summary() == "Send Ben 60"
    assert TOOLS.parse(ToolCall("book_ride", {"destination": "home"})).summary() == "Book a ride to home, now"
    assert TOOLS.parse(ToolCall("share_location", {"recipient": "Ana"})).summary() == "Share your location with Ana"


@pytest.mark.parametrize(("tool", "param"), TEXT_PARAMS)
@pytest.mark.parametrize("value", [*INJECTIONS, "x" * 10_240, "", "a\x07b", "Ben\u202e", "[?]", "\ud800"])
def test_injections_control_characters_and_ten_kilobytes_are_refused(tool: str, param: str, value: str) -> None:
    assert faults(
        good_call(tool, action="set", **{param: value}) if param == "value" else good_call(tool, **{param: value})
    ) == [(CallFault.BAD_VALUE, param)]


@pytest.mark.parametrize(("tool", "param"), TEXT_PARAMS)
@pytest.mark.parametrize("value", [0, 1, 22.7, True, None, ["Ben"], {"name": "Ben"}])
def test_text_takes_only_text(tool: str, param: str, value: object) -> None:
    assert (CallFault.BAD_VALUE, param) in faults(good_call(tool, **{param: value}))


@pytest.mark.parametrize(("tool", "param"), NUMBER_PARAMS)
@pytest.mark.parametrize(
    "value",
    ["false", "off", "22", "sixty", True, False, None, -5, 0, 1e309, float("nan"), -1e309, 10**400, [1], "x" * 10_240],
)
def test_a_number_is_a_number_in_range_and_never_a_word_for_one(tool: str, param: str, value: object) -> None:
    assert faults(good_call(tool, **{param: value})) == [(CallFault.BAD_VALUE, param)]


@pytest.mark.parametrize(
    ("tool", "param", "value"),
    [
        ("place_order", "quantity", 22),
        ("place_order", "quantity", 21),
        ("place_order", "quantity", 22.7),
        ("place_order", "quantity", 2.0),
        ("transfer_money", "amount", 10_000.01),
        ("transfer_money", "amount", 0.001),
        ("transfer_money", "amount", 60.005),
    ],
)
def test_quantities_are_whole_and_amounts_are_payable(tool: str, param: str, value: object) -> None:
    assert faults(good_call(tool, **{param: value})) == [(CallFault.BAD_VALUE, param)]


@pytest.mark.parametrize("amount", [60, 60.0, 60.1, 0.01, 0.1, 1250.55, 10_000])
def test_ordinary_amounts_are_accepted(amount: float) -> None:
    assert faults(good_call("transfer_money", amount=amount)) == []


@pytest.mark.parametrize(("tool", "param"), CHOICE_PARAMS)
@pytest.mark.parametrize(
    "value", ["false", "Dollars", "turn on", "turn_on ", "TURN_ON", 0, True, None, "", "x" * 10_240]
)
def test_a_choice_is_one_of_its_words_exactly(tool: str, param: str, value: object) -> None:
    assert faults(good_call(tool, **{param: value})) == [(CallFault.BAD_VALUE, param)]


@pytest.mark.parametrize("tool", GOOD_PARAMS)
def test_a_missing_parameter_is_named_so_that_it_can_be_asked_for(tool: str) -> None:
    facts = TOOLS.find(tool)
    assert facts is not None
    for param in facts.params:
        call = ToolCall(tool, {name: value for name, value in GOOD_PARAMS[tool].items() if name != param.name})
        assert faults(call) == ([(CallFault.MISSING_PARAM, param.name)] if param.required else [])


@pytest.mark.parametrize("tool", GOOD_PARAMS)
@pytest.mark.parametrize("extra", ["urgent", "__class__", "Recipient", "model_config"])
def test_an_extra_field_is_refused_not_dropped(tool: str, extra: str) -> None:
    assert faults(good_call(tool, **{extra: "x"})) == [(CallFault.EXTRA_PARAM, extra)]


@pytest.mark.parametrize(
    "name",
    [
        "Send_Message",
        "send_message ",
        " send_message",
        "send-message",
        "s\u0435nd_message",
        "\uff53end_message",
        "__class__",
        "os.system",
        "SendMessage",
        "",
        "x" * 10_240,
        "send_message\x00",
        None,
        7,
        ["send_message"],
    ],
)
def test_a_tool_that_does_not_exist_is_refused_and_the_log_names_those_that_do(name: object) -> None:
    (problem,) = TOOLS.check(ToolCall(name, {"recipient": "Ben", "body": "hi"}))  # type: ignore[arg-type]
    assert problem.fault is CallFault.UNKNOWN_TOOL
    assert "send_message, make_call" in problem.detail
    assert problem.detail.isascii() or "…" in problem.detail
    assert len(problem.detail) < 400
    if isinstance(name, str):
        assert TOOLS.find(name) is None


@pytest.mark.parametrize("params", ['{"door": "front"}', None, ["front"], 5])
def test_arguments_that_are_no_object_are_refused_and_never_read_twice(params: object) -> None:
    assert faults(ToolCall("unlock_door", params)) == [(CallFault.BAD_VALUE, None)]  # type: ignore[arg-type]


def test_problems_come_in_call_order_so_the_first_question_is_the_first_gap() -> None:
    call = ToolCall("transfer_money", {"amount": "sixty", "note": "x"})
    assert faults(call) == [
        (CallFault.MISSING_PARAM, "recipient"),
        (CallFault.BAD_VALUE, "amount"),
        (CallFault.EXTRA_PARAM, "note"),
    ]
    assert [problem.detail for problem in TOOLS.check(call)] == [
        "transfer_money.recipient: field required",
        "transfer_money.amount: input should be a valid number",
        "transfer_money.'note': extra inputs are not permitted",
    ]


def test_a_refused_value_is_not_repeated_in_the_log() -> None:
    problems = TOOLS.check(good_call(recipient="hunter2;", body="x" * 10_240))
    assert problems
    assert not any("hunter2" in problem.detail or "xxx" in problem.detail for problem in problems)
    assert all(len(problem.detail) < 300 for problem in problems)


def test_setting_a_device_without_a_value_asks_for_the_value() -> None:
    assert faults(good_call("control_device", action="set")) == [(CallFault.MISSING_PARAM, "value")]


@pytest.mark.parametrize("action", ["turn_off", "lock"])
def test_turn_it_off_in_ten_minutes_does_not_turn_it_off_now(action: str) -> None:
    call = good_call("control_device", action=action, value="in ten minutes")
    assert faults(call) == [(CallFault.BAD_VALUE, "value")]


@pytest.mark.parametrize(
    "device",
    [
        "the front door",
        "Front Door",
        "garage",
        "garage door 2",
        "side gate",
        "smart lock",
        "lock on the front door",
        "deadbolt",
        "door of the garage",
        "security alarm",
        "alarm system",
        "the safe",
    ],
)
@pytest.mark.parametrize("action", ["open", "turn_off", "turn_on", "decrease", "set"])
def test_a_harmless_tool_is_no_way_round_the_evidence_that_a_door_needs(device: str, action: str) -> None:
    value = {"value": "open"} if action == "set" else {}
    call = ToolCall("control_device", {"device": device, "action": action, **value})
    assert faults(call) == [(CallFault.BAD_VALUE, "device")]


@pytest.mark.parametrize("device", ["the front door", "garage door", "gate"])
@pytest.mark.parametrize("action", ["close", "lock"])
def test_a_door_may_be_closed_or_locked_by_the_harmless_tool(device: str, action: str) -> None:
    assert faults(ToolCall("control_device", {"device": device, "action": action})) == []


@pytest.mark.parametrize(
    "device", ["garage light", "light over the front door", "door bell", "alarm", "safe room lamp"]
)
def test_a_light_by_a_door_is_a_light(device: str) -> None:
    assert faults(ToolCall("control_device", {"device": device, "action": "turn_off"})) == []


def test_a_validator_with_a_bug_refuses_the_call_instead_of_raising() -> None:
    def broken(value: str) -> str:
        if value != "sound":
            raise KeyError("bug")
        return value

    class Broken(ToolSpec, name="broken", description="Broken.", risk=Risk.LOW):
        value: Annotated[Phrase, AfterValidator(broken), Ask("Which?", "which")]

    (problem,) = ToolCatalogue([Broken]).check(ToolCall("broken", {"value": "x"}))
    assert problem.fault is CallFault.BAD_VALUE
    assert problem.detail == "broken: its check failed with KeyError"


def test_parse_raises_with_every_problem() -> None:
    with pytest.raises(CallRefusedError, match=r"recipient: field required; send_message\.body") as caught:
        TOOLS.parse(ToolCall("send_message", {}))
    assert len(caught.value.problems) == 2


def test_two_tools_of_one_name_are_refused_and_both_named() -> None:
    class Text(ToolSpec, name="send_message", description="Mine.", risk=Risk.LOW):
        pass

    with pytest.raises(SpecError, match=r"send_message.*SendMessage and .*Text"):
        ToolCatalogue.builtin([Text])


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(SpecError, match="is no tool"):
        ToolCatalogue([ToolSpec])


def test_allow_and_deny_lists_keep_the_order_and_refuse_unknown_names() -> None:
    assert [tool.name for tool in TOOLS.only(["unlock_door", "send_message"]).all()] == ["send_message", "unlock_door"]
    assert len(TOOLS.without(["unlock_door"]).all()) == len(BUILTIN) - 1
    assert TOOLS.without(["unlock_door"]).find("unlock_door") is None
    for cut in (TOOLS.only, TOOLS.without):
        with pytest.raises(SpecError, match="no tool 'unlock_dor'; there are send_message"):
            cut(["unlock_dor"])
    empty = TOOLS.only([])
    assert empty.all() == ()
    assert "there are none" in empty.check(good_call())[0].detail


def test_the_listing_is_json_with_risk_and_questions() -> None:
    rows = json.loads(json.dumps(describe(TOOLS)))
    assert [row["name"] for row in rows] == [tool.facts.name for tool in BUILTIN]
    assert rows[4]["risk"] == "high"
    assert rows[4]["params"][1] == {
        "name": "amount",
        "kind": "number",
        "required": True,
        "choices": [],
        "description": "the amount as a number",
        "ask": "How much should I send?",
    }
