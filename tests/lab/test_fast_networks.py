"""Clients of CIDR rules on the fast path, on the real kernel."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Egress, Limit, Plan
from egressd.netd.kernel import machine_facts
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import FastPath
from egressd.netd.kernel.fast_path import path as path_module
from egressd.netd.kernel.fast_path.elements import read_place, read_prefix
from egressd.planner.fast_networks import NO_PLACE
from egressd.planner.registry import MARK_DIRECT, MARK_REJECT
from egressd.planner.topology import discover
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import (
    SERVER,
    clear,
    eventually,
    kill,
    limit_rule,
    remove_rule,
    rule,
    send,
)
from tests.support.fast_path import (
    counted,
    is_cut,
    lan_and_wan,
    passed,
    passed_by_rule,
    takes_it,
    takes_it_by,
    talk,
)
from tests.support.known_flows import programs_here
from tests.support.leaks import watched
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

MIB = 1 << 20
LAN = "10.77.0.0/24"
PART = "10.77.0.8/29"
"""The network of the first clients."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab) -> Iterator[None]:
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    yield
    clear(lab)


def have_sent(lab: Lab, packets: int) -> bool:
    """True if the clients of `PART` have sent more packets than that by the fast path."""
    return passed_by_rule(lab, PART).up_packets > packets


@pytest.mark.parametrize("network", [LAN, PART, "10.0.0.0/8", "0.0.0.0/0"])
@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan2"])
def test_a_cidr_rules_client_takes_the_fast_path(lab: Lab, network: str, target: str) -> None:
    rule(lab, network, target)
    before = counted(lab, network)
    reply = lab.client(1).http(f"http://{SERVER}/bytes/{20 * MIB}", verify=True, timeout=30)
    assert (reply.error, reply.size) == ("", 20 * MIB)
    assert (
        lab.client(1).http(f"http://{SERVER}/").seen
        == lab.wan(1 if target == "DIRECT" else 2).address
    )
    assert passed_by_rule(lab, network).down_bytes > 18 * MIB
    eventually(lambda: counted(lab, network) - before > 20 * MIB)
    assert counted(lab, network) - before < 23 * MIB


def test_a_cidr_rules_count_continues_with_a_limit_and_without(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it_by(lab, LAN, connection)
    before = counted(lab, LAN)
    assert lab.client(1).http(f"http://{SERVER}/bytes/{20 * MIB}", timeout=20).error == ""
    limit_rule(lab, LAN, 100_000)
    assert not takes_it_by(lab, LAN, connection)
    limit_rule(lab, LAN, 0)
    assert takes_it_by(lab, LAN, connection)
    eventually(lambda: counted(lab, LAN) - before > 20 * MIB)
    assert counted(lab, LAN) - before < 23 * MIB


@pytest.mark.parametrize("target", ["Interface:wan2", "REJECT", "ss", "Interface:wan9"])
def test_p1_a_moved_network_cuts_its_clients_at_once(lab: Lab, target: str) -> None:
    rule(lab, LAN, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it_by(lab, LAN, connection)
    with lab.internet.capture() as capture:
        token = capture.prove(connection.exchange)
        assert capture.interfaces_of(token) == {lab.wan(1).far}
        rule(lab, LAN, target)
        token = new_token()
        with suppress(Failed):
            assert connection.exchange(token, timeout=2).error != ""
        assert capture.interfaces_of(token) == set()


@pytest.mark.parametrize("target", ["ss", "REJECT", "Interface:wan9"])
def test_p1_a_clients_own_rule_takes_precedence(lab: Lab, target: str) -> None:
    rule(lab, LAN, "DIRECT")
    connection, other = (lab.client(number).connect(SERVER) for number in (1, 2))
    assert takes_it_by(lab, LAN, connection)
    send(lab, 1, target)
    assert is_cut(connection)
    assert takes_it_by(lab, LAN, other)
    seen = lab.client(1).http(f"http://{SERVER}/", timeout=2).seen
    assert seen == (lab.nodes["ss"].address if target == "ss" else "")


def test_a_limited_client_within_a_network_takes_the_slow_path(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    limit_rule(lab, lab.client(1).address, 10_000)
    own, around = passed(lab, 1), passed_by_rule(lab, LAN)
    talk(connection)
    assert (passed(lab, 1), passed_by_rule(lab, LAN)) == (own, around)
    # The order of both rules does not matter.
    remove_rule(lab, LAN)
    rule(lab, LAN, "DIRECT")
    talk(connection)
    assert passed(lab, 1) == own
    assert passed_by_rule(lab, LAN).up_packets == 0
    remove_rule(lab, lab.client(1).address)
    assert takes_it_by(lab, LAN, lab.client(1).connect(SERVER))


def test_the_narrower_network_decides(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it_by(lab, LAN, connection)
    rule(lab, PART, "Interface:wan2")
    assert is_cut(connection)
    assert takes_it_by(lab, PART, lab.client(1).connect(SERVER))
    rule(lab, PART, "REJECT")
    assert lab.client(1).http(f"http://{SERVER}/", timeout=2).seen == ""
    remove_rule(lab, PART)
    assert takes_it_by(lab, LAN, lab.client(1).connect(SERVER))


def test_p1_a_flood_of_a_moving_network_leaves_by_its_target(lab: Lab) -> None:
    with watched(lab, {2: "Interface:wan2"}) as watch:
        rule(lab, PART, "DIRECT")
        watch.begin(1, "DIRECT")
        for target in ("Interface:wan2", "DIRECT", "Interface:wan9", "Interface:wan2") * 3:
            before = passed_by_rule(lab, PART).up_packets
            watch.expect(1, target)
            rule(lab, PART, target)
            watch.settle(1)
            if target != "Interface:wan9":
                eventually(partial(have_sent, lab, before + 20))


def test_networks_and_their_counts_survive_a_killed_netd(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it_by(lab, LAN, connection)
    eventually(lambda: counted(lab, LAN) > 0)
    before = counted(lab, LAN)
    kill(lab, "egressd.app netd")
    assert takes_it_by(lab, LAN, connection)
    lab.device.wait_healthy()
    assert takes_it_by(lab, LAN, connection)
    eventually(lambda: counted(lab, LAN) > before)
    rule(lab, LAN, "REJECT")
    assert is_cut(connection)


def test_a_cidr_rules_count_survives_a_stop(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    assert lab.client(1).http(f"http://{SERVER}/bytes/{20 * MIB}", timeout=20).error == ""
    eventually(lambda: counted(lab, LAN) > 20 * MIB)
    lab.device.stop()
    lab.device.start()
    eventually(lambda: counted(lab, LAN) > 20 * MIB)


def test_a_disabled_cidr_rule_begins_its_count_anew(lab: Lab) -> None:
    rule(lab, LAN, "DIRECT")
    assert lab.client(1).http(f"http://{SERVER}/bytes/{5 * MIB}", timeout=20).error == ""
    lab.api.patch("/rules/batch/status", {"ips": [LAN], "is_enabled": False})
    assert passed_by_rule(lab, LAN) == RuleCount(0, 0, 0, 0)
    lab.api.patch("/rules/batch/status", {"ips": [LAN], "is_enabled": True})
    assert takes_it_by(lab, LAN, lab.client(1).connect(SERVER))
    assert passed_by_rule(lab, LAN).down_bytes < MIB


# --- Kernels that refuse something half-way. --------------------------------------------------

ROLES = InterfaceRoles(lan=("lan0",), wan=("wan1",))
HOSTS = {f"10.77.0.{number}": MARK_REJECT for number in range(20, 30)}


def around(hosts: Mapping[str, int]) -> Plan:
    """Return the plan of hosts within a network that may take the fast path."""
    free = Limit(number=1, upload_kbps=0, download_kbps=0)
    return Plan(
        hosts=dict(hosts),
        nets={"10.77.0.0-10.77.0.255": MARK_DIRECT},
        limits={LAN: free, **dict.fromkeys(hosts, free)},
        egresses={"wan1": Egress(number=1)},
    )


def look(path: FastPath, plan: Plan) -> None:
    """Do the fast path's part of a full look at the network."""
    seen = machine_facts.read()
    path.follow(plan, seen, discover(seen, ROLES), ROLES, {})
    path.sync()


def places_here() -> tuple[set[str], set[str]]:
    """Return the networks and the clients without a place that the kernel has."""
    for program in programs_here().values():
        maps = {each.name: each for each in system.maps_of(program)}
        networks = {str(read_prefix(key)) for key in maps["networks"]}
        clients = {
            socket.inet_ntoa(key)
            for key in maps["clients"]
            if read_place(maps["clients"].get(key) or b"") == NO_PLACE
        }
        return networks, clients
    return set(), set()


@pytest.fixture
def router(namespace: Namespace) -> Iterator[Namespace]:
    """Yield a router of a LAN, and a WAN with a default route."""
    with lan_and_wan(namespace):
        yield namespace


@pytest.mark.parametrize("accepted", range(0, 12, 3))
def test_p1_a_refusal_half_way_uncovers_no_client(
    router: Namespace, monkeypatch: pytest.MonkeyPatch, accepted: int
) -> None:
    monkeypatch.setattr(path_module, "_REST_S", 0.0)
    put, left = system.Map.put, [accepted]

    def refuse(self: system.Map, key: bytes, value: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOMEM, "no memory")
        put(self, key, value)

    def body() -> tuple[set[str], tuple[set[str], set[str]]]:
        path = FastPath()
        look(path, around({}))
        assert places_here() == ({LAN}, set())
        with monkeypatch.context() as refusing:
            refusing.setattr(system.Map, "put", refuse)
            path.move(around(HOSTS), HOSTS)
        refused = {*programs_here()}
        path.sync()
        return refused, places_here()

    assert router.run(body) == (set(), ({LAN}, {*HOSTS}))


def test_p1_a_take_over_uncovers_no_client(router: Namespace) -> None:
    def body() -> list[tuple[set[str], set[str]]]:
        look(FastPath(), around(HOSTS))
        found = [places_here()]
        after = FastPath()
        after.load_previous()
        after.move(around(HOSTS), HOSTS)  # as `follow` does it for all clients
        found.append(places_here())
        look(after, around(HOSTS))
        return [*found, places_here()]

    assert router.run(body) == [({LAN}, {*HOSTS})] * 3
