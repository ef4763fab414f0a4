"""Lists as bytes, kept until what they show changes, with an entity tag (RFC 9110, 8.8.3).

A list of 10,000 rules takes 12 ms to encode and 0.1 ms to hand out again.
"""

from __future__ import annotations

import gzip
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import kept
from egressd.model.encodings import takes_gzip
from egressd.service.versions import entity_tag

_UNCACHED: Final = "no-store"
"""Lists hold passwords, which no browser is to keep on its disk. Who wants a 304 keeps the list."""
_VERSIONS_MAX: Final = 64
"""Versions that share what they have in common (`immutables.Map`) take next to nothing."""

Row = TypeVar("Row")


class EncodedList(NamedTuple):
    """An encoded answer, mostly ``{"data": [...]}``, and its entity tag."""

    body: bytes
    etag: str


def listing_of(rows: Iterable[object]) -> EncodedList:
    """The list of `rows`, encoded."""
    return encoded({"data": list(rows)})


def encoded(answer: object) -> EncodedList:
    """An answer, encoded, with its entity tag."""
    body = msgspec.json.encode(answer)
    return EncodedList(body, entity_tag(body))


class CachedList:
    """A list that is encoded again only when its revision is another."""

    def __init__(self) -> None:
        self._revision = -1
        self._listing = EncodedList(b"", "")

    def listing(self, revision: int, rows: Callable[[], Iterable[object]]) -> EncodedList:
        """The list at `revision`. `rows` is called only when it was not known."""
        if revision != self._revision:
            self._listing = listing_of(rows())
            self._revision = revision
        return self._listing


class ZippedAnswer:
    """A long answer, kept zipped until its revision is another.

    10,000 rules are 2.2 MB, zipped 0.1 MB, which takes 7 ms: less than to encrypt, send and read
    the rest. For answers without secrets: the length of a zipped one tells of what is in it
    (BREACH, CVE-2013-3587).
    """

    def __init__(self) -> None:
        self._revision = -1
        self._zipped = b""

    def response(self, request: Request, revision: int, answer: Callable[[], object]) -> Response:
        """The answer at `revision`, zipped where the caller takes that."""
        headers = {"cache-control": _UNCACHED, "vary": "accept-encoding"}
        if not takes_gzip(request.headers.get("accept-encoding", "")):
            return _json(msgspec.json.encode(answer()), headers)
        if revision != self._revision:
            self._zipped = gzip.compress(msgspec.json.encode(answer()), compresslevel=1, mtime=0)
            self._revision = revision
        return _json(self._zipped, {**headers, "content-encoding": "gzip"})


class Difference(NamedTuple, Generic[Row]):
    """The difference of two versions of a table: rows to put, and ids of rows to remove."""

    changed: list[Row]
    gone: list[int]


class Versions(Generic[Row]):
    """The versions of a table that callers know, so that only the difference is sent.

    10,000 rules are compared in 2.5 ms. All of them are 2.2 MB to encode, encrypt, send and read,
    each time that an operator changes one while a console is open.
    """

    def __init__(self) -> None:
        self._by_revision: OrderedDict[int, Mapping[int, Row]] = OrderedDict()

    def since(self, known: int, revision: int, rows: Mapping[int, Row]) -> Difference[Row] | None:
        """Return the difference of `rows`, the table at `revision`, from the one at `known`, by id.

        None if that version is not known any more: then the whole table must be sent.
        """
        before = self._by_revision.get(known)
        self._by_revision[revision] = rows
        self._by_revision.move_to_end(revision)
        if len(self._by_revision) > _VERSIONS_MAX:
            self._by_revision.popitem(last=False)
        if before is None:
            return None
        return Difference(
            [rows[key] for key in sorted(rows) if before.get(key) is not rows[key]],
            sorted(key for key in before if key not in rows),
        )


def send_cached(
    request: Request,
    revision: int,
    rows: Callable[[], Iterable[object]],
    *,
    is_masked: bool = False,
) -> Response:
    """The list of the request's endpoint at `revision`, from the `CachedList` of the application:
    one for the list with secrets, and one for that without.

    It is no dependency: FastAPI takes 10 us for each, a fiftieth of the time of such a request.
    """
    cached = kept(request, (request.scope["endpoint"], is_masked), CachedList)
    return send(request, cached.listing(revision, rows))


def send(request: Request, listing: EncodedList) -> Response:
    """The list, or 304 when the caller has it (``If-None-Match``)."""
    headers = {"etag": listing.etag, "cache-control": _UNCACHED}
    if _has(request.headers.get("if-none-match", ""), listing.etag):
        return Response(status_code=304, headers=headers)
    return _json(listing.body, headers)


def tags_of(if_match: str) -> list[str]:
    """Return the entity tags in an ``If-Match``; none for any, which is ``*``."""
    tags = [tag.strip() for tag in if_match.split(",") if tag.strip()]
    return [] if tags == ["*"] else tags


def _json(body: bytes, headers: dict[str, str]) -> Response:
    return Response(body, headers=headers, media_type="application/json")


def _has(known: str, etag: str) -> bool:
    """Return True if an ``If-None-Match`` names `etag`, compared weakly (RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
    return etag in tags or tags == ["*"]
