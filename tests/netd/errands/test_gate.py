"""The gate and its runner: one errand, by the ways that they are given and by nothing else."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from egressd.model.alert_urls import plugin_of
from egressd.netd.engine.protocol import Way
from egressd.netd.errands import sandbox
from egressd.netd.errands.gates import _through_gate
from egressd.netd.errands.order import ErrandOutcome, GateOrder, MessageErrand, PageErrand

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NOBODY: Final = 65534
DRIP_S: Final = 0.2
"""Seconds between two bytes of an answer that has no end."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """A SOCKS5 server that answers for every host itself: with `answer`, or never if it is None.

    If it `drips`, its answer goes on byte by byte, without an end.
    """

    def __init__(self, answer: bytes | None, *, refuses: bool = False, drips: bool = False) -> None:
        self.answer = answer
        self.refuses = refuses
        self.drips = drips
        self.asked: list[tuple[str, int]] = []
        self.received = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        for _ in range(2):  # the version, the user; then the password
            await reader.readexactly((await reader.readexactly(2 if not _ else 1))[-1])
        head = await reader.readexactly(4)
        size = (await reader.readexactly(1))[0] if head[3] == 3 else 4
        host = await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2))
        name = host.decode() if head[3] == 3 else socket.inet_ntoa(host)
        self.asked.append((name, port))
        status = 5 if self.refuses else 0
        writer.write(b"\x05\x02\x01\x00\x05" + bytes([status]) + b"\x00\x01" + bytes(6))
        while not self.refuses and (data := await reader.read(65536)):
            self.received += data
            if self.answer is not None and b"\r\n\r\n" in self.received:
                writer.write(self.answer)
                await writer.drain()
                await self._drip(writer)
                break
        writer.close()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        try:
            while self.drips and not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(DRIP_S)
        finally:
            writer.close()


@asynccontextmanager
async def listening(*proxies: Proxy) -> AsyncIterator[tuple[Way, ...]]:
    ways, servers = [], []
    for number, proxy in enumerate(proxies):
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        ways.append(Way(number=number, port=proxy.port, user="u", password="p"))
        servers.append(server)
    try:
        yield tuple(ways)
    finally:
        for server in servers:
            server.close()


def response(body: bytes = b"", *head: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *head, "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


async def fetched_by(url: str, *proxies: Proxy, read_max: int = 1000) -> ErrandOutcome:
    errand = PageErrand(
        url=url,
        headers={"User-Agent": "test", "X-Key": "s3cret"},
        fields=("subscription-userinfo",),
        read_max=read_max,
    )
    async with listening(*proxies) as ways:
        order = GateOrder(errand=errand, ways=ways, uid=NOBODY, gid=NOBODY)
        return await _through_gate(order)


async def sent_by(url: str, *proxies: Proxy) -> ErrandOutcome:
    plugin = plugin_of(url)
    assert plugin is not None
    message = MessageErrand(plugin=plugin, url=url, title="gw1: one", body="line one\nline two")
    async with listening(*proxies) as ways:
        order = GateOrder(errand=message, ways=ways, uid=NOBODY, gid=NOBODY)
        return await _through_gate(order)


async def test_a_message_and_its_name_leave_by_the_way(namespaces: None) -> None:
    proxy = Proxy(OK)
    outcome = await sent_by("json://hook.example.com:8080/path", proxy)
    assert outcome == ErrandOutcome(is_done=True)
    assert proxy.asked == [("hook.example.com", 8080)]
    assert proxy.received.startswith(b"POST /path HTTP/1.1\r\n")
    assert b"line one\\nline two" in proxy.received


async def test_a_way_that_refuses_is_followed_by_the_next(namespaces: None) -> None:
    dead, living = Proxy(OK, refuses=True), Proxy(OK)
    assert (await sent_by("json://hook.example.com/x", dead, living)).is_done
    assert dead.asked == living.asked == [("hook.example.com", 80)]


async def test_without_a_way_that_leads_there_nothing_is_done(namespaces: None) -> None:
    dead = Proxy(OK, refuses=True)
    outcome = await sent_by("json://hook.example.com/x", dead)
    assert not outcome.is_done
    assert "refused" in outcome.reason


@pytest.mark.parametrize("where", ["http://10.0.0.1/x", "http://127.0.0.1:8787/x"])
async def test_a_redirect_into_a_lan_leads_nowhere(namespaces: None, where: str) -> None:
    away = f"HTTP/1.1 307 Away\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
    proxy = Proxy(away.encode())
    outcome = await sent_by("json://hook.example.com/x", proxy)
    assert not outcome.is_done
    assert outcome.reason.code == "errand-refused-host"
    assert proxy.asked == [("hook.example.com", 80)]


async def test_a_service_that_never_answers_is_given_up(namespaces: None) -> None:
    outcome = await asyncio.wait_for(sent_by("json://hook.example.com/x", Proxy(None)), 50)
    assert not outcome.is_done
    assert outcome.reason


async def test_a_service_whose_answer_has_no_end_is_given_up(namespaces: None) -> None:
    """Each byte comes soon, so that no time-out for a single read ends it."""
    proxy = Proxy(b"HTTP/1.1 200 OK\r\nX: ", drips=True)
    outcome = await asyncio.wait_for(sent_by("json://hook.example.com/x", proxy), 50)
    assert not outcome.is_done
    assert outcome.reason.code == "errand-no-answer"


async def test_the_reason_has_no_part_of_the_url(namespaces: None) -> None:
    proxy = Proxy(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    outcome = await sent_by("json://user:passw0rd@hook.example.com/secret-path", proxy)
    assert not outcome.is_done
    assert outcome.reason
    for secret in ("passw0rd", "secret-path"):
        assert secret not in outcome.reason


async def test_a_page_comes_by_the_way_with_its_fields(namespaces: None) -> None:
    proxy = Proxy(response(b"one\ntwo\n", "Subscription-Userinfo: total=5", "X-Other: x"))
    outcome = await fetched_by("http://pages.example.com:8080/list?key=1", proxy)
    assert outcome == ErrandOutcome(
        is_done=True,
        status=200,
        fields={"subscription-userinfo": "total=5"},
        content=b"one\ntwo\n",
    )
    assert proxy.asked == [("pages.example.com", 8080)]
    assert proxy.received.startswith(b"GET /list?key=1 HTTP/1.1\r\n")
    assert b"User-Agent: test\r\n" in proxy.received
    assert b"X-Key: s3cret\r\n" in proxy.received


async def test_a_large_page_is_whole(namespaces: None) -> None:
    page = os.urandom(3 << 20)
    proxy = Proxy(response(page, f"Content-Length: {len(page)}"))
    outcome = await fetched_by("http://pages.example.com/", proxy, read_max=len(page))
    assert outcome.is_done
    assert outcome.content == page


async def test_a_compressed_page_is_read(namespaces: None) -> None:
    proxy = Proxy(response(gzip.compress(b"hello"), "Content-Encoding: gzip"))
    assert (await fetched_by("http://pages.example.com/", proxy)).content == b"hello"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (response(b"x" * 1001), "page-too-long"),
        (response(b"x" * 10, "Content-Length: 11"), "page-broken"),
        (response(gzip.compress(bytes(200 << 20)), "Content-Encoding: gzip"), "page-too-long"),
        (response(b"no gzip", "Content-Encoding: gzip"), "page-broken"),
        (response(b"5\r\nabc", "Transfer-Encoding: chunked"), "page-broken"),
        (response(b"gone", status="404 Not Found"), "page-status"),
        (response(b"", status="500 No"), "page-status"),
        (b"SSH-2.0-OpenSSH\r\n", "page-broken"),
        (b"", "page-broken"),
    ],
)
async def test_a_page_that_is_not_whole_is_none(namespaces: None, answer: bytes, code: str) -> None:
    outcome = await fetched_by("http://pages.example.com/secret-path", Proxy(answer))
    assert not outcome.is_done
    assert outcome.reason.code == code
    assert outcome.content == b""
    assert "secret-path" not in outcome.reason


async def test_a_page_that_has_no_end_is_given_up(namespaces: None) -> None:
    outcome = await asyncio.wait_for(fetched_by("http://pages.example.com/", Proxy(None)), 50)
    assert outcome.reason.code == "errand-no-answer"


@pytest.mark.parametrize(
    "where",
    ["http://10.0.0.1/x", "http://127.0.0.1:8787/x", "http://localhost/x", "http://[::1]/x"],
)
async def test_a_page_that_leads_into_a_lan_is_none(namespaces: None, where: str) -> None:
    proxy = Proxy(response(b"", f"Location: {where}", "Content-Length: 0", status="302 Found"))
    outcome = await fetched_by("http://pages.example.com/x", proxy)
    assert not outcome.is_done
    assert outcome.reason.code == "errand-refused-host"
    assert proxy.asked == [("pages.example.com", 80)]


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://other.example.com/x", "gopher://x"])
async def test_a_page_leads_to_no_other_scheme(namespaces: None, where: str) -> None:
    proxy = Proxy(response(b"", f"Location: {where}", "Content-Length: 0", status="302 Found"))
    outcome = await fetched_by("http://pages.example.com/x", proxy)
    assert outcome.reason.code == "page-redirect-plain"


async def test_a_page_that_leads_to_itself_is_none(namespaces: None) -> None:
    proxy = Proxy(response(b"", "Location: /x", "Content-Length: 0", status="302 Found"))
    outcome = await fetched_by("http://pages.example.com/x", proxy)
    assert outcome.reason.code == "page-redirects"


async def test_another_host_gets_no_header_of_the_first(namespaces: None) -> None:
    moved = response(
        b"", "Location: http://other.example.com/y", "Content-Length: 0", status="302 Found"
    )
    proxy = Proxy(moved)
    outcome = await fetched_by("http://pages.example.com/x", proxy)
    assert outcome.reason.code == "page-redirects"
    assert proxy.asked[:2] == [("pages.example.com", 80), ("other.example.com", 80)]
    assert proxy.received.count(b"s3cret") == 1


def in_sandbox(look: Callable[[], str]) -> str:
    """Return the answer of a process in the sandbox."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            sandbox.isolate()
            os.write(writing, look().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.wait()
    return found


def connect() -> str:
    with socket.socket() as outward:
        return str(outward.connect_ex(("192.0.2.1", 80)))


def test_no_address_is_reached_from_the_sandbox(namespaces: None) -> None:
    assert in_sandbox(connect) == str(errno.ENETUNREACH)


def test_no_interface_but_the_loopback_is_in_the_sandbox(namespaces: None) -> None:
    assert in_sandbox(lambda: " ".join(name for _, name in socket.if_nameindex())) == "lo"


def test_no_socket_of_another_program_is_in_the_sandbox(namespaces: None) -> None:
    assert in_sandbox(lambda: str(len([*Path("/run").iterdir()]))) == "0"
    assert [*Path("/run").iterdir()]
