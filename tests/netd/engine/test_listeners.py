"""The listeners in documents."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from egressd.netd.engine.listeners import Listeners
from egressd.netd.engine.outbound_errors import LOG_OUTPUT


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
def test_invalid_json_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the configuration is not a sing-box document: .+"):
        Listeners(text)


def test_a_way_into_a_tunnel_has_the_port_of_the_clients_listener() -> None:
    inbounds = [
        {"type": "tproxy", "tag": "clients", "listen": "127.0.0.1", "listen_port": 0},
        {"type": "socks", "tag": "tunnels", "listen": "127.0.0.2", "listen_port": 0},
    ]
    peers = [{"persistent_keepalive_interval": 25, "port": 1}]
    config = msgspec.json.encode({"inbounds": inbounds, "endpoints": [{"peers": peers}]}).decode()
    made = msgspec.json.decode(Listeners(config).on(20_001))
    assert [each["listen_port"] for each in made["inbounds"]] == [20_001, 20_001]
    tried = msgspec.json.decode(Listeners(config).nowhere())
    assert tried["inbounds"] == [{**inbounds[1], "listen": "127.0.0.1"}]
    assert tried["endpoints"] == [{"peers": [{"port": 1}]}]  # it sends nothing by itself
