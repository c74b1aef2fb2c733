"""``ToolSpec``: a tool is one strict, frozen pydantic model, from which all else about it is derived.

A whole tool, in one file::

    class OpenGarage(ToolSpec, name="open_garage", description="Open the garage.", risk=Risk.HIGH):
        side: Annotated[Literal["left", "right"], Ask("Which side?", "the side to open")]

        async def perform(self, *, key: str) -> str:  # optional; without it the effect is only recorded
            ...

Strict means: no extra field, no coercion ("22" is no 22, "false" is no boolean), no null, no NaN, bounded text. A
subclass cannot loosen this; a tool that tries is refused when its file is loaded, not when it is called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticCustomError

from gate.catalogue import ParamFacts, ParamKind, Risk, ToolFacts
from tools.arguments import without_hidden_characters

MAX_TEXT_CHARS = 4_000
"""The longest text that any parameter may allow."""

_NAME_RE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_KINDS = {
    "string": ParamKind.TEXT,
    "number": ParamKind.NUMBER,
    "integer": ParamKind.INTEGER,
    "boolean": ParamKind.BOOLEAN,
}
_COERCIBLE: dict[ParamKind, tuple[object, ...]] = {
    ParamKind.TEXT: (1, True),
    ParamKind.CHOICE: (1, True),
    ParamKind.NUMBER: ("1", True),
    ParamKind.INTEGER: ("1", 1.0, True),
    ParamKind.BOOLEAN: ("true", 1),
}
"""For each kind, values of other types that a lenient parameter would convert."""

PARAM_MISSING = "tool_param_missing"
"""The pydantic error type of ``param_missing``."""
PARAM_REFUSED = "tool_param_refused"
"""The pydantic error type of ``param_refused``."""


class SpecError(Exception):
    """A tool's class is not a valid tool. The message names the class, the parameter and the cure."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a parameter is, in words for a person and for a model; stands in the parameter's ``Annotated``.

    Attributes:
        question: what is heard after "Pardon?" when it is missing ("Who should I text?").
        description: one line for the policy's prompt ("the contact to text").
    """

    question: str
    description: str


def param_missing(param: str, why: str) -> PydanticCustomError:
    """The error that a model validator raises when ``param`` is needed because of another one."""
    return PydanticCustomError(PARAM_MISSING, "{why}", {"param": param, "why": why})


def param_refused(param: str, why: str) -> PydanticCustomError:
    """The error that a model validator raises when ``param`` does not go with another one."""
    return PydanticCustomError(PARAM_REFUSED, "{why}", {"param": param, "why": why})


class ToolSpec(BaseModel):
    """Base of every tool. An instance is one validated call; the class is the tool.

    Subclass it with ``name``, ``description`` and ``risk`` to define a tool; a subclass without them is an abstract
    base for others. Each parameter is a field of type ``str`` (length-limited, best one of ``tools.arguments``),
    ``int``, ``float``, ``bool`` or a ``Literal`` of strings, annotated with an ``Ask``; an optional one has a default.

    Attributes:
        facts: what the gate and the policies know of the tool.
        time_limit_s: how long its effect may take before its outcome counts as unknown.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    facts: ClassVar[ToolFacts]
    time_limit_s: ClassVar[float]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        description: str | None = None,
        risk: Risk | None = None,
        time_limit_s: float = 10.0,
    ) -> None:
        """Declares the class arguments of a tool; ``__pydantic_init_subclass__`` reads them once the fields exist."""
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__()
        name, description, risk = (kwargs.get(key) for key in ("name", "description", "risk"))
        time_limit_s = kwargs.get("time_limit_s", 10.0)
        for setting in ("strict", "frozen", "extra", "allow_inf_nan"):
            if cls.model_config.get(setting) != ToolSpec.model_config.get(setting):
                raise SpecError(f"{cls.__name__}: model_config must leave {setting!r} as ToolSpec has it")
        if name is None and description is None and risk is None:
            return
        if not (isinstance(risk, Risk) and isinstance(name, str) and isinstance(description, str) and description):
            raise SpecError(f"{cls.__name__}: a tool needs name, description and risk as class arguments")
        if not (isinstance(time_limit_s, int | float) and math.isfinite(time_limit_s) and time_limit_s > 0):
            raise SpecError(f"{cls.__name__}: time_limit_s must be a positive number of seconds, not {time_limit_s!r}")
        cls.time_limit_s = float(time_limit_s)
        cls.facts = _facts_of(cls, name, description, risk)

    @field_validator("*", mode="before")
    @classmethod
    def _no_null_and_nothing_hidden(cls, value: object) -> object:
        if value is None:
            raise ValueError("null is no value: leave the parameter out")
        return without_hidden_characters(value) if isinstance(value, str) else value

    def arguments(self) -> dict[str, Any]:
        """The arguments that take effect, defaults included, absent optional ones left out."""
        return self.model_dump(exclude_none=True)

    def summary(self) -> str:
        """What the call does, as a short imperative sentence without a full stop; shown, spoken and recorded."""
        words = ", ".join(f"{name} {value}" for name, value in self.arguments().items())
        sentence = self.facts.name.replace("_", " ").capitalize()
        return f"{sentence}: {words}" if words else sentence


def is_tool(candidate: object) -> bool:
    """Whether ``candidate`` is a class that defines a tool, and not an abstract base."""
    return isinstance(candidate, type) and issubclass(candidate, ToolSpec) and "facts" in vars(candidate)


def _facts_of(cls: type[ToolSpec], name: str, description: str, risk: Risk) -> ToolFacts:
    if not _NAME_RE.fullmatch(name):
        raise SpecError(f"{cls.__name__}: name {name!r} must be lower-case ASCII letters, digits and underscores")
    for param in cls.model_fields:
        if not _NAME_RE.fullmatch(param):
            raise SpecError(f"{cls.__name__}.{param}: use lower-case ASCII letters, digits and underscores")
        if hasattr(ToolSpec, param):
            raise SpecError(f"{cls.__name__}.{param}: the name is taken by ToolSpec itself; choose another")
        _check_default(cls, param)
    try:
        schema = cls.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise SpecError(f"{cls.__name__}: a parameter has a type that JSON cannot carry: {error}") from error
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    required = frozenset(schema.get("required", ()))
    params = tuple(_param_of(cls, param, properties[param], param in required) for param in cls.model_fields)
    return ToolFacts(name, description, risk, params)


def _param_of(cls: type[ToolSpec], name: str, schema: Mapping[str, Any], required: bool) -> ParamFacts:
    where = f"{cls.__name__}.{name}"
    asks = [item for item in cls.model_fields[name].metadata if isinstance(item, Ask)]
    if len(asks) != 1 or not asks[0].question.strip() or not asks[0].description.strip():
        raise SpecError(f"{where}: needs one Ask(question, description) in its Annotated")
    shapes = [shape for shape in schema.get("anyOf", [schema]) if shape.get("type") != "null"]
    shape = shapes[0] if len(shapes) == 1 else {}
    kind = _KINDS.get(str(shape.get("type")))
    if kind is None:
        raise SpecError(f"{where}: use str, int, float, bool or a Literal of strings, alone or with None")
    choices: list[object] = shape.get("enum") or ([shape["const"]] if "const" in shape else [])
    if choices:
        if not all(isinstance(choice, str) for choice in choices):
            raise SpecError(f"{where}: the choices must be strings")
        kind = ParamKind.CHOICE
    elif kind is ParamKind.TEXT and not 0 < int(shape.get("maxLength", MAX_TEXT_CHARS + 1)) <= MAX_TEXT_CHARS:
        raise SpecError(f"{where}: text needs a length limit of at most {MAX_TEXT_CHARS}; see tools.arguments")
    if any(_accepts(cls, name, value) for value in _COERCIBLE[kind]):
        raise SpecError(f"{where}: converts values of another type; leave it as strict as ToolSpec is")
    return ParamFacts(name, kind, required, asks[0].question, tuple(map(str, choices)), asks[0].description)


def _check_default(cls: type[ToolSpec], name: str) -> None:
    field = cls.model_fields[name]
    if field.alias is not None or field.validation_alias is not None:
        raise SpecError(f"{cls.__name__}.{name}: a parameter has one name, so no alias")
    if field.default_factory is not None:
        raise SpecError(f"{cls.__name__}.{name}: the default must be a plain value, not a factory")
    default = field.default
    if field.is_required() or default is None:
        return
    if not isinstance(default, str | int | float) or not _accepts(cls, name, default):
        raise SpecError(f"{cls.__name__}.{name}: the default does not satisfy the parameter's own rules")


def _accepts(cls: type[ToolSpec], name: str, value: object) -> bool:
    """Whether one parameter takes ``value``, whatever the call lacks beside it."""
    try:
        cls.model_validate({name: value})
    except ValidationError as error:
        return all(item["loc"][:1] != (name,) for item in error.errors())
    return True
