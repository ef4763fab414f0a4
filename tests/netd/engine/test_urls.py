"""URLs that delays are measured with."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.engine.urls import Url, parse_url


@pytest.mark.parametrize(
    ("text", "url", "authority"),
    [
        ("http://a.test", Url(False, "a.test", 80, "/"), "a.test"),
        ("https://A.test:443/x?y=1#z", Url(True, "a.test", 443, "/x?y=1"), "a.test"),
        ("http://a.test:8080/", Url(False, "a.test", 8080, "/"), "a.test:8080"),
        ("https://[2001:db8::1]/", Url(True, "2001:db8::1", 443, "/"), "[2001:db8::1]"),
        ("http://bücher.test/ä b", Url(False, "xn--bcher-kva.test", 80, "/%C3%A4%20b"), None),
        ("http://192.0.2.1/%20", Url(False, "192.0.2.1", 80, "/%20"), "192.0.2.1"),
    ],
)
def test_a_valid_url_is_parsed(text: str, url: Url, authority: str | None) -> None:
    assert parse_url(text) == url
    assert authority in (None, url.authority)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.test",
        "ftp://a.test/",
        "http://",
        "http://a.test:99999/",
        "http://a..test/",
        "http://u:p@a.test/",
        "http://" + "a." * 150,
        "https://[::1",
    ],
)
def test_an_invalid_url_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"^url must "):
        parse_url(text)


@given(st.text(min_size=1), st.text())
def test_no_url_adds_a_line_to_the_request(path: str, query: str) -> None:
    try:
        url = parse_url(f"http://a.test/{path}?{query}")
    except ValueError:
        return
    request = h11.Request(method="HEAD", target=url.target, headers=[("Host", url.authority)])
    assert h11.Connection(h11.CLIENT).send(request).count(b"\r\n") == 3
