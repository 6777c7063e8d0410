"""Model families, tagged unions, byte counts and timestamps that all wire models share.

Rule for this room: JSON-shaped Python data validates exactly like JSON text. So closed sets are
`Literal`, sequences are lists, and nothing needs a Python-only type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class CamelModel(BaseModel):
    """Strict family: camelCase out, either spelling in, unknown keys and coercion refused.

    `model_dump_json(by_alias=False)` gives snake_case, as `/events` and SSE comments need.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )


class SnakeModel(BaseModel):
    """Lenient family: snake_case only, unknown keys ignored, the usual coercion."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class TaggedModel(CamelModel):
    """One variant of a union, written `{"ClassName": {fields}}`; the tag is optional on input."""

    @model_validator(mode="before")
    @classmethod
    def _remove_tag(cls, data: Any) -> Any:
        if isinstance(data, dict) and len(data) == 1 and cls.__name__ in data:
            return data[cls.__name__]
        return data

    @model_serializer(mode="wrap")
    def _add_tag(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        return {type(self).__name__: handler(self)}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # The serializer's return type says only "object"; without it the fields are described.
        fields_only: Any = {key: value for key, value in schema.items() if key != "serialization"}
        fields = handler.resolve_ref_schema(handler(fields_only))
        return {
            "title": cls.__name__,
            "type": "object",
            "properties": {cls.__name__: fields},
            "required": [cls.__name__],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class VariantUnion:
    """Annotation for a union of models: the tag, or else the keys, name the one variant.

    Input is then checked against that variant only, so errors never speak of the others.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.TaggedUnionSchema:
        variants: tuple[type[BaseModel], ...] = get_args(source)
        names = [variant.__name__ for variant in variants]
        shapes = {variant.__name__: _Shape.of(variant) for variant in variants}

        def name_of(value: Any) -> str | None:
            if isinstance(value, BaseModel):
                return type(value).__name__
            return _identify(value, shapes) if isinstance(value, Mapping) else None

        return core_schema.tagged_union_schema(
            choices={variant.__name__: handler.generate_schema(variant) for variant in variants},
            discriminator=name_of,
            custom_error_type="unknown_variant",
            custom_error_message="Input should be an object with one key out of: {variants}",
            custom_error_context={"variants": ", ".join(names)},
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    """The keys one variant allows and needs, in both spellings."""

    spelling: dict[str, str]
    required: frozenset[str]

    @classmethod
    def of(cls, model: type[BaseModel]) -> "_Shape":
        spelling = {name: name for name in model.model_fields}
        for name, field in model.model_fields.items():
            spelling[field.alias or name] = name
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        return cls(spelling, frozenset(required))

    def complete(self, keys: set[str]) -> bool:
        return self.required <= {self.spelling.get(key, key) for key in keys}

    def fits(self, keys: set[str]) -> bool:
        return keys <= self.spelling.keys() and self.complete(keys)


def _identify(value: Mapping[str, Any], shapes: Mapping[str, _Shape]) -> str | None:
    """Name of the variant that the tag or the keys single out; None when that is not one."""
    keys = set(value)
    if len(keys) == 1 and (tag := next(iter(keys))) in shapes:
        return tag
    fitting = [name for name, shape in shapes.items() if shape.fits(keys)]
    if not fitting:
        # One variant has all it needs and something is too much: let it say what.
        fitting = [
            name for name, shape in shapes.items() if shape.required and shape.complete(keys)
        ]
    return fitting[0] if len(fitting) == 1 else None


Shape = TypeVar("Shape", bound=BaseModel)


def narrow(answer: BaseModel, shape: type[Shape]) -> Shape:
    """The part of an answer that `shape` has keys for, at every depth.

    Our own endpoints say more than the reference's, whose shapes are closed.
    """
    return shape.model_validate(answer.model_dump(), extra="ignore")


def json_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a model as they are written in JSON."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


class Memory(CamelModel):
    """An amount of bytes."""

    in_bytes: int = 0

    @classmethod
    def of(cls, in_bytes: int) -> "Memory":
        return cls(in_bytes=in_bytes)


def format_offset(moment: datetime) -> str:
    """Timestamp text of diagnostics and traces: microseconds and `+00:00`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def format_zulu(moment: datetime) -> str:
    """Timestamp text of `/state`: microseconds and `Z`."""
    return format_offset(moment).removesuffix("+00:00") + "Z"


def _parse_moment(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("timestamp needs a time zone")
        return value.astimezone(UTC)
    return value


# A point in time, always UTC. Text in, text out; a datetime in Python.
UtcTime = Annotated[
    datetime,
    BeforeValidator(_parse_moment),
    PlainSerializer(format_zulu, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

# Low-cardinality values attached to recorder entries and trace events.
Attributes = dict[str, str | int | float | bool | list[str]]
