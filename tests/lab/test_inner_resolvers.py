"""The device's resolver is the router itself, or in a LAN: clients and nodes get its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from egressd.netd.health.dns_servers import PERIOD_S
from egressd_lab.client import Client
from egressd_lab.dnswire import encode_query
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.packets import TCP, UDP, new_token
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI, LabSpec
from tests.lab.containers import CONTAINER, Containers
from tests.support.device import SERVER, clear, eventually, rule, send
from tests.support.programs.dnsmasq import UPSTREAM, asked_by, dnsmasq

pytestmark = pytest.mark.lab

KNOWN = "198.51.100.77"
"""The resolver's answer for names of its own."""
OWN = f"--address=/inner.test/{KNOWN}"
NODE = "node.inner.test"
ROUTER = str(LAN_ADDRESS)
ASKED = (ROUTER, RESOLVERS["google"])
"""The router, and a server outside."""


class Site(msgspec.Struct, frozen=True):
    """A lab, the address of its device's resolver, and the host that the resolver runs on."""

    lab: Lab
    resolver: str
    host: Host

    @property
    def is_router(self) -> bool:
        return self.host is self.lab.router


def sites(lab: Lab) -> dict[str, tuple[str, Host]]:
    """Return the places of inner resolvers."""
    return {
        "router": (ROUTER, lab.router),
        "wan-address": (lab.wan(2).address, lab.router),
        "client": (lab.client(3).address, lab.client(3).host),
        "guest": (lab.guest(1).address, lab.guest(1).host),
    }


@pytest.fixture(scope="module", params=["router", "wan-address", "client", "guest"])
def started(request: pytest.FixtureRequest, namespaces: None) -> Iterator[Site]:
    with Lab(LabSpec(nodes=("socks5",), clients=4, second_lan=True)) as lab:
        resolver, host = sites(lab)[request.param]
        lab.start_egressd({"dns": {"device": [resolver]}})
        yield Site(lab, resolver, host)


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    yield started
    clear(started.lab)


def is_answered(client: Client, *, tcp: bool) -> bool:
    return client.dns("a.inner.test", ASKED[1], tcp=tcp, timeout=1).addresses == (KNOWN,)


@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan1", "Interface:wan2"])
def test_kernel_routed_clients_get_answers(site: Site, target: str) -> None:
    send(site.lab, 1, target)
    client = site.lab.client(1)
    with dnsmasq(site.lab, site.host, OWN) as program:
        for asked in ASKED:
            for tcp in (False, True):
                name = f"of-{asked}-{tcp}.inner.test".lower()
                reply = client.dns(name, asked, tcp=tcp, timeout=2)
                assert (reply.error, reply.addresses) == ("", (KNOWN,)), (asked, tcp)
                # This machine queries a resolver in a LAN itself, so that the answer comes back
                # here.
                assert (asked_by(program, name) == {client.address}) is site.is_router


@pytest.mark.parametrize("way", ["", "wan1", "wan2"])
def test_the_server_of_a_node_is_resolved_by_name(site: Site, way: str) -> None:
    lab = site.lab
    node = lab.nodes["socks5"]
    config = {**node.clash, "server": NODE} | ({"interface-name": way} if way else {})
    with dnsmasq(lab, site.host, f"--address=/{NODE}/{node.address}"):
        lab.api.post("/nodes", {**node.draft(), "config_json": json.dumps(config)})
        send(lab, 1, "socks5")
        eventually(lambda: lab.client(1).http(f"http://{SERVER}/").seen == node.address)


@pytest.mark.parametrize("target", ["REJECT", "Interface:wan9", ""])
def test_queries_of_a_blocked_client_reach_no_resolver(site: Site, target: str) -> None:
    lab, token = site.lab, new_token()
    client = lab.client(2)
    if target:
        send(lab, 2, target)
    send(lab, 1, "DIRECT")
    with dnsmasq(lab, site.host, OWN) as program:
        question = encode_query(1, f"{token}.inner.test", "A").decode("ascii")
        router = (ROUTER, site.lab.wan(2).address, "255.255.255.255", "10.77.0.255", "224.0.0.251")
        for destination in (*router, RESOLVERS["google"]):
            for source in (client.address, "0.0.0.0"):
                client.raw(source, destination, protocol=UDP, port=53, text=question)
                client.raw(source, destination, protocol=TCP, port=53, text=question)
        for tcp in (False, True):
            for destination in (router[0], router[1], RESOLVERS["google"]):
                name = f"by-{tcp}.{token}.inner.test".lower()
                assert not client.dns(name, destination, tcp=tcp, timeout=0.5).ok
        # Positive control: the log shows a query, and earlier ones have arrived by now.
        assert lab.client(1).dns(f"seen.{token}.inner.test", ROUTER).addresses == (KNOWN,)
        assert asked_by(program, f"seen.{token}.inner.test")
        questions = [line for line in program.log.read_text().splitlines() if token in line]
        assert all("seen." in line for line in questions), questions


def test_a_lan_that_is_down_blocks_queries_to_its_resolver(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), second_lan=True)) as lab:
        resolver, host = sites(lab)["guest"]
        lab.start_egressd({"dns": {"device": [resolver]}})
        send(lab, 1, "Interface:wan2")
        client, token = lab.client(1), new_token()
        with dnsmasq(lab, host, OWN), lab.internet.capture() as capture:
            capture.prove()
            assert client.dns("up.inner.test", ROUTER).addresses == (KNOWN,)
            lab.topology.ip("router", ["link set lan1 down"])
            for tcp in (False, True):
                assert not client.dns(f"{token}-{tcp}.test".lower(), ROUTER, tcp=tcp, timeout=1).ok
            assert capture.flows(token) == []
            lab.topology.ip("router", ["link set lan1 up"])
            eventually(lambda: client.dns("up.inner.test", ROUTER, timeout=1).ok, 10)


def test_an_inner_and_an_outer_resolver_replace_each_other(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), second_lan=True)) as lab:
        inner, host = sites(lab)["guest"]
        lab.start_egressd({"dns": {"device": [inner, RESOLVERS["device"]]}})
        send(lab, 1, "Interface:wan2")
        send(lab, 2, "DIRECT")

        def asks(server: str) -> bool:
            """True if the internet sees queries for both clients at `server` only."""
            mark = lab.internet.mark()
            replies = [lab.client(n).dns(f"of-{n}.{WHOAMI}", ROUTER, timeout=1) for n in (1, 2)]
            seen = lab.internet.seen(since=mark, service="dns", text=WHOAMI)
            return all(r.addresses for r in replies) and {s.server for s in seen} == {server}

        eventually(lambda: asks(RESOLVERS["device"]), 2 * PERIOD_S)
        with dnsmasq(lab, host):
            rule(lab, inner, "DIRECT")  # it queries other resolvers itself
            eventually(lambda: asks(UPSTREAM), 2 * PERIOD_S)
        eventually(lambda: asks(RESOLVERS["device"]), 2 * PERIOD_S)


@pytest.mark.parametrize("place", ["router", "guest"])
def test_a_client_in_a_local_network_gets_answers(namespaces: None, place: str) -> None:
    with Lab(LabSpec(nodes=(), second_lan=True)) as lab:
        resolver, host = sites(lab)[place]
        lab.start_egressd({"dns": {"device": [resolver]}})
        containers = Containers(lab)
        containers.build()
        box = containers.clients[0]
        try:
            with dnsmasq(lab, host, OWN):
                for target in ("Interface:wan2", "DIRECT"):
                    rule(lab, box.address, target)
                    for tcp in (False, True):
                        eventually(partial(is_answered, box, tcp=tcp))
                assert not containers.clients[1].dns("b.inner.test", ASKED[1], timeout=0.5).ok
        finally:
            for client in containers.clients:
                client.host.close()


def test_the_resolver_can_be_in_a_container(namespaces: None) -> None:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd({"dns": {"device": [CONTAINER]}})
        containers = Containers(lab)
        containers.build()
        box = containers.clients[0]
        try:
            with dnsmasq(lab, box.host, OWN):
                for target in ("Interface:wan2", "DIRECT"):
                    send(lab, 1, target)
                    for tcp in (False, True):
                        eventually(partial(is_answered, lab.client(1), tcp=tcp))
        finally:
            for client in containers.clients:
                client.host.close()
