from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from egressd.api.lists import CachedList, listing_of, send


def asked(if_none_match: str | None) -> Request:
    headers = [] if if_none_match is None else [(b"if-none-match", if_none_match.encode())]
    return Request({"type": "http", "headers": headers})


def test_a_list_is_made_once_a_revision() -> None:
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


def test_a_tag_tells_contents_apart_and_is_the_same_for_the_same() -> None:
    assert listing_of([1]).etag == listing_of([1]).etag
    assert listing_of([1]).etag != listing_of([2]).etag


def test_who_has_the_list_is_not_sent_it_again() -> None:
    listing = listing_of([1])
    for known in (listing.etag, f"W/{listing.etag}", f'"other", {listing.etag}', "*"):
        response = send(asked(known), listing)
        assert response.status_code == 304
        assert response.body == b""
        assert response.headers["etag"] == listing.etag


@pytest.mark.parametrize("known", [None, "", '"other"', '"*"'])
def test_who_does_not_have_it_is_sent_it(known: str | None) -> None:
    listing = listing_of([1])
    response = send(asked(known), listing)
    assert response.status_code == 200
    assert response.body == listing.body
    assert response.headers["cache-control"] == "private, no-cache"
