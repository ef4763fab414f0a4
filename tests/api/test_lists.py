from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from egressd.api.lists import CachedList, Versions, ZippedAnswer, listing_of, send


def asked(if_none_match: str | None) -> Request:
    headers = [] if if_none_match is None else [(b"if-none-match", if_none_match.encode())]
    return Request({"type": "http", "headers": headers})


def test_a_list_is_made_once_per_revision() -> None:
    made = []

    def rows() -> list[int]:
        made.append(1)
        return [1, 2]

    cached = CachedList()
    first = cached.listing(7, rows)
    assert json.loads(first.body) == {"data": [1, 2]}
    assert cached.listing(7, rows) is first
    assert len(made) == 1
    cached.listing(8, lambda: [3])
    assert json.loads(cached.listing(8, rows).body) == {"data": [3]}
    assert len(made) == 1


def test_a_long_answer_is_compressed_once_per_revision_on_request() -> None:
    made = []

    def asked_by(accept_encoding: str) -> Request:
        header = (b"accept-encoding", accept_encoding.encode())
        return Request({"type": "http", "headers": [header]})

    def answer() -> list[int]:
        made.append(1)
        return [1] * 1000

    zipped = ZippedAnswer()
    for _ in range(2):
        response = zipped.response(asked_by("br, gzip"), 7, answer)
        assert response.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(response.body)) == [1] * 1000
    assert len(made) == 1
    other = zipped.response(asked_by("gzip"), 8, lambda: [2])
    assert json.loads(gzip.decompress(other.body)) == [2]
    for refusing in ("", "identity", "gzip;q=0"):
        plain = zipped.response(asked_by(refusing), 8, lambda: [2])
        assert "content-encoding" not in plain.headers
        assert json.loads(bytes(plain.body)) == [2]
        assert plain.headers["vary"] == "accept-encoding"


def test_equal_contents_and_only_those_have_equal_etags() -> None:
    assert listing_of([1]).etag == listing_of([1]).etag
    assert listing_of([1]).etag != listing_of([2]).etag


def test_a_matching_etag_is_answered_with_304() -> None:
    listing = listing_of([1])
    for known in (listing.etag, f"W/{listing.etag}", f'"other", {listing.etag}', "*"):
        response = send(asked(known), listing)
        assert response.status_code == 304
        assert response.body == b""
        assert response.headers["etag"] == listing.etag


@pytest.mark.parametrize("known", [None, "", '"other"', '"*"'])
def test_another_etag_is_answered_with_the_list(known: str | None) -> None:
    listing = listing_of([1])
    response = send(asked(known), listing)
    assert response.status_code == 200
    assert response.body == listing.body
    assert response.headers["cache-control"] == "no-store"


Table = dict[int, str]
TABLES = st.lists(st.dictionaries(st.integers(0, 9), st.text(max_size=1)), min_size=1, max_size=8)


@given(TABLES)
def test_a_client_that_applies_each_difference_has_the_table(tables: list[Table]) -> None:
    versions = Versions[str]()
    held: Table = {}
    for revision, table in enumerate(tables, 1):
        changes = versions.since(revision - 1, revision, table)
        if revision == 1:
            assert changes is None
        else:
            assert changes is not None
            put = {key: table[key] for key in table if held.get(key) is not table[key]}
            assert changes.changed == [put[key] for key in sorted(put)]
            kept = {key: row for key, row in held.items() if key not in changes.gone}
            assert kept | put == table
        held = table


def test_an_unknown_or_old_version_has_no_difference() -> None:
    versions = Versions[str]()
    assert versions.since(5, 5, {1: "a"}) is None
    assert versions.since(4, 5, {1: "a"}) is None
    assert versions.since(5, 5, {1: "a"}) == ([], [])
    for revision in range(6, 100):
        versions.since(revision - 1, revision, {1: "a"})
    assert versions.since(5, 100, {1: "a"}) is None
    assert versions.since(99, 100, {1: "a"}) == ([], [])
