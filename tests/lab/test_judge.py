"""The judge of the leak rig and of chaos finds each kind of leak."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from egressd_lab.chaos.judge import LATE_NS, Era, Judge
from egressd_lab.observed import Flow

WANS = {"isp1": "198.51.100.2", "isp2": "198.51.100.6"}
NODES = {"to-a": "192.0.2.10", "to-b": "192.0.2.11"}
SERVER = "203.0.113.10"
TOKEN = "egt-000000000001"


def flow(interface: str, source: str, destination: str = SERVER, *, at: int = 0) -> Flow:
    return Flow(
        interface=interface, outgoing=False, protocol="udp", source=source,
        destination=destination, port=9, token=TOKEN, packets=3, octets=300,
        first_ns=at, last_ns=at,
    )  # fmt: skip


def judged(era: Era, seen: Flow) -> list[str]:
    judge = Judge(WANS, NODES)
    judge.eras[TOKEN] = era
    return [breach.what for breach in judge.judge([seen])]


def era(*exits: str) -> Era:
    return Era(client="client1", token=TOKEN, exits=frozenset(exits))


def test_packets_on_the_expected_egress_are_accepted() -> None:
    assert judged(era("198.51.100.2"), flow("isp1", "198.51.100.2")) == []
    assert judged(era("192.0.2.10"), flow("to-a", "192.0.2.10")) == []
    assert judged(era("192.0.2.10"), flow("isp1", "198.51.100.2", "192.0.2.10")) == []


@pytest.mark.parametrize(
    ("exits", "seen"),
    [
        ([], flow("isp1", "198.51.100.2")),
        (["198.51.100.2"], flow("isp2", "198.51.100.6")),
        (["198.51.100.2"], flow("isp1", "10.77.0.11")),  # without translation
        (["192.0.2.10"], flow("isp1", "198.51.100.2")),  # past the node
        (["192.0.2.10"], flow("to-b", "192.0.2.11")),  # by another node
        (["192.0.2.10"], flow("isp2", "198.51.100.6", "192.0.2.10")),  # by another WAN
        (["198.51.100.2"], flow("lo", "198.51.100.2")),
    ],
)
def test_p1_packets_on_another_egress_are_a_breach(exits: list[str], seen: Flow) -> None:
    assert len(judged(era(*exits), seen)) == 1


def test_p1_a_change_allows_the_new_egress_from_its_request_on() -> None:
    moving = era("198.51.100.2")
    moving.begin_change(frozenset({"198.51.100.6"}), 1_000)
    assert judged(moving, flow("isp2", "198.51.100.6", at=999))
    assert not judged(moving, flow("isp2", "198.51.100.6", at=1_000))
    moving.end_change(2_000)
    assert not judged(moving, flow("isp1", "198.51.100.2", at=2_000 + LATE_NS))
    assert judged(moving, flow("isp1", "198.51.100.2", at=2_001 + LATE_NS))


def test_tokens_of_other_tests_are_ignored() -> None:
    assert Judge(WANS, NODES).judge([flow("isp1", "198.51.100.2")]) == []


@pytest.mark.parametrize(
    "seen", [flow("isp1", "198.51.100.2", "192.0.2.151"), flow("to-v", "192.0.2.201")]
)
def test_p1_packets_of_a_line_leave_with_the_lines_address(seen: Flow) -> None:
    judge = Judge(WANS, {"to-v": "192.0.2.151"}, {"192.0.2.151": "192.0.2.201"})
    judge.eras[TOKEN] = era("192.0.2.201")
    assert judge.judge([seen]) == []
    judge.eras[TOKEN] = era("192.0.2.151", "198.51.100.2")
    assert len(judge.judge([seen])) == 1


@pytest.mark.parametrize("protocol", ["tcp", "icmp", "udp"])
def test_p1_the_machines_own_packets_by_another_wan_are_a_breach(protocol: str) -> None:
    def own(interface: str) -> Flow:
        seen = flow(interface, WANS["isp2"])
        return replace(seen, token="", protocol=protocol)

    judge = Judge(WANS, NODES)
    assert judge.judge([own("isp2")]) == []
    (breach,) = judge.judge([own("isp1")])
    assert breach.packets == 3
    assert judge.own([own("isp2")]) == (3 if protocol == "icmp" else 0)
