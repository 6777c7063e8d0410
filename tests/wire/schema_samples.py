"""JSON values made from a JSON schema, by fixed choices or by hypothesis. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from hypothesis import strategies as st

Schema = dict[str, Any]

# Values whose rules a schema cannot tell.
FIXED = {
    "nodeToRunner": {"x": "x"},
    "sinkMultiaddr": {
        "address": "/ip4/192.168.1.6/tcp/52415",
        "address_type": "ip4",
        "ip_address": "192.168.1.6",
        "port": 52415,
    },
}


class Choices(Protocol):
    def include_optional(self) -> bool: ...
    def branch(self, branches: list[Schema]) -> Schema: ...
    def member(self, values: list[Any]) -> Any: ...
    def items(self) -> int: ...
    def map_keys(self) -> list[str]: ...
    def text(self) -> str: ...
    def moment(self) -> str: ...
    def integer(self, low: int | None, high: int | None) -> int: ...
    def number(self, low: float | None, high: float | None) -> float: ...
    def boolean(self) -> bool: ...


@dataclass(frozen=True)
class Plain:
    """`turn` walks through the branches of unions and the members of enums."""

    optional: bool = True
    null: bool = False
    turn: int = 0

    def include_optional(self) -> bool:
        return self.optional

    def branch(self, branches: list[Schema]) -> Schema:
        nulls = [b for b in branches if b.get("type") == "null"]
        others = [b for b in branches if b.get("type") != "null"]
        return nulls[0] if nulls and (self.null or not others) else others[self.turn % len(others)]

    def member(self, values: list[Any]) -> Any:
        return values[self.turn % len(values)]

    def items(self) -> int:
        return 0 if self.null or not self.optional else 1

    def map_keys(self) -> list[str]:
        return ["x"]

    def text(self) -> str:
        return "x"

    def moment(self) -> str:
        return "2026-01-02T03:04:05.678901Z"

    def integer(self, low: int | None, high: int | None) -> int:
        return low if low is not None else 3 + self.turn

    def number(self, low: float | None, high: float | None) -> float:
        # A whole number without a fraction is a legal float in JSON.
        return (low if low is not None else 2) + (0.5 if self.turn % 2 else 0)

    def boolean(self) -> bool:
        return self.turn % 2 == 0


@dataclass(frozen=True)
class Drawn:
    draw: Callable[[st.SearchStrategy[Any]], Any]

    def include_optional(self) -> bool:
        return bool(self.draw(st.booleans()))

    def branch(self, branches: list[Schema]) -> Schema:
        return branches[self.draw(st.integers(0, len(branches) - 1))]

    def member(self, values: list[Any]) -> Any:
        return self.draw(st.sampled_from(values))

    def items(self) -> int:
        return int(self.draw(st.integers(0, 2)))

    def map_keys(self) -> list[str]:
        return ["x", "y"][: self.draw(st.integers(1, 2))]

    def text(self) -> str:
        return str(self.draw(st.text(max_size=8)))

    def moment(self) -> str:
        return f"{self.draw(st.datetimes()).isoformat(timespec='microseconds')}Z"

    def integer(self, low: int | None, high: int | None) -> int:
        return int(self.draw(st.integers(low, high)))

    def number(self, low: float | None, high: float | None) -> float:
        return float(self.draw(st.floats(low, high, allow_nan=False, allow_infinity=False)))

    def boolean(self) -> bool:
        return bool(self.draw(st.booleans()))


def plain_choices() -> Iterator[tuple[str, Plain]]:
    yield "required only", Plain(optional=False)
    yield "nulls", Plain(null=True)
    for turn in range(6):
        yield f"full, turn {turn}", Plain(turn=turn)


@dataclass(frozen=True)
class Sampler:
    root: Schema
    choices: Choices
    inside: list[str] = field(default_factory=list)

    def sample(self, schema: Schema) -> Any:
        if "$ref" in schema:
            return self._referenced(schema["$ref"])
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self.sample(self.choices.branch(schema[union]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.choices.member(schema["enum"])
        return self._typed(schema)

    def _referenced(self, ref: str) -> Any:
        target = self.root
        for part in ref.removeprefix("#/").split("/"):
            target = target[part]
        self.inside.append(ref)
        try:
            return self.sample(target)
        finally:
            self.inside.pop()

    def _typed(self, schema: Schema) -> Any:
        choices = self.choices
        match schema.get("type"):
            case "null":
                made: Any = None
            case "boolean":
                made = choices.boolean()
            case "integer":
                made = choices.integer(*_bounds(schema))
            case "number":
                made = choices.number(schema.get("minimum"), schema.get("maximum"))
            case "string":
                made = choices.moment() if schema.get("format") == "date-time" else choices.text()
            case "array":
                made = [self.sample(schema["items"]) for _ in range(choices.items())]
            case "object":
                made = self._mapping(schema)
            case None:
                made = choices.text()
            case other:
                raise AssertionError(f"no sample for type {other}")
        return made

    def _mapping(self, schema: Schema) -> dict[str, Any]:
        required = schema.get("required", [])
        made = {}
        for name, part in schema.get("properties", {}).items():
            if name in required or self.choices.include_optional():
                made[name] = FIXED[name] if name in FIXED else self.sample(part)
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values.get("$ref") not in self.inside:
            made |= {key: self.sample(values) for key in self.choices.map_keys()}
        return made


def _bounds(schema: Schema) -> tuple[int | None, int | None]:
    low = schema.get("minimum")
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + 1
    high = schema.get("maximum")
    return (None if low is None else int(low)), (None if high is None else int(high))
