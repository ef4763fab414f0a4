"""Routers: the endpoints of a resource, declared beside their handlers.

Each module of `routes` has a router, with decorators named like FastAPI's. They take what the
OpenAPI document shows of an endpoint, and the examples in it. `Resource` declares the endpoints
that all resources have in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any, Final

import msgspec
from starlette.responses import Response

from egressd.api.endpoints import API_PREFIX, LARGE_BODY, SMALL_BODY, Endpoint, Handler
from egressd.api.intake import JSON
from egressd.api.negotiation import CSV, HTML
from egressd.api.wire.answers import Deleted, Error, SaidId, Updated
from egressd.api.wire.outcomes import done
from egressd.model.tokens import Need
from egressd.model.wording import Sentence, Value, say

Declare = Callable[[Handler], Handler]
"""A decorator that declares the endpoint of a handler, and returns the handler as it is."""
Example = dict[str, Any]

_NONE: Final[Example] = {}


class Router:
    """The endpoints of one tag of the OpenAPI document, below one prefix."""

    def __init__(self, tag: str, prefix: str = API_PREFIX) -> None:
        self.endpoints: Final[list[Endpoint]] = []
        self._tag = tag
        self._prefix = prefix

    def declare(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        answer: type[msgspec.Struct],
        example: Example,
        body: Example | None = None,
        body_type: str = JSON,
        body_max: int = SMALL_BODY,
        refusal: str | None = None,
        is_open: bool = False,
        is_by_key: bool = False,
        is_csv_too: bool = False,
        is_html_too: bool = False,
        is_conditional: bool = False,
        scope: Need | None = None,
        status: int = 200,
        has_statuses: bool = False,
        is_licensed: bool = False,
        is_making: bool = False,
    ) -> Declare:
        """Declare an endpoint that answers with JSON.

        `example` and `body` are examples of its answer and of its body, which has at most
        `body_max` bytes. A body of another `body_type` than JSON has none, and the handler reads it
        itself. `refusal` is an example of the error that is answered with status 200: a well-formed
        request about something that does not exist, or over a quota. An endpoint that `is_open`
        answers without a token; one that `is_by_key` has one in its path. One that `is_csv_too`
        answers with CSV if `Accept` asks for it, one that `is_html_too` with a page. One that
        `is_conditional` answers 412 if `If-Match` names another version. `scope` is the least
        scope of a token that covers the endpoint: one of the specification needs `read` for a GET
        and `write` for all else, every other one declares it. `status` is that of its answer. One
        that `has_statuses` answers 404 for something that does not exist, and 409 over a quota. One
        that `is_licensed` is for programs with API access alone, as those of the specification. One
        that `is_making` answers 201, in the same form, if it has made what it would replace.
        """
        takes: Example | None = None
        if body is not None:
            takes = {JSON: {"example": body}}
        elif body_type != JSON:
            takes = {body_type: {}}

        def declared(handler: Handler) -> Handler:
            content = {JSON: _described(answer, example, refusal)}
            if is_csv_too:
                content[CSV] = {"schema": {"type": "string"}}
            if is_html_too:
                content[HTML] = {"schema": {"type": "string"}}
            statuses = (status, 201) if is_making else (status,)
            endpoint = self._add(
                method, path, summary, handler, content=content, takes=takes, statuses=statuses
            )
            endpoint.has_statuses = has_statuses
            endpoint.is_licensed = is_licensed
            endpoint.answer = answer
            endpoint.body_type = body_type
            endpoint.body_max = body_max
            endpoint.is_open = is_open
            endpoint.is_by_key = is_by_key
            endpoint.is_conditional = is_conditional
            self._cover(endpoint, method, scope)
            return handler

        return declared

    get = partialmethod(declare, "GET")
    post = partialmethod(declare, "POST")
    put = partialmethod(declare, "PUT")
    patch = partialmethod(declare, "PATCH")
    delete = partialmethod(declare, "DELETE")

    def get_text(
        self,
        path: str,
        summary: str,
        media_type: str,
        *,
        is_open: bool = False,
        scope: Need | None = None,
    ) -> Declare:
        """Declare a GET that answers with another media type than JSON."""

        def declared(handler: Handler) -> Handler:
            endpoint = self._add("GET", path, summary, handler, content={media_type: {}})
            endpoint.is_open = is_open
            self._cover(endpoint, "GET", scope)
            return handler

        return declared

    def _cover(self, endpoint: Endpoint, method: str, scope: Need | None) -> None:
        """Note the least scope that covers an endpoint. Without a declaration that is `admin`."""
        if scope is None and self._prefix == API_PREFIX:
            scope = "read" if method == "GET" else "write"
        endpoint.is_declared = scope is not None or endpoint.is_open or endpoint.is_by_key
        endpoint.need = scope or "admin"

    def _add(
        self,
        method: str,
        path: str,
        summary: str,
        handler: Handler,
        *,
        content: Example,
        takes: Example | None = None,
        statuses: Sequence[int] = (200,),
    ) -> Endpoint:
        endpoint = Endpoint(
            method,
            self._prefix + path,
            handler,
            summary=summary,
            operation_id=handler.__name__,
            tags=[self._tag],
            response_model=None,
            response_class=Response,
            status_code=statuses[0],
            responses={each: {"description": "Handled", "content": content} for each in statuses},
            openapi_extra={} if takes is None else {"requestBody": {"content": takes}},
        )
        self.endpoints.append(endpoint)
        return endpoint


class Resource:
    """The endpoints that resources have in the same form, below `path`.

    `thing` is the word for a row in sentences; it forms its plural with an ``s``. `row` and `body`
    are examples: of a row in answers, with an ``id`` and a ``name``, and of the body that makes it.
    """

    def __init__(self, router: Router, path: str, thing: str, *, row: Example, body: Example):
        self._router = router
        self._path = path
        self.thing = thing
        self.row = row
        self.body = body

    def list(self, answer: type[msgspec.Struct]) -> Declare:
        """Declare the request for all rows."""
        return self._router.get(
            self._path, f"List {self.thing}s", answer=answer, example={"data": [self.row]}
        )

    def create(self, refusal: str | None = None) -> Declare:
        """Declare the request that creates a row. `refusal` is an example of one, over a quota."""
        return self._router.post(
            self._path,
            f"Create a {self.thing}",
            body=self.body,
            answer=SaidId,
            example=self._said("created"),
            refusal=refusal,
        )

    def replace(self) -> Declare:
        """Declare the request that replaces a row."""
        return self._router.put(
            f"{self._path}/{{id}}",
            f"Replace a {self.thing}",
            body=self.body,
            answer=SaidId,
            example=self._said("saved"),
            refusal=self.missing,
        )

    def delete(self, *notes: Sentence) -> Declare:
        """Declare the request that deletes a row. The example of its answer has `notes`."""
        return self._router.delete(
            f"{self._path}/{{id}}",
            f"Delete a {self.thing}",
            answer=SaidId,
            example=self._said("deleted", *notes),
            refusal=self.missing,
        )

    def delete_many(self, chosen: Example) -> Declare:
        """Declare the request that deletes two rows; `chosen` names them."""
        return self._router.delete(
            f"{self._path}/batch",
            f"Delete several {self.thing}s",
            body=chosen,
            answer=Deleted,
            example={"msg": self._some("some-deleted"), "deleted": 2},
        )

    def switch(self, answer: type[msgspec.Struct], example: Example) -> Declare:
        """Declare the request that enables or disables a row."""
        return self._router.patch(
            f"{self._path}/{{id}}/status",
            f"Enable or disable a {self.thing}",
            body={"is_enabled": example["is_enabled"]},
            answer=answer,
            example=example,
            refusal=self.missing,
        )

    def switch_many(
        self, chosen: Example, answer: type[msgspec.Struct] = Updated, **more: object
    ) -> Declare:
        """Declare the request that enables or disables two rows; `chosen` names them."""
        return self._router.patch(
            f"{self._path}/batch/status",
            f"Enable or disable several {self.thing}s",
            body={**chosen, "is_enabled": True},
            answer=answer,
            example={"msg": self._some("some-enabled"), "updated": 2, **more},
        )

    def import_rows(self, body: Example, answer: type[msgspec.Struct], example: Example) -> Declare:
        """Declare the import; `example` has the numbers of its answer."""
        numbers = {"n": example["imported"], "skipped": example["skipped"]}
        return self._router.post(
            f"{self._path}/import",
            f"Import {self.thing}s",
            body=body,
            body_max=LARGE_BODY,
            answer=answer,
            example={"msg": self._some("some-imported", **numbers), **example},
        )

    @property
    def missing(self) -> str:
        """An example of the refusal of a row that does not exist."""
        return str(say("no-such-id", thing=self.thing, id=self.row["id"]))

    def _said(self, code: str, *notes: Sentence) -> Example:
        text = done(say(code, thing=self.thing, name=self.row["name"]), notes)
        return {"msg": str(text), "id": self.row["id"]}

    def _some(self, code: str, **values: Value) -> str:
        return str(say(code, **{"n": 2, "thing": self.thing, **values}))


class Objects:
    """The endpoints of objects under ``/ops``, one by one, below `path`.

    `resource` has the same objects in ``/svc/api/v1``; `change` is an example of fields to set, and
    `own` of the fields that objects have only here.
    """

    def __init__(
        self, router: Router, path: str, resource: Resource, change: Example, own: Example = _NONE
    ):
        self._router = router
        self._path = path
        self._resource = resource
        self._change = change
        self._row = {**resource.row, **own}

    def show(self, answer: type[msgspec.Struct]) -> Declare:
        """Declare the request for one object."""
        return self._router.get(
            f"{self._path}/{{id}}",
            f"Show a {self._resource.thing}",
            answer=answer,
            example=self._row,
            scope="read",
            has_statuses=True,
            is_licensed=True,
        )

    def create(self, answer: type[msgspec.Struct]) -> Declare:
        """Declare the request that creates an object."""
        return self._router.post(
            self._path,
            f"Add a {self._resource.thing}",
            body=self._resource.body,
            answer=answer,
            example={**self._row, "msg": self._said("created")},
            scope="write",
            status=201,
            has_statuses=True,
            is_licensed=True,
        )

    def change(self, answer: type[msgspec.Struct]) -> Declare:
        """Declare the request that changes fields of an object."""
        return self._router.patch(
            f"{self._path}/{{id}}",
            f"Change fields of a {self._resource.thing}",
            body=self._change,
            answer=answer,
            example={**self._row, **self._change, "msg": self._said("saved")},
            scope="write",
            has_statuses=True,
            is_conditional=True,
            is_licensed=True,
        )

    def delete(self) -> Declare:
        """Declare the request that deletes an object."""
        return self._router.delete(
            f"{self._path}/{{id}}",
            f"Remove a {self._resource.thing}",
            answer=SaidId,
            example={"msg": self._said("deleted"), "id": self._resource.row["id"]},
            scope="write",
            has_statuses=True,
            is_conditional=True,
            is_licensed=True,
        )

    def _said(self, code: str) -> str:
        row = self._resource.row
        return str(say(code, thing=self._resource.thing, name=str(row.get("name") or row["ip"])))


def _described(
    answer: type[msgspec.Struct], example: Example, refusal: str | None
) -> dict[str, Any]:
    """Return the JSON media type object of an answer (OpenAPI 3.1, 4.8.14)."""
    shapes = [_reference(answer)]
    examples = {"done": {"value": example}}
    if refusal is not None:
        shapes.append(_reference(Error))
        examples["refused"] = {"value": {"error": refusal}}
    return {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}, "examples": examples}


def _reference(answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a JSON Schema reference to an answer's shape in the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{answer.__name__}"}
