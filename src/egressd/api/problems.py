"""The faults of a request, as sentences that name the field and say what it takes.

What a field takes is read from the OpenAPI document, so that an error text never says
anything else than the documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_SHOWN_NAME = 64
"""Characters of an unknown field's name that are shown."""


class Problems:
    """Words the faults that pydantic found, with the schemas of one OpenAPI document."""

    def __init__(self, document: Schema) -> None:
        self._schemas: Schema = document["components"]["schemas"]
        self._operations: Schema = document["paths"]

    def sentences(self, method: str, path: str, faults: Iterable[Mapping[str, Any]]) -> list[str]:
        """A sentence for each of `faults` (pydantic's ``errors()``) of a request to `path`."""
        operation = self._operations[path][method.lower()]
        told = dict.fromkeys(self._sentence(operation, fault) for fault in faults)
        return list(told)

    def _sentence(self, operation: Schema, fault: Mapping[str, Any]) -> str:
        place, *steps = fault["loc"]
        schema, holder = self._schema_at(_root(operation, place), steps)
        field = _name(steps) or place
        match fault["type"]:
            case "extra_forbidden":
                fields = ", ".join(holder.get("properties", {}))
                return f"{field} is not a field here; the fields are {fields}"
            case "missing":
                return f"{field} is missing: it must be {self.takes(schema)}"
            case "value_error":
                return f"{field} {fault['ctx']['error']}"
            case _:
                return f"{field} must be {self.takes(schema)}"

    def _schema_at(self, schema: Schema, steps: Sequence[Any]) -> tuple[Schema, Schema]:
        """The schema `steps` down, and the one that holds it."""
        holder = schema = self.resolved(schema)
        for step in steps:
            holder = schema
            inner = schema.get("items") if isinstance(step, int) else None
            schema = self.resolved(inner or schema.get("properties", {}).get(step, {}))
        return schema, holder

    def resolved(self, schema: Schema) -> Schema:
        """`schema`, or what it refers to."""
        if "$ref" in schema:
            return self.resolved(self._schemas[schema["$ref"].rpartition("/")[2]])
        return schema

    def takes(self, schema: Schema) -> str:
        """What a field of that schema takes, in words: ``a whole number from 1 to 65535``."""
        schema = self.resolved(schema)
        if "x-takes" in schema:
            return str(schema["x-takes"])
        if "anyOf" in schema:
            return " or ".join(self.takes(choice) for choice in schema["anyOf"])
        if "enum" in schema:
            return "one of " + ", ".join(value or '""' for value in schema["enum"])
        if schema.get("type") == "array":
            at_most = f" of at most {schema['maxItems']}" if "maxItems" in schema else ""
            return f"a list{at_most}, each {self.takes(schema['items'])}"
        return _scalar(schema)


def _root(operation: Schema, place: str) -> Schema:
    """The schema of the body; or of all parameters of the path or the query, as one object."""
    if place == "body":
        schema: Schema = operation["requestBody"]["content"]["application/json"]["schema"]
        return schema
    named = {p["name"]: p["schema"] for p in operation["parameters"] if p["in"] == place}
    return {"type": "object", "properties": named}


def _name(steps: Sequence[Any]) -> str:
    """``items[2].name``. Names are the caller's: cut short, control characters escaped."""
    name = ""
    for step in steps:
        if isinstance(step, int):
            name += f"[{step}]"
        else:
            shown = step if step.isprintable() else ascii(step)[1:-1]
            name += ("." if name else "") + shown[:_SHOWN_NAME]
    return name


def _scalar(schema: Schema) -> str:
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "integer":
            return f"a whole number from {schema['minimum']} to {schema['maximum']}"
        case "string":
            shortest, longest = schema.get("minLength", 0), schema["maxLength"]
            length = f"{shortest} to {longest}" if shortest else f"at most {longest}"
            return f"a string of {length} characters, none of them a control character"
        case _:
            fields = ", ".join(schema.get("properties", {}))
            return f"a JSON object with the fields {fields}" if fields else "a JSON object, {}"
