"""Names of ``[dns] local`` are resolved by local resolvers for clients of every target, and never
get outside (P1).

The router's own dnsmasq knows ``lan``, one in the second LAN knows ``corp.example``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from egressd.netd.health.dns_servers import PERIOD_S
from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.dnswire import encode_query
from egressd_lab.lab import Lab
from egressd_lab.packets import TCP, UDP, new_token
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI, LabSpec
from tests.support.device import add_nodes, eventually, rule, send, suspended
from tests.support.programs.dnsmasq import asked_by, dnsmasq

pytestmark = pytest.mark.lab

ROUTER = str(LAN_ADDRESS)
GUEST, NOBODY = "10.78.0.11", "10.78.0.99"
PRINTER, SERVER, SPARE = "10.77.0.201", "10.78.0.202", "10.77.0.203"
ASKED = (ROUTER, RESOLVERS["google"])
"""The router, and a server outside."""
FAR, FAR_WEB = RESOLVERS["quad9"], "203.0.113.10"
LOCAL = {
    "lan": ROUTER,
    "corp.example": [GUEST],
    "spare.corp.example": [NOBODY, ROUTER],
    "far.example": FAR,
}
KERNEL = ("DIRECT", "Interface:wan1", "Interface:wan2")
ENGINE = ("ss", "socks5", "Group_pool")


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss", "socks5"), clients=7, second_lan=True)) as lab:
        devices = [NOBODY, RESOLVERS["device"]]
        lab.start_egressd({"dns": {"local": LOCAL, "device": devices}})
        add_nodes(lab)
        lab.api.post("/nodes", lab.nodes["ss"].draft("pool") | {"name": "in-pool"})
        # Wait until each egress knows that the device's first resolver is silent.
        for number, target in enumerate(KERNEL, start=5):
            send(lab, number, target)
        for number in (5, 6, 7):
            eventually(partial(is_answered, lab.client(number), f"first.{WHOAMI}"), 2 * PERIOD_S)
        yield lab


@pytest.fixture(scope="module", autouse=True)
def own(lab: Lab) -> Iterator[Program]:
    """Run the router's dnsmasq."""
    options = [f"--host-record=printer.lan,{PRINTER}", f"--host-record=spare.corp.example,{SPARE}"]
    zones = ("lan", "spare.corp.example", "77.10.in-addr.arpa")
    with dnsmasq(lab, lab.router, *options, *(f"--local=/{zone}/" for zone in zones)) as program:
        yield program


@pytest.fixture(scope="module", autouse=True)
def corp(lab: Lab) -> Iterator[Program]:
    """Run the dnsmasq of the second LAN. It has a rule, and asks the internet for unknown names."""
    rule(lab, GUEST, "Interface:wan1")
    text = ",".join(["x" * 200] * 12)
    records = (f"--host-record=www.corp.example,{SERVER}", f"--txt-record=long.corp.example,{text}")
    own = "--local=/0.78.10.in-addr.arpa/"
    with dnsmasq(lab, lab.guest(1).host, own, *records) as program:
        yield program


def is_answered(client: Client, name: str) -> bool:
    return client.dns(name, ROUTER, timeout=1).ok


@contextmanager
def watched(lab: Lab, client: Client) -> Iterator[Capture]:
    """Capture all outside interfaces, WANs and nodes, and prove it by a query of the client."""
    with lab.internet.capture() as capture:
        capture.prove()
        capture.prove(lambda token: client.dns(f"{token}.notlan", ROUTER))
        yield capture


def outside(lab: Lab, mark: int, text: str) -> set[str]:
    """Return the servers outside that were queried for names with that text."""
    return {seen.server for seen in lab.internet.seen(since=mark, text=text)}


@pytest.mark.parametrize("target", [*KERNEL, *ENGINE])
def test_local_names_are_resolved_locally_and_others_by_the_egress(
    lab: Lab, own: Program, corp: Program, target: str
) -> None:
    send(lab, 1, target)
    client, token = lab.client(1), new_token()
    with watched(lab, client) as capture:
        for asked in ASKED:
            for tcp in (False, True):
                assert client.dns("Printer.LAN", asked, tcp=tcp).addresses == (PRINTER,)
                assert client.dns("www.corp.example", asked, tcp=tcp).addresses == (SERVER,)
                reply = client.dns(f"{token}.lan", asked, tcp=tcp)
                assert (reply.error, reply.rcode) == ("", "NXDOMAIN")
        assert client.dns("lan", ROUTER).ok
        for network, server in (("0.77.10", own), ("0.78.10", corp)):
            client.dns(f"{token}.{network}.in-addr.arpa", ROUTER, "PTR", timeout=1)
            assert asked_by(server, f"{token}.{network}.in-addr.arpa")
        assert capture.flows(token) == []
    assert asked_by(own, f"{token}.lan")
    assert len(asked_by(corp, "www.corp.example")) == 1
    mark = lab.internet.mark()
    assert len(client.dns(f"{token}.{WHOAMI}", ROUTER).addresses) == 1
    expected = RESOLVERS["overseas" if target in ENGINE else "device"]
    assert outside(lab, mark, token) == {expected}


@pytest.mark.parametrize("target", ["REJECT", ""])
def test_clients_that_are_refused_or_have_no_rule_get_no_answer(
    lab: Lab, own: Program, corp: Program, target: str
) -> None:
    client, other, token = lab.client(2 if target else 3), lab.client(5), new_token()
    if target:
        send(lab, 2, target)
    names = [f"{token}.lan", f"{token}.corp.example", f"{token}.0.77.10.in-addr.arpa"]
    destinations = (*ASKED, GUEST, "255.255.255.255", "10.77.0.255", "224.0.0.251")
    with watched(lab, other) as capture:
        for name in names:
            question = encode_query(1, name, "A").decode("ascii")
            for destination in destinations:
                for source in (client.address, "0.0.0.0"):
                    client.raw(source, destination, protocol=UDP, port=53, text=question)
                    client.raw(source, destination, protocol=TCP, port=53, text=question)
            for destination in (*ASKED, GUEST):
                for tcp in (False, True):
                    assert not client.dns(name, destination, tcp=tcp, timeout=0.5).ok
        # Earlier queries have arrived by now, as these have.
        assert other.dns(f"seen.{token}.lan", ROUTER).ok
        assert other.dns("www.corp.example", ROUTER).ok
        assert capture.flows(token) == []
    assert asked_by(own, f"seen.{token}.lan")
    for name in names:
        assert not asked_by(own, name)
        assert not asked_by(corp, name)


@pytest.mark.parametrize("target", ["DIRECT", "ss"])
def test_the_next_local_resolver_replaces_a_silent_one(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    for tcp in (False, True):
        assert lab.client(1).dns("spare.corp.example", ROUTER, tcp=tcp).addresses == (SPARE,)


@pytest.mark.parametrize("target", ["Interface:wan2", "ss"])
def test_a_long_answer_arrives_whole(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    reply = lab.client(1).dns("long.corp.example", ROUTER, "TXT", tcp=True)
    assert (reply.error, reply.rcode) == ("", "NOERROR")
    short = lab.client(1).dns("long.corp.example", ROUTER, "TXT")
    assert (short.error, short.rcode) == ("", "NOERROR")


@pytest.mark.parametrize("target", ["Interface:wan2", "ss"])
def test_a_local_resolver_outside_is_not_queried_and_reported(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    client, token = lab.client(1), new_token()
    with watched(lab, client) as capture:
        for tcp in (False, True):
            reply = client.dns(f"{token}.far.example", ROUTER, tcp=tcp, timeout=5)
            assert not reply.ok or reply.rcode in ("SERVFAIL", "REFUSED")
        assert capture.flows(token) == []
    told = lab.api.ask("GET", "/ops/overview").body["problems"]
    assert any(p.startswith(f"local resolver {FAR} is neither on this machine") for p in told)


@pytest.mark.parametrize("target", ["Interface:wan2", "ss"])
def test_queries_of_a_local_resolver_do_not_loop_back_to_it(
    lab: Lab, corp: Program, target: str
) -> None:
    rule(lab, GUEST, target)
    send(lab, 1, "DIRECT")
    try:
        # It knows www alone, and queries the internet for the rest: that is a query of its own.
        name = f"{new_token()}.corp.example"
        reply = lab.client(1).dns(name, ROUTER)
        assert (reply.error, reply.rcode) == ("", "NXDOMAIN")
        assert len(asked_by(corp, name)) == 1
        asked = [line for line in corp.log.read_text().splitlines() if f" {name} from " in line]
        assert len(asked) == 1
    finally:
        rule(lab, GUEST, "Interface:wan1")


def test_a_moved_client_keeps_local_names_and_uses_its_new_egress(lab: Lab) -> None:
    client = lab.client(1)
    for target in (*KERNEL, "ss", "DIRECT", "REJECT", "Interface:wan2"):
        send(lab, 1, target)
        replies = [client.dns(name, ROUTER, timeout=2) for name in ("printer.lan", f"a.{WHOAMI}")]
        if target == "REJECT":
            assert [reply.ok for reply in replies] == [False, False]
            continue
        seen = {"ss": lab.nodes["ss"].address, "Interface:wan2": lab.wan(2).address}
        expected = [(PRINTER,), (seen.get(target, lab.wan(1).address),)]
        assert [reply.addresses for reply in replies] == expected


@pytest.mark.parametrize("target", KERNEL)
def test_p2_without_its_instance_a_client_has_no_dns(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    client, token = lab.client(1), new_token()
    assert client.dns(f"a.{WHOAMI}", ROUTER).ok
    # A dead worker is not restarted while netd is suspended.
    with watched(lab, client) as capture, suspended(lab, "egressd.app netd"):
        for pid in lab.device.pids("egressd.netd.engine.worker"):
            os.kill(pid, signal.SIGKILL)
        for name in (f"{token}.lan", f"{token}.test"):
            for tcp in (False, True):
                assert not client.dns(name, RESOLVERS["google"], tcp=tcp, timeout=1).ok
        assert client.http(f"http://{FAR_WEB}/").ok, "nothing else is concerned"
        assert capture.flows(token) == []
    eventually(partial(is_answered, client, "printer.lan"), 15)


def test_p2_clients_of_an_egress_that_is_down_have_no_dns(lab: Lab) -> None:
    send(lab, 1, "Interface:wan2")
    client, token = lab.client(1), new_token()
    with watched(lab, client) as capture:
        lab.topology.ip("router", ["link set wan2 down"])
        try:
            eventually(lambda: not client.dns(f"gone.{WHOAMI}", ROUTER, timeout=1).ok)
            for tcp in (False, True):
                assert not client.dns(f"{token}.test", ROUTER, tcp=tcp, timeout=1).ok
            assert capture.flows(token) == []
        finally:
            lab.topology.raise_wan(lab.topology.wans[1])
        eventually(lambda: client.dns(f"back.{WHOAMI}", ROUTER, timeout=1).ok, 10)


def test_the_resolver_in_use_answers_for_all_other_names(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    mark = lab.internet.mark()
    name = f"{new_token()}.{WHOAMI}"
    assert lab.client(1).dns(name, ROUTER).ok
    assert outside(lab, mark, name) == {RESOLVERS["device"]}, "the first of the list is silent"
    problems = lab.api.ask("GET", "/ops/overview").body["problems"]
    assert any(p.startswith(f"resolver {NOBODY} does not answer locally") for p in problems)


@pytest.mark.parametrize("node", ["DIRECT", "ss"])
def test_a_listed_name_is_resolved_locally(lab: Lab, own: Program, node: str) -> None:
    listed = {"domains": "listed.lan\nlisted.test", "ips": "", "node": node}
    lab.api.put("/whitelist", listed)
    try:
        send(lab, 2, "REJECT")
        for number, target in ((1, "ss"), (4, "Interface:wan1"), (2, "REJECT")):
            send(lab, number, target)
            client, token = lab.client(number), new_token()
            with watched(lab, lab.client(5)) as capture:
                name = f"{token}.listed.lan"
                assert client.dns(name, ROUTER).rcode == "NXDOMAIN"
                assert asked_by(own, name)
                refused = client.dns(f"{token}.lan", ROUTER, timeout=1)
                assert (refused.rcode == "NXDOMAIN") is (target != "REJECT")
                assert capture.flows(token) == []
                assert client.dns("www.listed.test", ROUTER).addresses
    finally:
        lab.api.put("/whitelist", {**listed, "domains": "", "node": "DIRECT"})


def test_the_explanation_names_the_resolver_of_a_local_name(lab: Lab) -> None:
    def told(client: int, name: str) -> tuple[str, str, list[str]]:
        where = f"client={lab.client(client).address}&destination={name}"
        body = lab.api.ask("GET", f"/ops/explain?{where}").body
        return body["dns"]["server"], body["dns"]["way"], body["steps"]

    send(lab, 1, "ss")
    send(lab, 2, "REJECT")
    server, way, steps = told(1, "www.corp.example")
    assert (server, way) == (GUEST, "locally")
    assert "names of corp.example are asked locally, whatever the target" in steps
    assert told(1, "11.0.77.10.in-addr.arpa")[:2] == (ROUTER, "locally")
    assert told(1, "www.example.com")[:2] == (RESOLVERS["overseas"], "through the node")
    assert told(2, "www.corp.example")[:2] == ("", "")
    assert told(3, "www.corp.example")[:2] == ("", "")
