"""The lab is honest: servers see the real peers, captures see all packets, and nothing is left
behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from egressd.model.errors import Failed, Invalid
from egressd_lab import netns, packets
from egressd_lab import spec as plan
from egressd_lab.client import Client, flood_from
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER, Node
from egressd_lab.ownership import abandoned
from egressd_lab.spec import LabSpec, Place

pytestmark = pytest.mark.lab

WEB = plan.WEB_SERVERS[0]


@pytest.fixture(scope="module")
def bare(namespaces: None) -> Iterator[Lab]:
    """Yield a lab without egressd, whose router forwards nothing by itself."""
    with Lab(LabSpec(clients=40, second_lan=True)) as lab:
        yield lab


@pytest.fixture
def open_lab(bare: Lab) -> Iterator[Lab]:
    """Yield the same with a plain masquerading router: the positive control."""
    with bare.plain_router():
        yield bare


# --- Servers see the right address. ---


def test_nothing_passes_a_router_that_does_not_forward(bare: Lab) -> None:
    token = packets.new_token()
    with bare.internet.capture() as capture:
        results = bare.client(1).every_way(token, timeout=0.5)
        assert all(not result.ok for result in results.values())
        assert capture.flows(token) == []


def test_control_every_probe_leaves_and_is_captured(open_lab: Lab) -> None:
    client = open_lab.client(1)
    token = packets.new_token()
    with open_lab.internet.capture() as capture:
        capture.prove()
        results = client.every_way(token)
        assert {kind: result.error for kind, result in results.items() if not result.ok} == {}
        seen = {result.seen for kind, result in results.items() if result.seen and "6/" not in kind}
        assert seen == {open_lab.wan(1).address}
        arrived = [f for f in capture.flows(token) if not f.outgoing]
        assert {f.interface for f in arrived} == {"isp1"}
        ways = {(f.protocol, f.port, ":" in f.source) for f in arrived}
    assert ways >= {
        *(("tcp", port, False) for port in (7, 53, 80, 853)),
        *(("udp", port, False) for port in (7, 53, 443, 853)),
        ("udp", 0, False),  # a later fragment
        ("icmp", 0, False),
        ("tcp", 80, True),
        ("udp", 7, True),
        ("udp", 53, True),
        ("icmpv6", 0, True),
    }


def test_a_default_route_by_the_second_wan_is_used(open_lab: Lab) -> None:
    wan = open_lab.wan(2)
    route = f"default via {wan.gateway} dev {wan.interface} metric 50"
    open_lab.topology.ip("router", [f"route add {route}"])
    try:
        assert open_lab.client(1).http(f"http://{WEB}/").seen == wan.address
    finally:
        open_lab.topology.ip("router", [f"route del {route}"])
    assert open_lab.client(1).http(f"http://{WEB}/").seen == open_lab.wan(1).address


def test_clients_send_from_their_own_addresses(open_lab: Lab) -> None:
    with open_lab.router.capture("lan0") as capture:
        for number in (1, 3, 4, 40):
            client = open_lab.client(number)
            token = packets.new_token()
            assert client.udp_echo(token).ok
            sources = {f.source for f in capture.flows(token, outgoing=False)}
            assert sources == {client.address}
    assert len({c.address for c in open_lab.clients}) == 40


def test_guests_are_on_the_second_lan(open_lab: Lab) -> None:
    with open_lab.router.capture("lan1") as capture:
        token = capture.prove(lambda token: open_lab.guest(1).udp_echo(token))
        assert {f.source for f in capture.flows(token, outgoing=False)} == {"10.78.0.11"}


def test_servers_record_the_address_of_the_peer(open_lab: Lab) -> None:
    client = open_lab.client(2)
    mark = open_lab.internet.mark()
    token = packets.new_token()
    assert client.http(f"http://www.example.com/{token}", resolver="8.8.8.8").ok
    assert client.tcp_echo(token).ok
    asked = [
        (s.service, s.server, s.port, s.text)
        for s in open_lab.internet.seen(since=mark)
        if s.text and s.source == open_lab.wan(1).address
    ]
    assert asked == [
        ("dns", "8.8.8.8", 53, "www.example.com A"),
        ("http", WEB, 80, f"GET www.example.com /{token}"),
        ("tcp", WEB, 7, token),
    ]
    assert len(open_lab.internet.seen(since=mark, text=token)) == 2


def test_resolvers_answer_from_the_zone(open_lab: Lab) -> None:
    client = open_lab.client(1)
    for resolver in plan.RESOLVERS.values():
        for tcp in (False, True):
            assert client.dns("a.b.test", resolver, tcp=tcp).addresses == (WEB,)
    google = plan.RESOLVERS["google"]
    assert client.dns("whoami.test", google).addresses == (open_lab.wan(1).address,)
    assert client.dns("dual.test", google, "AAAA").addresses == plan.SERVERS6
    assert client.dns("nowhere.invalid", google).rcode == "NXDOMAIN"
    open_lab.internet.put_name("new.example", "203.0.113.12")
    assert client.dns("NEW.example", google).addresses == ("203.0.113.12",)
    unanswered = client.dns("a.test", "203.0.113.99", timeout=0.3)
    assert not unanswered.ok


def test_https_is_trusted_with_the_labs_authority_only(open_lab: Lab) -> None:
    client = open_lab.client(1)
    trusted = str(open_lab.authority.file)
    google = plan.RESOLVERS["google"]
    assert client.http("https://www.gstatic.com/generate_204", resolver=google, ca=trusted).ok
    assert client.http(f"https://{WEB}/", ca="/etc/ssl/certs/ca-certificates.crt").error[:4] == (
        "tls:"
    )


def test_bodies_arrive_whole_in_both_directions(open_lab: Lab) -> None:
    client = open_lab.client(1)
    size = 200_000_001
    for url in (f"http://{WEB}/bytes/{size}", f"https://{WEB}/bytes/{size}"):
        reply = client.http(url, verify=True, timeout=60)
        assert (reply.error, reply.size) == ("", size)
    told = client.http(f"http://{WEB}/up", method="PUT", upload=size, timeout=60).json
    assert (told["received"], told["intact"]) == (size, True)


def test_a_body_other_than_the_pattern_is_noticed(open_lab: Lab) -> None:
    reply = open_lab.client(1).http(f"http://{WEB}/drip/3", verify=True)
    assert reply.error.startswith("wrong: the body differs")


def test_errors_have_the_name_of_the_errno(open_lab: Lab) -> None:
    client = open_lab.client(1)
    assert client.http(f"http://{WEB}:81/").error == "ECONNREFUSED"
    assert client.udp_echo("x", WEB, 81).error == "ECONNREFUSED"
    open_lab.router.run("ip", "route", "add", "unreachable", "203.0.113.200")
    open_lab.router.run("ip", "route", "add", "prohibit", "203.0.113.201")
    # Each has its own client, since the router sends one client few ICMP errors a second.
    tcp, udp, icmp = (open_lab.client(n) for n in (1, 2, 3))
    for address in ("203.0.113.200", "203.0.113.201"):
        assert tcp.tcp_echo("x", address).error == "EHOSTUNREACH"
        assert udp.udp_echo("x", address).error == "EHOSTUNREACH"
        assert icmp.ping(address).error == "EHOSTUNREACH"


# --- Connections that stay. ---


def test_a_connection_survives_silence_and_notices_its_end(open_lab: Lab) -> None:
    connection = open_lab.client(1).connect()
    assert connection.exchange("one").seen == open_lab.wan(1).address
    open_lab.wan(1).silence()
    try:
        assert connection.exchange("two", timeout=0.3).error == "timeout"
        assert connection.state() == "open"
    finally:
        open_lab.wan(1).speak()
    assert connection.exchange("three", timeout=10).ok  # TCP sent the lost data again
    open_lab.internet.run("ss", "-K", "sport", "=", ":7")
    assert connection.exchange("four", timeout=2).error in ("ECONNRESET", "closed", "EPIPE")
    assert connection.state() != "open"
    connection.close()


def test_a_download_shows_its_progress_and_its_pauses(open_lab: Lab) -> None:
    download = open_lab.client(2).download(f"http://{WEB}/drip/1000")
    time.sleep(0.3)
    early = download.progress()
    assert (early.seen, early.finished, early.error) == (open_lab.wan(1).address, False, "")
    assert early.received > 0
    open_lab.wan(1).silence()
    time.sleep(0.5)
    open_lab.wan(1).speak()
    late = download.stop()
    assert late.received >= early.received
    assert late.longest_pause > 0.4
    short = open_lab.client(2).download(f"http://{WEB}/bytes/3000000", verify=True)
    _wait(lambda: short.progress().finished)
    assert (short.progress().received, short.stop().error) == (3_000_000, "")


# --- Captures. ---


@pytest.mark.parametrize("kind", ["udp", "tcp", "icmp"])
def test_a_capture_counts_every_packet_of_a_flood(open_lab: Lab, kind: str) -> None:
    token = packets.new_token()
    with open_lab.internet.capture("isp1", keep=True) as capture:
        before = time.time_ns()
        flood = open_lab.client(1).flood(token, kind=kind, rate=5_000, size=64)
        time.sleep(0.5)
        report = flood.stop()
        after = time.time_ns()
        assert 1_000 < report.sent <= 5_000 * report.seconds + 1
        arrived = [p for p in capture.packets(token) if not p.outgoing]
        assert [p.sequence for p in arrived] == list(range(report.sent))
        assert sum(f.packets for f in capture.flows(token, outgoing=False)) == report.sent
        assert before < arrived[0].time_ns <= arrived[-1].time_ns < after
        assert {p.source for p in arrived} == {open_lab.wan(1).address}


def test_a_flood_of_many_clients_gives_each_its_token(open_lab: Lab) -> None:
    senders = [(open_lab.client(n), packets.new_token()) for n in range(4, 41)]
    with open_lab.router.capture("lan0") as capture:
        flood = flood_from(senders, rate=3_700)
        time.sleep(0.3)
        report = flood.stop()
        flows = capture.flows(protocol="udp", port=plan.DISCARD_PORT)
        assert {(f.source, f.token) for f in flows} == {(c.address, token) for c, token in senders}
        counts = [f.packets for f in flows]
    assert sum(counts) == report.sent
    assert max(counts) - min(counts) <= 1


def test_a_blind_capture_is_detected(open_lab: Lab) -> None:
    with open_lab.internet.capture("isp2") as capture:
        capture.prove()
        with pytest.raises(Failed, match="does not see a token on isp2"):
            capture.prove(lambda token: open_lab.client(1).udp_echo(token))


def test_a_capture_can_be_cleared(open_lab: Lab) -> None:
    with open_lab.internet.capture() as capture:
        token = capture.prove()
        capture.clear()
        assert capture.flows(token) == []
        assert capture.interfaces_of(capture.prove()) >= {"isp1", "isp2", "lo", "to-ss"}


def test_a_token_in_a_dns_name_is_seen_in_any_case(open_lab: Lab) -> None:
    with open_lab.internet.capture("isp1") as capture:
        token = packets.new_token()
        assert open_lab.client(1).dns(f"{token}.test".upper(), plan.RESOLVERS["google"]).ok
        assert {f.port for f in capture.flows(token)} == {53}


def test_the_spoofer_is_captured_with_its_forged_address(open_lab: Lab) -> None:
    with open_lab.router.capture("lan0") as capture:
        for protocol in (packets.UDP, packets.TCP, packets.ICMP, 47):
            token = packets.new_token()
            open_lab.spoofer.raw("10.77.0.11", WEB, protocol=protocol, text=token)
            assert {f.source for f in capture.flows(token, outgoing=False)} == {"10.77.0.11"}


# --- Nodes. ---


def test_each_node_leaves_by_its_own_address(open_lab: Lab) -> None:
    for name in ("socks5", "socks5-udp", "http"):
        node = open_lab.nodes[name]
        for url in (f"http://{WEB}/", "http://www.example.com/", "https://www.example.com/"):
            told = json.loads(_curl(open_lab, node, PASSWORD, url).stdout)
            assert told["ip"] == node.address
        refused = _curl(open_lab, node, "another", f"https://{WEB}/")
        assert refused.returncode != 0
    addresses = [node.address for node in open_lab.nodes.values()]
    assert len(set(addresses)) == len(addresses)


def test_a_node_uses_the_resolver_for_nodes(open_lab: Lab) -> None:
    mark = open_lab.internet.mark()
    for name in ("socks5", "http"):
        token = packets.new_token()
        node = open_lab.nodes[name]
        _curl(open_lab, node, PASSWORD, f"http://{token}.test/")
        asked = open_lab.internet.seen(since=mark, service="dns", text=token)
        assert {(s.source, s.server) for s in asked} == {(node.address, plan.RESOLVERS["node"])}


def test_nodes_serve_udp_as_configured(open_lab: Lab) -> None:
    served = {"socks5": False, "socks5-udp": True, "ss": True}
    outbounds = [_outbound(open_lab.nodes[name]) for name in served]
    with _relays(open_lab, outbounds) as ports:
        for port, (name, udp) in zip(ports, served.items(), strict=True):
            node = open_lab.nodes[name]
            client = open_lab.client(1)
            tcp_reply = client.tcp_echo("t", "127.0.0.1", port, source="")
            assert tcp_reply.seen == node.address
            udp_reply = client.udp_echo("u", "127.0.0.1", port, source="", timeout=1)
            assert udp_reply.seen == (node.address if udp else "")
            assert bool(node.clash["udp"]) is udp


def test_a_killed_node_refuses_and_a_restarted_one_serves_again(open_lab: Lab) -> None:
    for name in ("socks5", "socks5-udp", "http"):
        node = open_lab.nodes[name]
        node.program.kill()
        assert not netns.processes([node.program.namespace])
        assert _curl(open_lab, node, PASSWORD, f"http://{WEB}/").returncode != 0
        open_lab.start_node(node)
        assert _curl(open_lab, node, PASSWORD, f"http://{WEB}/").returncode == 0


def test_one_engine_node_serves_many_addresses(open_lab: Lab) -> None:
    secret = "AAAAAAAAAAAAAAAAAAAAAA=="
    method = "2022-blake3-aes-128-gcm"
    inbound = {"type": "shadowsocks", "listen_port": 443, "method": method, "password": secret}
    addresses = open_lab.add_engine_node("many", [inbound] * 300)
    chosen = [addresses[0], addresses[149], addresses[299]]
    outbounds = [
        {
            "type": "shadowsocks",
            "server": address,
            "server_port": 443,
            "method": method,
            "password": secret,
        }
        for address in chosen
    ]
    with _relays(open_lab, outbounds) as ports:
        for port, address in zip(ports, chosen, strict=True):
            client = open_lab.client(1)
            assert client.tcp_echo("t", "127.0.0.1", port, source="").seen == address
            assert client.udp_echo("u", "127.0.0.1", port, source="").seen == address


def test_engine_nodes_serve_every_protocol(open_lab: Lab) -> None:
    certificate, key = open_lab.authority.certificate("node.test")
    uuid = "6a7c0f3e-0d0c-4c83-9d0a-0b6d7c6c1a55"
    ours = {
        "enabled": True,
        "certificate_path": str(certificate),
        "key_path": str(key),
        "alpn": ["h3"],
    }
    theirs = {
        "enabled": True,
        "server_name": "node.test",
        "certificate_path": str(open_lab.authority.file),
        "alpn": ["h3"],
    }
    plain_ours = {k: v for k, v in ours.items() if k != "alpn"}
    plain_theirs = {k: v for k, v in theirs.items() if k != "alpn"}
    named = {"name": "u"}
    protocols: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "vmess": ({"users": [{**named, "uuid": uuid}]}, {"uuid": uuid}),
        "vless": (
            {"users": [{**named, "uuid": uuid}], "tls": plain_ours},
            {"uuid": uuid, "tls": plain_theirs},
        ),
        "trojan": (
            {"users": [{**named, "password": "p"}], "tls": plain_ours},
            {"password": "p", "tls": plain_theirs},
        ),
        "anytls": (
            {"users": [{**named, "password": "p"}], "tls": plain_ours},
            {"password": "p", "tls": plain_theirs},
        ),
        "hysteria2": (
            {"users": [{**named, "password": "p"}], "tls": ours},
            {"password": "p", "tls": theirs},
        ),
        "tuic": (
            {"users": [{**named, "uuid": uuid, "password": "p"}], "tls": ours},
            {"uuid": uuid, "password": "p", "tls": theirs},
        ),
    }
    inbounds = [{"type": t, "listen_port": 443, **server} for t, (server, _) in protocols.items()]
    addresses = open_lab.add_engine_node("all", inbounds, network=2)
    outbounds = [
        {"type": t, "server": address, "server_port": 443, **client}
        for address, (t, (_, client)) in zip(addresses, protocols.items(), strict=True)
    ]
    with _relays(open_lab, outbounds) as ports:
        for port, address, protocol in zip(ports, addresses, protocols, strict=True):
            client = open_lab.client(1)
            tcp_reply = client.tcp_echo("t", "127.0.0.1", port, source="")
            assert (protocol, tcp_reply.seen) == (protocol, address)
            udp_reply = client.udp_echo("u", "127.0.0.1", port, source="")
            assert (protocol, udp_reply.seen) == (protocol, address)


# --- Failures of a WAN. ---


def test_a_wan_recovers_from_every_kind_of_failure(open_lab: Lab) -> None:
    wan, client = open_lab.wan(1), open_lab.client(1)

    def index() -> str:
        return open_lab.router.run("cat", f"/sys/class/net/{wan.interface}/ifindex").stdout

    assert client.http(f"http://{WEB}/").seen == wan.address
    before = index()
    wan.unplug()
    assert not client.http(f"http://{WEB}/", timeout=0.3).ok
    wan.restore()
    assert client.http(f"http://{WEB}/").seen == wan.address
    wan.lower()
    assert client.http(f"http://{WEB}/").seen == open_lab.wan(2).address
    wan.restore()
    assert client.http(f"http://{WEB}/").seen == wan.address
    wan.delete()
    assert client.http(f"http://{WEB}/").seen == open_lab.wan(2).address
    wan.recreate()
    assert client.http(f"http://{WEB}/").seen == wan.address
    assert index() != before


# --- Other shapes. ---


def test_one_arm_clients_reach_the_gateway_with_or_without_the_router(
    namespaces: None,
) -> None:
    with Lab(LabSpec(one_arm=True, wans=1, nodes=())) as lab, lab.plain_router():
        client = lab.client(1)
        lab.router.sysctl("net/ipv4/conf/all/send_redirects", 0)
        lab.router.sysctl("net/ipv4/conf/lan0/send_redirects", 0)
        assert client.http(f"http://{WEB}/").seen == str(plan.LAN_ADDRESS)
        client.host.run("ip", "route", "add", WEB, "via", str(plan.ONE_ARM_GATEWAY))
        assert client.http(f"http://{WEB}/").seen == client.address
        links = json.loads(lab.router.run("ip", "-j", "link").stdout)
        assert {link["ifname"] for link in links} == {"lo", "lan0"}


def test_each_of_sixty_four_wans_leads_out(namespaces: None) -> None:
    with Lab(LabSpec(wans=64, clients=1, nodes=())) as lab:
        for wan in lab.wans:
            place = Place(name="router", role="router", address=wan.address)
            reply = Client(lab.router, place).http(f"http://{wan.gateway}/")
            assert reply.seen == wan.address


def test_ten_thousand_clients_have_distinct_addresses() -> None:
    places = plan.client_places(LabSpec(clients=10_000))
    addresses = {place.address for place in places}
    assert len(addresses) == len(places) == 10_001
    network = IPv4Network("10.77.0.0/16")
    assert all(IPv4Address(address) in network for address in addresses)


def test_all_problems_of_a_specification_are_raised_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        Lab(LabSpec(name="No!", clients=0, wans=2, one_arm=True))
    assert len(caught.value.problems) == 3


# --- Nothing stays behind. ---


class Trace:
    """The objects of a running lab on this machine, to look for after its end.

    Other labs may start and end meanwhile: only this one's objects count. So its namespaces are
    held open as long as this object exists: the kernel gives the inode of one that has ended to the
    next one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        spaces = [f"{netns.PREFIX}{name}-{role}" for role in netns.labs()[name]]
        held = [os.open(netns.NETNS_DIR / space, os.O_RDONLY) for space in spaces]
        for each in held:
            weakref.finalize(self, os.close, each)
        self._inodes = {f"net:[{os.fstat(each).st_ino}]" for each in held}
        self._files = [netns.RUN_DIR / name, *(netns.ETC_DIR / s for s in spaces)]
        assert self.left()

    def left(self) -> list[str]:
        """Return its existing namespaces, files and processes."""
        return [
            *(f"namespace {role}" for role in netns.labs().get(self.name, [])),
            *(f"file {path}" for path in self._files if path.exists()),
            *(f"process {pid}" for pid in self._processes()),
        ]

    def _processes(self) -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                inside = (entry / "ns" / "net").readlink().name in self._inodes
                named = f"/{self.name}/".encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if inside or named:
                found.append(entry.name)
        return found


def _interfaces() -> set[str]:
    """Return the interfaces outside of all namespaces."""
    return {name for _, name in socket.if_nameindex()}


def test_nothing_remains_after_a_normal_end(namespaces: None) -> None:
    with Lab(LabSpec(clients=4)) as lab, lab.internet.capture() as capture:
        capture.prove()
        lab.client(1).http(f"http://{WEB}/", timeout=0.1)
        lab.client(1).flood(packets.new_token(), rate=10)
        ours = {wan.interface for wan in lab.wans} | {wan.far for wan in lab.wans} | {"lan0"}
        assert not ours & _interfaces()
        trace = Trace(lab.name)
    assert trace.left() == []


def test_nothing_remains_after_an_error(namespaces: None) -> None:
    traces = []

    def fail_inside() -> None:
        with Lab(LabSpec(nodes=("socks5",))) as lab:
            traces.append(Trace(lab.name))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert traces[0].left() == []


def test_nothing_remains_after_a_failed_build(
    namespaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab()
    traces = []

    def fails(*_: object) -> None:
        traces.append(Trace(lab.name))
        raise Failed("start a node", "on purpose")

    monkeypatch.setattr(lab, "start_node", fails)
    with pytest.raises(Failed, match="on purpose"), lab:
        pytest.fail("the lab was built")
    assert traces[0].left() == []


_HOLD = """
import signal, sys, time
from egressd_lab.lab import Lab
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
with Lab() as lab:
    lab.client(1).flood("egt-000000000000", rate=100)
    print(lab.name, flush=True)
    time.sleep(60)
"""


@contextmanager
def _held_lab() -> Iterator[tuple[subprocess.Popen[str], Trace]]:
    """Yield a lab that another process has built."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as holder:
        assert holder.stdout is not None
        trace = Trace(holder.stdout.readline().strip())
        try:
            yield holder, trace
        finally:
            holder.kill()
            holder.wait()
            netns.remove_lab(trace.name)


def test_nothing_remains_after_an_interrupt(namespaces: None) -> None:
    with _held_lab() as (holder, trace):
        holder.send_signal(signal.SIGINT)
        holder.wait(20)
        assert trace.left() == []


def test_two_runs_may_remove_the_same_abandoned_lab_at_once(namespaces: None) -> None:
    with _held_lab() as (holder, trace):
        holder.kill()
        holder.wait()
        with ThreadPoolExecutor(2) as runs:
            list(runs.map(netns.remove_lab, [trace.name] * 2))
        assert trace.left() == []


def test_a_lab_with_a_killed_owner_is_found_and_removed(namespaces: None) -> None:
    with _held_lab() as (holder, trace):
        assert trace.name not in abandoned()
        holder.kill()
        holder.wait()
        assert trace.name in abandoned()
        netns.remove_lab(trace.name)
        netns.remove_lab(trace.name)  # safe to repeat
        assert trace.left() == []


# --- Pieces that several tests use. ---


def _wait(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _curl(lab: Lab, node: Node, password: str, url: str) -> subprocess.CompletedProcess[str]:
    scheme = "http" if node.protocol == "http" else "socks5h"
    return lab.client(1).host.run(
        *("curl", "--silent", "--show-error", "--fail", "--max-time", "5"),
        *("--cacert", str(lab.authority.file)),
        *("--proxy", f"{scheme}://{USER}:{password}@{node.address}:{node.port}", url),
        check=False,
    )


def _outbound(node: Node) -> dict[str, Any]:
    """Return a sing-box outbound to a node of the lab."""
    where = {"server": node.address, "server_port": node.port, "password": PASSWORD}
    if node.protocol == "ss":
        return {"type": "shadowsocks", "method": node.clash["cipher"], **where}
    return {"type": "socks", "username": USER, **where}


@contextmanager
def _relays(lab: Lab, outbounds: list[dict[str, Any]]) -> Iterator[list[int]]:
    """Yield loopback ports of client1, each relayed to the echo server by one outbound."""
    ports = list(range(9001, 9001 + len(outbounds)))
    relay = {"type": "direct", "listen": "127.0.0.1", "override_address": WEB, "override_port": 7}
    program = lab.start_engine(
        "client1",
        {
            "log": {"level": "warn"},
            "inbounds": [{**relay, "tag": f"in{p}", "listen_port": p} for p in ports],
            "outbounds": [
                {**out, "tag": f"out{p}"} for p, out in zip(ports, outbounds, strict=True)
            ],
            "route": {"rules": [{"inbound": f"in{p}", "outbound": f"out{p}"} for p in ports]},
        },
    )
    try:
        _wait(
            lambda: (
                lab.client(1).tcp_echo("?", "127.0.0.1", ports[-1], source="").ok
                or not program.running
            )
        )
        assert program.running, program.tail()
        yield ports
    finally:
        program.kill()
