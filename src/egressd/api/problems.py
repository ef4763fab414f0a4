"""The faults of a request that pydantic found.

The values that a field takes are read from the OpenAPI document, so that error texts and
documentation agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from egressd.api.wire.fields import Misfit
from egressd.model.faults import Fault, Step, takes
from egressd.model.wording import Sentence, Value, say

Schema = Mapping[str, Any]

_SHOWN_NAME = 64
"""Characters of an unknown field's name that are shown."""
_KEY = "[key]"
"""The step that pydantic adds behind a name in an object, where the name itself does not fit."""


class Problems:
    """Converts pydantic's errors to faults, with the schemas of one OpenAPI document."""

    def __init__(self, document: Callable[[], Schema]) -> None:
        """`document` returns the document: it is made when it is first needed."""
        self._document = document

    @property
    def _schemas(self) -> Schema:
        schemas: Schema = self._document()["components"]["schemas"]
        return schemas

    @property
    def _operations(self) -> Schema:
        operations: Schema = self._document()["paths"]
        return operations

    def faults(self, method: str, path: str, errors: Iterable[Mapping[str, Any]]) -> list[Fault]:
        """Return a fault for each of `errors` (pydantic's ``errors()``) of a request to `path`, but
        only one of those with the same sentence.
        """
        operation = self._operations[path][method.lower()]
        found = (self._fault(operation, error) for error in errors)
        return list({str(fault): fault for fault in found}.values())

    def _fault(self, operation: Schema, error: Mapping[str, Any]) -> Fault:
        place, *steps = error["loc"]
        schema, holder, depth = self._schema_at(_root(operation, place), steps)
        path = tuple(_shown(step) for step in steps[:depth])
        match error["type"]:
            case "extra_forbidden":
                return Fault(path, "unknown-field", {"fields": (*holder.get("properties", {}),)})
            case "missing":
                return Fault(path, "missing", {"takes": self.takes(schema)})
            case "value_error":
                misfit: Misfit = error["ctx"]["error"]
                return Fault(path, misfit.code, misfit.values)
            case _:
                return Fault(path, *self._form(schema))

    def _schema_at(self, schema: Schema, steps: Sequence[Any]) -> tuple[Schema, Schema, int]:
        """Return the schema `steps` down, the one that holds it, and the number of steps there."""
        holder = schema = self.resolved(schema)
        for depth, step in enumerate(steps):
            # A field may have that name, too.
            if step == _KEY and "propertyNames" in holder:
                return {"type": "string", **holder["propertyNames"]}, holder, depth
            holder = schema
            each = "items" if isinstance(step, int) else "additionalProperties"
            inner = schema.get(each) if isinstance(schema.get(each), Mapping) else None
            for of_pattern in schema.get("patternProperties", {}).values():
                inner = of_pattern
            schema = self.resolved(inner or schema.get("properties", {}).get(step, {}))
        return schema, holder, len(steps)

    def resolved(self, schema: Schema) -> Schema:
        """Return `schema`, or the schema that it refers to."""
        if "$ref" in schema:
            return self.resolved(self._schemas[schema["$ref"].rpartition("/")[2]])
        return schema

    def takes(self, schema: Schema) -> Sentence:
        """Return the values that a field of that schema takes: ``a whole number from 1 to 9``."""
        code, values = self._form(schema)
        return takes(code, **values)

    def _form(self, schema: Schema) -> tuple[str, Mapping[str, Value]]:
        """Return the code and the values of the fault of a value that does not fit the schema."""
        schema = self.resolved(schema)
        if "x-fault" in schema:
            return schema["x-fault"]["code"], schema["x-fault"]["values"]
        if "anyOf" in schema:
            return "takes", {"takes": say("either", forms=tuple(map(self.takes, schema["anyOf"])))}
        if "enum" in schema:
            return "one-of", {"choices": tuple(value or '""' for value in schema["enum"])}
        if schema.get("type") == "array":
            each = self.takes(schema["items"])
            if "maxItems" in schema:
                return "takes", {
                    "takes": say("list-of-at-most", most=schema["maxItems"], each=each)
                }
            return "takes", {"takes": say("list", each=each)}
        return _scalar(schema)


def _root(operation: Schema, place: str) -> Schema:
    """Return the schema of the body, or of all parameters of the path or query as one object."""
    if place == "body":
        schema: Schema = operation["requestBody"]["content"]["application/json"]["schema"]
        return schema
    named = {p["name"]: p["schema"] for p in operation["parameters"] if p["in"] == place}
    return {"type": "object", "properties": named}


def _shown(step: Step) -> Step:
    """Return a step of a path. Names, which callers choose, are cut short and escaped."""
    if isinstance(step, int):
        return step
    return (step if step.isprintable() else ascii(step)[1:-1])[:_SHOWN_NAME]


def _scalar(schema: Schema) -> tuple[str, Mapping[str, Value]]:
    match schema.get("type"):
        case "boolean":
            return "boolean", {}
        case "null":
            return "takes", {"takes": say("null")}
        case "integer":
            return "whole-number", {"least": schema["minimum"], "most": schema["maximum"]}
        case "string":
            shortest, longest = schema.get("minLength", 0), schema["maxLength"]
            if shortest:
                return "string-of-length", {"least": shortest, "most": longest}
            return "string", {"most": longest}
        case _:
            if fields := tuple(schema.get("properties", {})):
                return "takes", {"takes": say("object-with-fields", fields=fields)}
            return "takes", {"takes": say("empty-object")}
