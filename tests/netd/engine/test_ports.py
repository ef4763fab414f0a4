"""Ports are handed out in turn; documents say what they listen on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egressd.netd.engine.ports import Listeners, Ports
from egressd.netd.engine.trouble import LOG_OUTPUT


class PortsModel(RuleBasedStateMachine):
    """`Ports` against a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.ports = Ports(range(100, 105))
        self.taken: set[int] = set()

    @rule()
    def take(self) -> None:
        if len(self.taken) == 5:
            with pytest.raises(LookupError):
                self.ports.take()
            return
        port = self.ports.take()
        assert port not in self.taken
        self.taken.add(port)

    @rule(port=st.integers(100, 104))
    def claim(self, port: int) -> None:
        self.ports.claim(port)
        self.taken.add(port)

    @rule(port=st.integers(100, 104))
    def give_back(self, port: int) -> None:
        self.ports.give_back(port)
        self.taken.discard(port)

    @invariant()
    def all_in_range(self) -> None:
        assert self.taken <= set(range(100, 105))


TestPorts = PortsModel.TestCase


def test_a_port_just_freed_rests_the_longest() -> None:
    ports = Ports(range(3))
    ports.give_back(ports.take())
    assert [ports.take(), ports.take(), ports.take()] == [1, 2, 0]


def test_ports_that_are_avoided_are_not_handed_out() -> None:
    ports = Ports(range(3))
    assert [ports.take({0, 1}), ports.take({0})] == [2, 1]
    with pytest.raises(LookupError):
        ports.take({0})


def listeners(*inbounds: dict[str, Any]) -> Listeners:
    return Listeners(json.dumps({"inbounds": inbounds, "route": {"final": "ä"}}))


def test_an_open_tproxy_port_and_the_log_are_set_and_nothing_else_changes() -> None:
    socks = {"type": "socks", "listen_port": 1080}
    document = listeners(socks, {"type": "tproxy", "listen_port": 0})
    assert document.needs_port
    assert json.loads(document.on(20_001)) == {
        "inbounds": [socks, {"type": "tproxy", "listen_port": 20_001}],
        "route": {"final": "ä"},
        "log": {"output": LOG_OUTPUT},
    }


@pytest.mark.parametrize(
    ("inbounds", "port"),
    [
        ([], 0),
        ([{"type": "socks", "listen_port": 1080}, {"type": "http", "listen_port": 8080}], 1080),
        ([{"type": "tproxy", "listen_port": 7000}], 7000),
    ],
)
def test_a_complete_document_needs_no_port(inbounds: list[dict[str, Any]], port: int) -> None:
    document = listeners(*inbounds)
    assert not document.needs_port
    assert document.port == port


def test_a_trial_listens_on_free_loopback_ports() -> None:
    document = listeners({"type": "socks", "listen": "0.0.0.0", "listen_port": 1080, "users": []})
    assert json.loads(document.nowhere())["inbounds"] == [
        {"type": "socks", "listen": "127.0.0.1", "listen_port": 0, "users": []}
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '"{}"', '{"inbounds": 1}', '{"inbounds": [1]}']
)
def test_what_is_no_document_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the configuration is not a sing-box document: .+"):
        Listeners(text)
