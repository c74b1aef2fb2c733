"""A tool's class: what is derived from it, and which mistakes are refused when it is loaded, before it can run."""

from __future__ import annotations

import types
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gate.catalogue import ParamFacts, ParamKind, Risk
from tools.arguments import Phrase, ThingName
from tools.spec import Ask, SpecError, ToolSpec, is_tool

ASK = Ask("Which one?", "the one meant")


class Kettle(ToolSpec, name="boil_kettle", description="Boil the kettle.", risk=Risk.LOW, time_limit_s=3):
    kettle: Annotated[ThingName, ASK]
    mode: Annotated[Literal["tea", "coffee"] | None, ASK] = None
    litres: Annotated[float, Field(gt=0, le=2), ASK] = 1.0
    cups: Annotated[int | None, Field(ge=1), ASK] = None
    keep_warm: Annotated[bool, ASK] = False


def test_facts_follow_from_the_fields_so_a_tool_is_described_in_one_place() -> None:
    assert Kettle.facts.name == "boil_kettle"
    assert Kettle.facts.risk is Risk.LOW
    assert Kettle.time_limit_s == 3.0
    assert Kettle.facts.params == (
        ParamFacts("kettle", ParamKind.TEXT, True, "Which one?", (), "the one meant"),
        ParamFacts("mode", ParamKind.CHOICE, False, "Which one?", ("tea", "coffee"), "the one meant"),
        ParamFacts("litres", ParamKind.NUMBER, False, "Which one?", (), "the one meant"),
        ParamFacts("cups", ParamKind.INTEGER, False, "Which one?", (), "the one meant"),
        ParamFacts("keep_warm", ParamKind.BOOLEAN, False, "Which one?", (), "the one meant"),
    )


def test_a_single_choice_is_a_choice() -> None:
    class Pause(ToolSpec, name="pause", description="Pause.", risk=Risk.LOW):
        what: Annotated[Literal["music"], ASK]

    assert Pause.facts.params[0].choices == ("music",)


def test_a_tool_without_parameters_has_a_summary() -> None:
    class Stop(ToolSpec, name="stop_all", description="Stop.", risk=Risk.LOW):
        pass

    assert Stop.facts.params == ()
    assert Stop().summary() == "Stop all"
    assert Stop.time_limit_s == 10.0


def test_summary_and_arguments_hold_defaults_but_not_absent_options() -> None:
    kettle = Kettle(kettle="the blue one")
    assert kettle.arguments() == {"kettle": "the blue one", "litres": 1.0, "keep_warm": False}
    assert kettle.summary() == "Boil kettle: kettle the blue one, litres 1.0, keep_warm False"


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("keep_warm", "false"),
        ("keep_warm", "off"),
        ("keep_warm", 0),
        ("keep_warm", 1),
        ("cups", "22"),
        ("cups", 22.7),
        ("cups", 2.0),
        ("cups", True),
        ("cups", -5),
        ("litres", "1"),
        ("litres", True),
        ("litres", float("nan")),
        ("litres", float("inf")),
        ("litres", 1e309),
        ("litres", 10**400),
        ("litres", -5),
        ("mode", "Tea"),
        ("mode", "tea "),
        ("mode", None),
        ("cups", None),
        ("kettle", None),
        ("kettle", 5),
        ("kettle", ["a"]),
        ("kettle", {"a": 1}),
        ("kettle", b"blue"),
        ("kettle", "\ud800"),
        ("kettle", "x" * 10_240),
        ("colour", "red"),
    ],
)
def test_nothing_is_coerced_so_false_as_text_is_never_true(param: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Kettle.model_validate({"kettle": "blue", param: value})
    assert [error["loc"] for error in caught.value.errors()] == [(param,)]


def test_a_whole_number_is_a_number_but_a_number_is_not_whole() -> None:
    assert Kettle.model_validate({"kettle": "blue", "litres": 1}).litres == 1.0


def test_hidden_characters_are_refused_in_bare_strings_too() -> None:
    class Note(ToolSpec, name="note", description="Note.", risk=Risk.LOW):
        text: Annotated[str, Field(max_length=100), ASK]

    assert Note(text="any {braces} here").text == "any {braces} here"
    with pytest.raises(ValidationError, match=r"U\+202E"):
        Note(text="abc\u202e")


def test_a_validated_call_cannot_be_changed_afterwards() -> None:
    kettle = Kettle(kettle="blue")
    with pytest.raises(ValidationError, match="frozen"):
        kettle.kettle = "red"


def test_a_base_without_name_is_no_tool_and_its_fields_are_inherited() -> None:
    class Placed(ToolSpec):
        place: Annotated[Phrase, ASK]

    class Visit(Placed, name="visit", description="Visit.", risk=Risk.LOW):
        pass

    assert not is_tool(Placed)
    assert not is_tool(ToolSpec)
    assert not is_tool(BaseModel)
    assert not is_tool("visit")
    assert is_tool(Visit)
    assert [param.name for param in Visit.facts.params] == ["place"]


def define(annotation: Any, default: object = ..., param: str = "value", **kwargs: Any) -> type[ToolSpec]:
    """A tool with one parameter of ``annotation``."""
    body: dict[str, object] = {"__annotations__": {param: annotation}, "__module__": __name__}
    if default is not ...:
        body[param] = default
    arguments: dict[str, object] = {"name": "made", "description": "Made.", "risk": Risk.LOW, **kwargs}
    return types.new_class("Made", (ToolSpec,), arguments, lambda namespace: namespace.update(body))


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Phrase, "needs one Ask"),
        (Annotated[Phrase, ASK, ASK], "needs one Ask"),
        (Annotated[Phrase, Ask(" ", "x")], "needs one Ask"),
        (Annotated[Phrase, Ask("What?", "")], "needs one Ask"),
        (Annotated[str, ASK], "length limit"),
        (Annotated[str, Field(max_length=10_000), ASK], "length limit"),
        (Annotated[list[str], ASK], "use str, int, float, bool or a Literal"),
        (Annotated[dict[str, str], ASK], "use str, int, float, bool or a Literal"),
        (Annotated[int | Phrase, ASK], "use str, int, float, bool or a Literal"),
        (Annotated[Colour, ASK], "use str, int, float, bool or a Literal"),
        (Annotated[Any, ASK], "use str, int, float, bool or a Literal"),
        (Annotated[Literal["a", 1], ASK], "use str, int, float, bool or a Literal"),
        (Annotated[Literal[1, 2], ASK], "choices must be strings"),
        (Annotated[type, ASK], "JSON cannot carry"),
        (Annotated[None, ASK], "use str, int, float, bool or a Literal"),
        (Annotated[int, Field(strict=False), ASK], "converts values"),
        (Annotated[bool, Field(strict=False), ASK], "converts values"),
        (Annotated[float, Field(strict=False), ASK], "converts values"),
        (Annotated[Phrase, Field(alias="other"), ASK], "no alias"),
    ],
)
def test_a_parameter_that_the_gate_could_not_check_is_refused_at_load(annotation: Any, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        define(annotation)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[int, Field(ge=1, le=20), ASK], 50),
        (Annotated[int, ASK], "1"),
        (Annotated[Phrase, ASK], "; rm"),
        (Annotated[Literal["a", "b"], ASK], "c"),
        (Annotated[float, ASK], float("nan")),
        (Annotated[float, ASK], object()),
        (Annotated[float, ASK], Field(default_factory=float)),
    ],
)
def test_a_default_that_breaks_its_own_rules_is_refused_at_load(annotation: Any, default: object) -> None:
    with pytest.raises(SpecError, match=r"default (does not satisfy|must be a plain value)"):
        define(annotation, default)


@pytest.mark.parametrize("name", ["copy", "summary", "arguments"])
def test_a_parameter_named_like_the_machinery_is_refused(name: str) -> None:
    with (
        pytest.warns(UserWarning, match="shadows an attribute"),
        pytest.raises(SpecError, match="taken by ToolSpec"),
    ):
        define(Annotated[Phrase, ASK], param=name)


@pytest.mark.parametrize("name", ["Value", "válue", "x" * 49])
def test_a_parameter_has_a_plain_ascii_name(name: str) -> None:
    with pytest.raises(SpecError, match="lower-case ASCII"):
        define(Annotated[Phrase, ASK], param=name)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "Made"}, "lower-case ASCII"),
        ({"name": "made "}, "lower-case ASCII"),
        ({"name": "m\u0430de"}, "lower-case ASCII"),
        ({"name": "__class__"}, "lower-case ASCII"),
        ({"name": "os.system"}, "lower-case ASCII"),
        ({"name": None}, "needs name, description and risk"),
        ({"description": ""}, "needs name, description and risk"),
        ({"risk": 3}, "needs name, description and risk"),
        ({"risk": None}, "needs name, description and risk"),
        ({"time_limit_s": 0}, "positive number of seconds"),
        ({"time_limit_s": float("inf")}, "positive number of seconds"),
        ({"time_limit_s": "10"}, "positive number of seconds"),
    ],
)
def test_a_tool_without_a_proper_name_risk_or_limit_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        define(Annotated[Phrase, ASK], **arguments)


@pytest.mark.parametrize(
    "loosened", [{"strict": False}, {"extra": "allow"}, {"frozen": False}, {"allow_inf_nan": True}]
)
def test_a_tool_cannot_loosen_the_strictness_of_the_base(loosened: ConfigDict) -> None:
    with pytest.raises(SpecError, match="model_config must leave"):

        class Loose(ToolSpec, name="loose", description="Loose.", risk=Risk.LOW):
            model_config = loosened

            value: Annotated[Phrase, ASK]


def test_a_validator_of_the_users_own_is_kept() -> None:
    def odd(value: int) -> int:
        if value % 2 == 0:
            raise ValueError("is even")
        return value

    tool = define(Annotated[int, AfterValidator(odd), ASK])
    with pytest.raises(ValidationError, match="is even"):
        tool.model_validate({"value": 2})
