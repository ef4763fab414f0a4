"""Delays through real nodes: other sing-box instances, which the same pool runs."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from egressd.model.delays import Delay
from egressd.model.errors import Invalid
from egressd.model.wording import as_sentence
from egressd.netd.engine.document import Document
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.protocol import ProbeDocument
from egressd_lab.authority import Authority
from tests.netd.engine.site import HTTP_PORT, HTTPS_PORT, SLOWNESS_S, site
from tests.support.engine import CRASHES, MARK, UID, Entry, descriptors, document, opened
from tests.support.netns import Namespace, eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

HTTP = f"http://site.test:{HTTP_PORT}"
HTTPS = f"https://site.test:{HTTPS_PORT}"

USER = {"username": "u", "password": "p"}
SOCKS = {"type": "socks", "server": "127.0.0.1", "server_port": 1081, **USER}
PROXY = {"type": "http", "server": "127.0.0.1", "server_port": 1082, **USER}
SS = {
    "type": "shadowsocks",
    "server": "127.0.0.1",
    "server_port": 1083,
    "method": "aes-128-gcm",
    "password": "p",
}
NODES = {"socks": SOCKS, "http": PROXY, "ss": SS}
# Behind an interface whose other end never answers: see `black_hole`.
BLACK_HOLE = {"type": "socks", "server": "192.0.2.9", "server_port": 1080}


@pytest.fixture
def black_hole(namespace: Namespace) -> None:
    """A network 192.0.2.0/24 from which nothing ever comes back."""
    namespace.shell(
        "ip link add hole type veth peer name end; ip link set hole arp off up;"
        "ip link set end arp off up; ip address add 192.0.2.1/24 dev hole"
    )


def probe(name: str, outbound: Entry, **rest: Any) -> ProbeDocument:
    return ProbeDocument(name=name, config=document({"routing_mark": MARK, **outbound}, **rest))


@asynccontextmanager
async def nodes(run_dir: Path) -> AsyncIterator[Pool]:
    """Yield a pool that runs a server of each kind in `NODES`; they can resolve ``site.test``."""
    inbounds = [
        {"type": "socks", "listen_port": 1081, "users": [USER]},
        {"type": "http", "listen_port": 1082, "users": [USER]},
        {"type": "shadowsocks", "listen_port": 1083, "method": "aes-128-gcm", "password": "p"},
    ]
    config = document(
        {"type": "direct"},
        inbounds=[{"listen": "127.0.0.1", **inbound} for inbound in inbounds],
        dns={"servers": [{"type": "hosts", "tag": "h", "predefined": {"site.test": "127.0.0.1"}}]},
        route={"final": "node", "default_domain_resolver": "h"},
    )
    async with opened(run_dir) as pool:
        await pool.start(Document(key="servers", config=config))
        yield pool


async def delay(pool: Pool, outbound: Entry, url: str, timeout_ms: int = 2000) -> Delay:
    found = await pool.delays([probe("it", outbound)], url, timeout_ms)
    assert list(found) == ["it"]
    return found["it"]


def assert_is_the_sites(measured: Delay) -> None:
    """Assert that it worked, and took at least as long as the site."""
    assert measured.error == ""
    assert SLOWNESS_S * 1000 <= measured.delay < 2000


@pytest.mark.parametrize("kind", NODES)
async def test_a_delay_is_measured_through_the_node(run_dir: Path, kind: str) -> None:
    async with nodes(run_dir) as pool, site() as requests:
        assert_is_the_sites(await delay(pool, NODES[kind], f"{HTTP}/204?x=1"))
        assert requests == [f"HEAD /204?x=1 HTTP/1.1 Host: site.test:{HTTP_PORT}"]


@pytest.mark.parametrize("read_max", [13, 4096, 100_000])
async def test_a_probe_can_return_the_beginning_of_the_page(run_dir: Path, read_max: int) -> None:
    async with nodes(run_dir) as pool, site() as requests:
        wanted = msgspec.structs.replace(probe("it", NODES["socks"]), read_max=read_max)
        found = (await pool.delays([wanted], f"{HTTP}/page", 2000))["it"]
        assert_is_the_sites(found)
        assert found.page.startswith(b"ip=192.0.2.1\n")
        assert len(found.page) == min(read_max, 26_013)
        assert requests[0].startswith("GET /page HTTP/1.1")
        # An answer without a page is valid too.
        found = (await pool.delays([wanted], f"{HTTP}/204", 2000))["it"]
        assert (found.error, found.page) == ("", b"")


@pytest.mark.parametrize("strict", [True, False])
async def test_https_is_verified_against_the_systems_certificates(
    run_dir: Path, tmp_path: Path, strict: bool
) -> None:
    authority = Authority(tmp_path, strict=strict)
    certificate = authority.certificate("site.test", ["127.0.0.1"])
    async with nodes(run_dir) as pool, site(certificate) as requests:
        measured = await delay(pool, SS, f"{HTTPS}/204")
        assert measured.error == "TLS failure: unable to get local issuer certificate"
        assert requests == []
    os.environ["SSL_CERT_FILE"] = str(authority.file)
    async with nodes(run_dir) as pool, site(certificate) as requests:
        assert_is_the_sites(await delay(pool, SS, f"{HTTPS}/204"))
        assert_is_the_sites(await delay(pool, SOCKS, f"https://127.0.0.1:{HTTPS_PORT}/204"))
        measured = await delay(pool, SS, f"https://localhost:{HTTPS_PORT}/204")
        assert "Hostname mismatch" in measured.error
        assert len(requests) == 2


@pytest.mark.parametrize("status", [200, 302, 404, 503])
async def test_any_response_counts_and_redirects_are_not_followed(
    run_dir: Path, status: int
) -> None:
    async with nodes(run_dir) as pool, site() as requests:
        assert_is_the_sites(await delay(pool, SS, f"{HTTP}/{status}"))
        assert len(requests) == 1


WRONG = {
    "closed port": (SOCKS | {"server_port": 9}, "", "connection refused"),
    "closed UDP port": (
        {
            "type": "hysteria2",
            "server": "127.0.0.1",
            "server_port": 9,
            "password": "x",
            "tls": {"enabled": True, "server_name": "a.test"},
        },
        "",
        "connection refused",
    ),
    "wrong socks password": (SOCKS | {"password": "no"}, "", "wrong user name or password"),
    "no socks password": (
        {"type": "socks", "server": "127.0.0.1", "server_port": 1081},
        "",
        "wrong user name or password",
    ),
    "wrong http password": (PROXY | {"password": "no"}, "", "wrong user name or password"),
    "wrong ss password": (SS | {"password": "no"}, "", "the node closed the connection"),
    "no such name": (SOCKS | {"server": "no.invalid"}, "", "the node's name was not resolved"),
    "silent node": (BLACK_HOLE, "", "timed out after 700 ms, connecting through the node"),
    "silent site": (SS, "/mute", "timed out after 700 ms, waiting for an answer through the node"),
    "site that is down": (SS, ":9/", "the node closed the connection without an answer"),
    "site that socks says is down": (SOCKS, ":9/", "the node does not reach the site"),
    "site that is no web site": (SS, "/noise", "the site's answer is not HTTP"),
    "refused configuration": (SS | {"method": "rot13"}, "", "unknown method: rot13"),
}


@pytest.mark.usefixtures("black_hole")
async def test_a_failed_measurement_has_a_reason(run_dir: Path) -> None:
    async with nodes(run_dir) as pool, site():
        resolver = {"servers": [{"type": "udp", "tag": "d", "server": "127.0.0.1"}]}
        for case, (outbound, path, why) in WRONG.items():
            url = f"http://site.test{path}" if path.startswith(":") else f"{HTTP}{path}"
            found = await pool.delays([probe(case, outbound, dns=resolver)], url, 700)
            assert found[case].delay == -1
            assert why in found[case].error, case


@pytest.mark.usefixtures("black_hole")
async def test_the_time_limit_is_that_of_the_caller(run_dir: Path) -> None:
    async with nodes(run_dir) as pool, site():
        await delay(pool, SS, HTTP)
        for timeout_ms in (200, 1200):
            began = time.monotonic()
            assert (await delay(pool, BLACK_HOLE, HTTP, timeout_ms)).delay == -1
            assert 0 <= time.monotonic() - began - timeout_ms / 1000 < 2
        assert (await delay(pool, SS, HTTP, int(SLOWNESS_S * 1000) - 10)).delay == -1
        assert_is_the_sites(await delay(pool, SS, HTTP))


async def test_a_node_is_reached_through_its_relay(run_dir: Path) -> None:
    relayed = {**SOCKS, "tag": "node", "detour": "relay"}
    relay = {**SS, "tag": "relay", "routing_mark": MARK}
    async with nodes(run_dir) as pool, site():
        both = ProbeDocument(name="both", config=document({}, outbounds=[relayed, relay]))
        broken = ProbeDocument(
            name="broken", config=document({}, outbounds=[relayed, relay | {"server_port": 9}])
        )
        found = await pool.delays([both, broken], HTTP, 2000)
        assert_is_the_sites(found["both"])
        assert found["broken"] == Delay(delay=-1, error=as_sentence("connection refused"))


async def test_one_bad_configuration_does_not_affect_the_others(run_dir: Path) -> None:
    probes = [probe(f"good {n}", SS) for n in range(20)]
    probes[7:7] = [
        probe("refused", SS | {"method": "rot13"}),
        ProbeDocument(name="nonsense", config="{"),
        probe("alone", SOCKS, ntp={"enabled": False}),
        probe("crash", SS, **CRASHES),
    ]
    async with nodes(run_dir) as pool, site():
        found = await pool.delays(probes, HTTP, 2000)
        assert set(found) == {p.name for p in probes}
        assert found["refused"].error == "unknown method: rot13"
        assert "not a sing-box document" in found["nonsense"].error
        assert "the engine crashes on it" in found["crash"].error
        for measured in (*(found[f"good {n}"] for n in range(20)), found["alone"]):
            assert_is_the_sites(measured)
        assert pool.running().keys() == {"servers"}


@pytest.mark.usefixtures("black_hole")
async def test_hundreds_of_probes_half_of_them_dead_end_near_the_time_limit(run_dir: Path) -> None:
    kinds = [SS, SOCKS, BLACK_HOLE, SOCKS | {"server_port": 9}]
    probes = [probe(str(n), kinds[n % 4]) for n in range(400)]
    async with nodes(run_dir) as pool, site():
        began = time.monotonic()
        found = await pool.delays(probes, HTTP, 2000)
        took = time.monotonic() - began
        # On an idle machine 3.5 s; one after the other, the dead ones alone take 200 s.
        assert took < 2 + 15
        for n in range(400):
            assert (found[str(n)].delay > 0) == (n % 4 < 2), found[str(n)]
        trial = int((run_dir / "trial.lock").read_text().split()[0])
        resident = Path(f"/proc/{trial}/statm").read_text().split()[1]
        assert int(resident) * os.sysconf("SC_PAGESIZE") < 200e6
        # Connections to the black hole live on for sing-box's connect timeout of 5 s.
        await eventually(lambda: descriptors(trial) < 40, timeout_s=15)


async def test_an_invalid_url_is_refused(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        with pytest.raises(Invalid, match="url must be an http:// or https:// URL"):
            await pool.delays([probe("it", SS)], "file:///etc/passwd", 1000)
        assert await pool.delays([], HTTP, 1000) == {}


@pytest.mark.usefixtures("black_hole")
async def test_default_deny_rules_stop_unmarked_sockets_except_on_loopback(
    run_dir: Path, namespace: Namespace
) -> None:
    """Under the engine's default-deny rules, as `planner` lays them, unmarked packets go
    nowhere.
    """
    namespace.shell(
        f"ip rule add priority 800 fwmark {MARK:#x}/0xf0000000 lookup main;"
        f"ip rule add priority 890 uidrange {UID}-{UID} prohibit"
    )

    unmarked = ProbeDocument(name="unmarked", config=document(BLACK_HOLE))
    async with nodes(run_dir) as pool, site():
        found = await pool.delays([unmarked, probe("marked", BLACK_HOLE)], HTTP, 600)
        assert found["unmarked"].error == "the node's egress is blocked"
        assert "timed out" in found["marked"].error
        assert_is_the_sites(await delay(pool, SS, HTTP))
