"""The page as static files: what is served, how it is cached, and with which headers."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.console.page import FOLDER, Page
from tests.console.device import Device

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


ROOT = Path(__file__).parents[2]
INDEX = b"<!doctype html><title>egressd</title>"
SCRIPT = b"console.log('hello')\n" * 100


@pytest.fixture
async def built(tmp_path: Path) -> AsyncIterator[Device]:
    assets = tmp_path / "page" / "assets"
    assets.mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_bytes(INDEX)
    (assets / "index-abc123.js").write_bytes(SCRIPT)
    (assets / "font-abc123.woff2").write_bytes(b"\x00font")
    (tmp_path / "page" / "link").symlink_to("/etc/passwd")
    device = Device(tmp_path)
    await device.start()
    yield device
    await device.stop()


async def test_the_page_needs_no_session(built: Device) -> None:
    response = await built.browser().get("/")
    assert response.content == INDEX
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    again = await built.browser().get("/", if_none_match=response.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")


async def test_hashed_files_are_cached_for_ever_and_compressed(built: Device) -> None:
    browser = built.browser()
    response = await browser.get("/assets/index-abc123.js", accept_encoding="br, gzip")
    assert response.content == SCRIPT
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) == len(gzip.compress(SCRIPT, mtime=0))
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-type"].startswith("text/javascript")
    for refusing in ("identity", "gzip;q=0", "gzip; q=0.0"):
        plain = await browser.get("/assets/index-abc123.js", accept_encoding=refusing)
        assert "content-encoding" not in plain.headers
        assert plain.content == SCRIPT
    font = await browser.get("/assets/font-abc123.woff2", accept_encoding="gzip")
    assert font.headers["content-type"] == "font/woff2"
    assert "content-encoding" not in font.headers


async def test_other_paths_are_not_served(built: Device) -> None:
    browser = built.browser()
    for path in (
        "/index.js",
        "/link",
        "/assets/",
        "/../state.db",
        "/%2e%2e/state.db",
        "/assets/..%2f..%2fstate.db",
        "//etc/passwd",
        "/state.db",
        "/token",
    ):
        assert (await browser.get(path)).status_code == 404, path
    assert (await browser.http.post("/")).status_code == 405
    head = await browser.http.head("/", headers={"accept-encoding": "identity"})
    assert head.status_code == 200
    assert head.headers["content-length"] == str(len(INDEX))


async def test_without_a_built_page_a_plain_text_explains_it(new_device: Device) -> None:
    response = await new_device.browser().get("/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    assert "not built" in response.text


async def test_every_answer_has_the_security_headers(built: Device) -> None:
    browser = built.browser()
    for path in ("/", "/assets/index-abc123.js", "/nowhere", "/console/session", "/console/access"):
        headers = (await browser.get(path)).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["base-uri"] == "'none'"
        assert not re.search("unsafe|http:|https:|\\*", headers["content-security-policy"])
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("folder", [FOLDER, ROOT / "web" / "public"], ids=["built", "public"])
def test_each_file_of_the_page_has_a_media_type(folder: Path) -> None:
    page = Page(folder)
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "index.html":
            path = f"/{file.relative_to(folder).as_posix()}"
            answer = page.response({"type": "http", "method": "GET", "path": path, "headers": []})
            assert answer.status_code == 200
            assert answer.media_type != "application/octet-stream", path
