"""The whitelist: every form of entry, matched and not matched, for every kind of target."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from egressd.netd.engine.rule_sets import FOLDER
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, LabSpec
from tests.lab.whitelisted import save, served, set_device, visit
from tests.support.device import SERVER, elements, eventually, send, suspended
from tests.support.programs.hellos import ADDRESS, SECOND, Visit

pytestmark = pytest.mark.lab

DOMAINS = """
plain.test, *.star.test
+.plus.test
bücher.test
http://http.test:8000
https://tls.test:9443
quic://quic.test:9443
"""

LISTED = [
    Visit(kind="http", name="plain.test", port=80),
    Visit(kind="http", name="a.plain.test", port=8080),
    Visit(kind="http", name="plain.test:80", port=80),
    Visit(kind="http", name="PLAIN.test", port=80),
    Visit(kind="http", name="star.test", port=80),
    Visit(kind="http", name="a.b.star.test", port=80),
    Visit(kind="http", name="plus.test", port=80),
    Visit(kind="http", name="xn--bcher-kva.test", port=80),
    Visit(kind="http", name="http.test", port=8000),
    Visit(kind="http", name="www.http.test:8000", port=8000),
    Visit(kind="tls1.2", name="plain.test", port=443),
    Visit(kind="tls1.3", name="plain.test", port=443),
    Visit(kind="tls1.3", name="www.plain.test", port=8443),
    Visit(kind="tls1.2", name="plain.test", port=443, pieces=4),
    Visit(kind="tls1.3", name="plain.test", port=443, pieces=4),
    Visit(kind="tls1.2", name="tls.test", port=9443),
    Visit(kind="tls1.3", name="a.tls.test", port=9443),
    Visit(kind="quic", name="plain.test", port=443),
    Visit(kind="quic", name="www.plain.test", port=8443),
    Visit(kind="quic", name="plain.test", port=443, pieces=2),
    Visit(kind="quic", name="plain.test", port=443, pieces=3),
    Visit(kind="quic", name="quic.test", port=9443),
    Visit(kind="quic", name="quic.test", port=9443, pieces=2),
]
UNLISTED = [
    Visit(kind="http", name="other.test", port=80),
    Visit(kind="http", name="notplain.test", port=80),
    Visit(kind="http", name="plain.test.other.test", port=80),
    Visit(kind="http", name="plain.test", port=8000),
    Visit(kind="http", name="http.test", port=80),
    Visit(kind="tls1.2", name="other.test", port=443),
    Visit(kind="tls1.3", name="", port=443),
    Visit(kind="tls1.3", name="plain.test", port=9443),
    Visit(kind="tls1.3", name="plain.test", port=8444),
    Visit(kind="tls1.3", name="tls.test", port=443),
    Visit(kind="tls1.3", name="quic.test", port=9443),
    Visit(kind="quic", name="other.test", port=443),
    Visit(kind="quic", name="other.test", port=443, pieces=2),
    Visit(kind="quic", name="plain.test", port=8444),
    Visit(kind="quic", name="tls.test", port=9443),
    Visit(kind="quic", name="quic.test", port=443),
]


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=4, wans=3)) as lab:
        lab.start_egressd()
        with served(lab):
            yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab, nodes: None) -> Iterator[None]:
    yield
    save(lab)


def hasty(visits: Iterable[Visit]) -> list[Visit]:
    """Return visits that do not wait long for an answer, for those that get none."""
    return [replace(one, patience=2.0) for one in visits]


def wrong(lab: Lab, client: int, visits: list[Visit], expected: str) -> list[tuple[Visit, str]]:
    """Return the visits that were not seen with the expected address."""
    return [
        (one, seen)
        for one, seen in zip(visits, visit(lab, client, visits), strict=True)
        if seen != expected
    ]


@pytest.mark.parametrize("node", ["DIRECT", "ss", "Group_far"])
@pytest.mark.parametrize("target", ["Interface:wan2", "socks5-udp", "REJECT"])
def test_every_form_of_entry_is_matched(lab: Lab, target: str, node: str) -> None:
    ss = next(n for n in lab.api.get("/nodes")["data"] if n["name"] == "ss")
    lab.api.patch("/nodes/batch", {"ids": [ss["id"]], "group": "far"})
    send(lab, 1, target)
    before = visit(lab, 1, LISTED[:1])
    save(lab, DOMAINS, node=node)
    there = lab.wan(1).address if node == "DIRECT" else lab.nodes["ss"].address
    own = {"Interface:wan2": lab.wan(2).address, "socks5-udp": lab.nodes["socks5-udp"].address}
    assert wrong(lab, 1, LISTED, there) == []
    seen = visit(lab, 1, hasty(UNLISTED) if target == "REJECT" else UNLISTED)
    if target == "REJECT":
        assert before == ["ConnectionRefusedError"]
        assert [(one, way) for one, way in zip(UNLISTED, seen, strict=True) if "." in way] == []
    else:
        assert before == [own[target]]
        assert dict.fromkeys(seen) == {own[target]: None}


@pytest.mark.parametrize("node", ["DIRECT", "ss"])
@pytest.mark.parametrize("target", ["Interface:wan2", "socks5-udp", "REJECT"])
def test_listed_addresses_use_the_destination_for_every_protocol(
    lab: Lab, target: str, node: str
) -> None:
    send(lab, 1, target)
    save(lab, ips=f"203.0.113.8/30, {ADDRESS}", node=node)
    there = lab.wan(1).address if node == "DIRECT" else lab.nodes["ss"].address
    client = lab.client(1)
    for address in (SERVER, "203.0.113.11", ADDRESS):
        assert client.http(f"http://{address}:8000/").seen == there
        assert client.http(f"https://{address}/").seen == there
    assert client.udp_echo("hello", SERVER).seen == there
    assert client.tcp_echo("hello", SERVER, 22).seen == there
    elsewhere = client.http("http://203.0.113.12/")
    own = {"Interface:wan2": lab.wan(2).address, "socks5-udp": lab.nodes["socks5-udp"].address}
    assert elsewhere.seen == own.get(target, "")


@pytest.mark.parametrize("target", ["REJECT", "gone"])
def test_refused_clients_can_resolve_listed_domains(lab: Lab, target: str) -> None:
    gone = lab.api.post("/nodes", {**lab.nodes["ss"].draft(), "name": "gone"})
    send(lab, 1, target)
    lab.api.delete(f"/nodes/{gone['id']}")
    client = lab.client(1)
    assert not client.dns("plain.test", RESOLVERS["google"]).ok
    save(lab, "plain.test\nhttps://tls.test:9443")
    mark = lab.internet.mark()
    for server in (RESOLVERS["google"], str(LAN_ADDRESS)):
        for tcp in (False, True):
            assert client.dns("www.plain.test", server, tcp=tcp).addresses == (SERVER,)
            assert client.dns("tls.test", server, tcp=tcp).ok
            refused = client.dns("other.test", server, tcp=tcp)
            assert (refused.rcode, refused.addresses) == ("REFUSED", ())
            assert refused.seconds < 1
    assert client.http("https://plain.test/", resolver=RESOLVERS["google"]).ok
    assert lab.internet.seen(since=mark, text="other.test") == []
    save(lab, ips=SERVER)
    assert not client.dns("plain.test", RESOLVERS["google"]).ok


def test_clients_without_a_rule_have_no_whitelist(lab: Lab) -> None:
    try:
        for target in ("Interface:wan2", "socks5-udp", "DIRECT"):
            own = {"Interface:wan2": lab.wan(2).address, "DIRECT": lab.wan(1).address}.get(
                target, lab.nodes["socks5-udp"].address
            )
            send(lab, 1, "Interface:wan3")
            send(lab, 3, target)
            set_device(lab, unmanaged=target)
            node = "ss"
            with lab.client(2).host.socket(SERVER, 7) as held:
                held.settimeout(5)
                held.recv(100)
                save(lab, DOMAINS, SERVER, node)
                there = lab.nodes[node].address
                assert set(visit(lab, 2, LISTED)) == {own}
                assert lab.client(2).http(f"http://{SERVER}/").seen == own
                assert set(visit(lab, 1, LISTED)) == {there}
                assert lab.client(1).http(f"http://{SERVER}/").seen == there
                save(lab, "another.test", node=node)
                save(lab)
                held.sendall(b"still here\n")
                assert held.recv(100) == b"still here\n"
    finally:
        set_device(lab, unmanaged="REJECT")


def test_without_recognition_domains_are_not_matched(lab: Lab) -> None:
    try:
        assert "inactive" not in set_device(lab, sniff_domains=False)
        send(lab, 1, "Interface:wan2")
        send(lab, 2, "socks5-udp")
        told = save(lab, DOMAINS, SERVER)
        assert "7 domain entries are inactive" in told
        assert lab.api.get("/whitelist")["domains"] == DOMAINS
        assert set(visit(lab, 1, LISTED)) == {lab.wan(2).address}
        assert set(visit(lab, 2, LISTED)) == {lab.nodes["socks5-udp"].address}
        for client in (1, 2):
            assert lab.client(client).http(f"http://{SERVER}/").seen == lab.wan(1).address
        assert elements(lab, "set", "wlports") == elements(lab, "map", "sniff") == ""
    finally:
        set_device(lab, sniff_domains=True)
    assert set(visit(lab, 1, LISTED)) == {lab.wan(1).address}


PORT = 40_000
ASKED_BY_ONE_PORT = [
    Visit(kind="quic", name="plain.test", port=443, local_port=PORT),
    Visit(kind="quic", name="other.test", port=8443, local_port=PORT),
    Visit(kind="quic", name="quic.test", port=9443, local_port=PORT),
    Visit(kind="quic", name="other.test", port=443, address=SECOND, local_port=PORT),
    Visit(kind="quic", name="other.test", port=8444, local_port=PORT),
    Visit(kind="quic", name="plain.test", port=8443, address=SECOND, local_port=PORT),
]
IS_LISTED = [True, False, True, False, False, True]


@pytest.mark.parametrize("node", ["DIRECT", "ss"])
@pytest.mark.parametrize("target", ["Interface:wan2", "socks5-udp", "REJECT"])
def test_one_port_of_a_client_has_an_egress_for_each_destination(
    lab: Lab, target: str, node: str
) -> None:
    """P1: the engine sends all packets from one address and port to the first destination. Past
    fault: QUIC from one port to several servers, one of them listed, all left by the whitelist's
    destination.
    """
    send(lab, 1, target)
    save(lab, DOMAINS, node=node)
    there = lab.wan(1).address if node == "DIRECT" else lab.nodes["ss"].address
    own = {"Interface:wan2": lab.wan(2).address, "socks5-udp": lab.nodes["socks5-udp"].address}
    expected = [there if listed else own.get(target, "TimeoutError") for listed in IS_LISTED]
    # The visits run one after the other, and one without an answer takes its whole timeout.
    visits = [
        hasty([one])[0] if seen == "TimeoutError" else one
        for one, seen in zip(ASKED_BY_ONE_PORT, expected, strict=True)
    ]
    assert visit(lab, 1, visits) == expected
    assert visit(lab, 1, visits[::-1]) == expected[::-1]


def test_downloads_to_one_port_from_many_servers_are_counted(lab: Lab) -> None:
    send(lab, 2, "socks5-udp")
    save(lab, DOMAINS)
    before = received(lab, 2)
    assert "TimeoutError" not in visit(lab, 2, ASKED_BY_ONE_PORT[:4])
    eventually(lambda: received(lab, 2) - before > 4 * _CERTIFICATE_BYTES)


_CERTIFICATE_BYTES = 1000
"""Bytes that a QUIC server sends at least."""


def received(lab: Lab, client: int) -> int:
    """Return the bytes that a client has received."""
    counters = lab.api.ask("GET", "/ops/counters").body["data"]
    return int(counters.get(lab.client(client).address, {"download_bytes": 0})["download_bytes"])


def test_a_flow_follows_its_port_onto_the_whitelist(lab: Lab) -> None:
    one = [Visit(kind="quic", name="quic.test", port=9443, local_port=PORT + 1)]
    send(lab, 1, "socks5-udp")
    assert visit(lab, 1, one) == [lab.nodes["socks5-udp"].address]
    save(lab, "quic://quic.test:9443")
    eventually(lambda: visit(lab, 1, hasty(one)) == [lab.wan(1).address], 20)


def test_udp_that_would_share_a_session_is_dropped(lab: Lab) -> None:
    """P1: this holds even while no process removes stale flows."""
    send(lab, 1, "socks5-udp")
    save(lab, DOMAINS)
    one = [Visit(kind="quic", name="other.test", port=8444, local_port=PORT + 2)]
    assert visit(lab, 1, one) == [lab.nodes["socks5-udp"].address]
    with suspended(lab, "egressd.app netd"):
        lab.router.run("nft", "add element inet egressd wlports { udp . 8444 }")
        assert visit(lab, 1, hasty(one)) == ["TimeoutError"]
        lab.router.run("conntrack", "-D", "-p", "udp", "--dport", "8444")
        assert visit(lab, 1, one) == [lab.nodes["socks5-udp"].address]
    eventually(lambda: "8444" not in elements(lab, "set", "wlports"))


def test_only_traffic_to_ports_of_entries_enters_userspace(lab: Lab) -> None:
    send(lab, 1, "Interface:wan2")
    assert elements(lab, "map", "sniff") == ""
    save(lab, "https://tls.test:9443", node="ss")
    assert elements(lab, "set", "wlports") == "tcp . 9443"
    # The entries are wan2's, and that of REJECT and of rules whose target is gone.
    assert elements(lab, "map", "sniff").count(":") == 2
    # The engine is suspended: traffic that does not need it goes on.
    with suspended(lab):
        assert not lab.client(1).http(f"https://{ADDRESS}:9443/", timeout=0.5).ok
        client = lab.client(1)
        assert client.http(f"https://{SERVER}/").seen == lab.wan(2).address
        assert client.tcp_echo("hello", SERVER, 22).seen == lab.wan(2).address
        assert client.udp_echo("hello", SERVER, 443).seen == lab.wan(2).address
    save(lab, ips=SERVER, node="ss")
    assert elements(lab, "set", "wlports") == elements(lab, "map", "sniff") == ""


def test_saving_clears_connections_of_clients_with_rules_only(lab: Lab) -> None:
    try:
        set_device(lab, unmanaged="Interface:wan3")
        save(lab, ips="192.0.2.200")
        send(lab, 1, "Interface:wan2")
        send(lab, 2, "socks5-udp")
        send(lab, 3, "DIRECT")
        ruled = [lab.client(number).connect() for number in (1, 2, 3)]
        unruled = lab.client(4).connect()
        with lab.client(1).host.socket(str(LAN_ADDRESS), 8787) as to_router:
            to_router.settimeout(5)
            lab.api.get("/whitelist")
            save(lab, ips="192.0.2.200")  # an equal change
            for connection in (*ruled, unruled):
                assert connection.exchange("nothing changed").ok
            save(lab, ips="192.0.2.201")
            for connection in ruled:
                assert not connection.exchange("cut", timeout=1).ok
                connection.close()
            assert unruled.exchange("not concerned").ok
            unruled.close()
            to_router.sendall(b"GET /ops/health HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n")
            assert b" 200 " in to_router.recv(100)
        for number, seen in ((1, lab.wan(2)), (2, lab.nodes["socks5-udp"]), (3, lab.wan(1))):
            assert lab.client(number).udp_echo("anew", SERVER).seen == seen.address
            assert lab.client(number).http(f"http://{SERVER}/").seen == seen.address
    finally:
        set_device(lab, unmanaged="REJECT")


def test_another_destination_cuts_no_client_with_another_target(lab: Lab) -> None:
    """P3: a new node for the whitelist changes no target of a rule."""
    save(lab, DOMAINS, node="ss")
    send(lab, 1, "socks5-udp")
    send(lab, 2, "Interface:wan2")
    nodes = {node["name"]: node for node in lab.api.get("/nodes")["data"]}
    connections = [lab.client(number).connect() for number in (1, 2)]
    ss = {key: nodes["ss"][key] for key in ("name", "protocol", "config_json", "group")}
    elsewhere = ss["config_json"].replace("8388", "8389")
    lab.api.put(f"/nodes/{nodes['ss']['id']}", ss | {"config_json": elsewhere})
    assert not set(visit(lab, 1, LISTED[:1])) & {lab.nodes["ss"].address}
    lab.api.put(f"/nodes/{nodes['ss']['id']}", ss)
    assert visit(lab, 1, LISTED[:1]) == [lab.nodes["ss"].address]
    for connection in connections:
        assert connection.exchange("undisturbed").ok
        connection.close()


def test_a_deleted_destination_blocks_listed_traffic(lab: Lab) -> None:
    save(lab, DOMAINS, ips=SERVER, node="ss")
    send(lab, 1, "socks5-udp")
    send(lab, 2, "Interface:wan2")
    node = next(n for n in lab.api.get("/nodes")["data"] if n["name"] == "ss")
    assert "whitelist" in lab.api.delete(f"/nodes/{node['id']}")["msg"]
    exits = [lab.nodes["socks5-udp"].address, lab.wan(2).address]
    for number, own in zip((1, 2), exits, strict=True):
        assert not set(visit(lab, number, LISTED[:2])) & {own, lab.wan(1).address}
        assert not lab.client(number).http(f"http://{SERVER}/").ok
        assert visit(lab, number, UNLISTED[:1]) == [own]
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    for number in (1, 2):
        assert visit(lab, number, LISTED[:1]) == [lab.nodes["ss"].address]


def test_a_failed_removal_of_old_files_does_not_fail_the_change(lab: Lab) -> None:
    save(lab, DOMAINS, node="ss")
    send(lab, 1, "socks5-udp")
    in_the_way = lab.device.config.parent / "run" / "engine" / FOLDER / "not-ours"
    in_the_way.mkdir()
    try:
        revision = lab.api.ask("GET", "/ops/overview").body["revision"]
        save(lab, f"{DOMAINS}\nanother.test", node="ss")
        assert lab.api.ask("GET", "/ops/overview").body["revision"] == revision + 1
        assert visit(lab, 1, LISTED[:1]) == [lab.nodes["ss"].address]
        send(lab, 1, "Interface:wan2")  # a change to the state in force
    finally:
        in_the_way.rmdir()


def test_changes_under_a_flood_send_no_packet_to_a_wrong_egress(lab: Lab) -> None:
    """P1, for the whitelist: after each answer the old egress is not used any more."""
    choice = random.Random(5)
    send(lab, 1, "Interface:wan2")
    send(lab, 2, "REJECT")
    tokens = {1: new_token(), 2: new_token()}
    own = {1: {lab.wan(2).far}, 2: set[str]()}
    with ExitStack() as stack:
        captures = {
            wan.far: stack.enter_context(lab.internet.capture(wan.far, keep=True))
            for wan in lab.wans
        }
        for capture in captures.values():
            capture.prove()
        floods = [
            lab.client(number).flood(token, kind=kind, rate=300)
            for number, token in tokens.items()
            for kind in ("udp", "tcp", "icmp")
        ]
        listed = False
        allowed: list[tuple[int, set[bool]]] = [(0, {listed})]
        """Times, each with the allowed states since then: whether the flood's destination is
        listed.
        """
        for _ in range(30):
            time.sleep(choice.uniform(0.02, 0.2))
            wanted = choice.random() < 0.7 and not listed
            ips = f"{SERVER}\n192.0.2.1" if wanted else f"192.0.2.{choice.randrange(2, 250)}"
            allowed.append((time.time_ns(), {listed, wanted}))
            save(lab, choice.choice(["", DOMAINS]), ips)
            allowed.append((time.time_ns(), {wanted}))
            listed = wanted
        time.sleep(0.1)
        assert sum(flood.stop().sent for flood in floods) > 1000
        wrong, total, on_listed = [], 0, 0
        for far, capture in captures.items():
            for number, token in tokens.items():
                for packet in capture.packets(token):
                    at = max(i for i, (since, _) in enumerate(allowed) if since <= packet.time_ns)
                    ways = {True: {lab.wan(1).far}, False: own[number]}
                    total += 1
                    on_listed += far == lab.wan(1).far
                    if far not in set().union(*(ways[state] for state in allowed[at][1])):
                        wrong.append((number, far, packet))
        assert wrong == []
        assert total > 500
        assert on_listed > 50


def test_the_whitelist_survives_a_new_netd_and_a_restart(lab: Lab) -> None:
    """P3, P4: a new netd knows the epoch of the flows that it finds, and the files of domains."""
    send(lab, 1, "Interface:wan2")
    send(lab, 2, "socks5-udp")
    save(lab, "another.test")
    save(lab, DOMAINS, "192.0.2.1")
    connections = [lab.client(number).connect() for number in (1, 2)]
    for pid in lab.device.pids("egressd.app netd"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(lab.device.pids("egressd.app netd")) > 0, 10)
    lab.device.wait_healthy()
    for connection in connections:
        assert connection.exchange("still here").ok
        connection.close()
    lab.device.stop()
    lab.device.start()
    for number, own in ((1, lab.wan(2)), (2, lab.nodes["socks5-udp"])):
        assert wrong(lab, number, LISTED[::5], lab.wan(1).address) == []
        assert wrong(lab, number, UNLISTED[::5], own.address) == []


def test_a_netd_without_a_plan_has_the_epoch_of_the_database(lab: Lab) -> None:
    """P3: another device with the same database decides flows under the same epoch."""
    for text in ("192.0.2.1", "192.0.2.2"):
        save(lab, ips=text)
    before = elements(lab, "map", "connmark_of")
    assert "0x30010000" not in before  # DIRECT under the first epoch
    lab.device.stop()
    for file in (lab.device.data / "netd").glob("plan*"):
        file.unlink()
    lab.router.run("nft", "delete", "table", "inet", "egressd")
    lab.device.start()
    assert elements(lab, "map", "connmark_of") == before


def test_a_client_port_that_was_sniffed_before_is_routed_again(lab: Lab) -> None:
    """The engine's end of the earlier connection still waits (TIME_WAIT) when the port is used
    again.
    """
    again = (
        "import socket\n"
        f"with socket.create_connection(('{SERVER}', 80), 3, ('', 41234)) as s:\n"
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "    s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "    print(len(s.makefile('rb').read()))\n"
    )
    send(lab, 1, "Interface:wan2")
    for domains in ("plain.test", "", "plain.test", ""):
        save(lab, domains)
        answer = lab.client(1).host.run(sys.executable, "-c", again, check=False)
        assert answer.stderr == ""
        assert int(answer.stdout) > 0
