"""The law of fields without effect: the reported fields are those that change nothing.

Leaving out a field changes the engine's options exactly if the field is not reported, except for
values that equal the default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from egressd.formats.config_json import read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.fields import Table
from egressd.model.errors import Invalid
from egressd.model.nouns import Node
from egressd.model.outbounds import Outbound
from egressd.planner.outbounds import build
from tests.support.nodes.configs import SSH_HOST_KEY, SSH_KEY, TUNNEL

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
REALITY_KEY = "jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0"
ECH = "ADn+DQA1BwAgACAAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHwAEAAEAAQAGYS50ZXN0AAA="

VALUES: dict[str, list[Any]] = {
    "server": ["a.example"],
    "port": [443],
    "udp": [True, False],
    "ip-version": ["dual"],
    "username": ["u"],
    "password": ["p"],
    "tls": [True, False],
    "sni": ["s.example"],
    "servername": ["s.example"],
    "alpn": [["h2"], ["http/1.1"], ["h2", "http/1.1"]],
    "skip-cert-verify": [True],
    "name-cert-verify": ["s.example"],
    "client-fingerprint": ["firefox"],
    "headers": [{"Host": "h.example"}],
    "cipher": ["aes-128-gcm"],
    "udp-over-tcp": [True],
    "udp-over-tcp-version": [2],
    "plugin": ["obfs", "v2ray-plugin", "shadow-tls"],
    "version": [1, 2, 3],
    "auth-str": ["p"],
    "protocol": ["udp"],
    "mode": ["http", "websocket"],
    "host": ["h.example", ["h.example"]],
    "path": ["/p", ["/p"], ["/p", "/q"], "/p?ed=2048"],
    "mux": [False],
    "uuid": [UUID],
    "alterId": [64],
    "network": ["ws", "grpc", "http", "h2", "httpupgrade"],
    "global-padding": [True],
    "authenticated-length": [True],
    "packet-encoding": ["packetaddr", "none"],
    "packet-addr": [True],
    "xudp": [True],
    "flow": ["xtls-rprx-vision"],
    "max-early-data": [4096],
    "early-data-header-name": ["X-Early"],
    "v2ray-http-upgrade": [True],
    "v2ray-http-upgrade-fast-open": [True],
    "grpc-service-name": ["svc"],
    "method": ["PUT"],
    "public-key": [REALITY_KEY, TUNNEL["public-key"]],
    "short-id": ["ab"],
    "enable": [True],
    "config": [ECH],
    "query-server-name": ["q.example"],
    "ports": ["8000-9000"],
    "hop-interval": [15, "15-30"],
    "up": [10],
    "down": ["20 Mbps"],
    "obfs": ["salamander", "o"],
    "obfs-password": ["o"],
    "ip": ["192.0.2.9"],
    "congestion-controller": ["bbr"],
    "udp-relay-mode": ["quic"],
    "udp-over-stream": [True],
    "reduce-rtt": [True],
    "heartbeat-interval": [5000],
    "disable-sni": [True],
    "idle-session-check-interval": [10],
    "idle-session-timeout": [20],
    "min-idle-session": [2],
    "private-key": [list(SSH_KEY), TUNNEL["private-key"]],
    "pre-shared-key": [TUNNEL["private-key"]],
    "ipv6": ["fd00::2"],
    "allowed-ips": [["10.0.0.0/8"]],
    "reserved": [[1, 2, 3]],
    "mtu": [1280],
    "persistent-keepalive": [25],
    "private-key-passphrase": ["p"],
    "host-key": [[SSH_HOST_KEY]],
    "host-key-algorithms": [["ssh-ed25519"]],
}
"""Values for each field that differ from its default; values that it refuses are drawn in vain."""


def entries(protocol: str) -> st.SearchStrategy[dict[str, Any]]:
    def table(of: Table) -> st.SearchStrategy[dict[str, Any]]:
        drawn = {
            key: table(kind) if isinstance(kind, Table) else st.sampled_from(VALUES[key])
            for key, kind in of.keys.items()
            if isinstance(kind, Table) or key in VALUES
        }
        required = {key: drawn.pop(key) for key in of.required}
        return st.fixed_dictionaries(required, optional=drawn)

    return table(PROTOCOLS[protocol].table)


def outbound(protocol: str, config: dict[str, Any]) -> Outbound:
    text = json.dumps(config)
    return build(Node(id=1, name="n", protocol=protocol, config_json=text, group="", created_at=""))


def paths(config: dict[str, Any], place: str = "") -> Iterator[str]:
    for key, value in config.items():
        yield place + key
        if isinstance(value, dict) and key != "headers":
            yield from paths(value, f"{place}{key}.")


def without(config: dict[str, Any], path: str) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    if rest:
        return {**config, key: without(config[key], rest)}
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "anytls"])
def test_every_field_is_generated(protocol: str) -> None:
    def keys(table: Table) -> Iterator[str]:
        for key, kind in table.keys.items():
            if isinstance(kind, Table):
                yield from keys(kind)
            else:
                yield key

    assert set(keys(PROTOCOLS[protocol].table)) <= {*VALUES, "encryption", "token"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
@pytest.mark.slow
def test_exactly_the_reported_fields_leave_the_engine_options_unchanged(
    protocol: str, data: st.DataObject
) -> None:
    config = data.draw(entries(protocol))
    try:
        read = read_config(protocol, json.dumps(config))
    except Invalid:
        assume(False)
        raise
    made = outbound(protocol, config)
    told = set(read.idle)
    for path in paths(config):
        try:
            other = outbound(protocol, without(config, path))
        except Invalid:
            continue
        is_told = any(path == one or path.startswith(f"{one}.") for one in told)
        if is_told and path not in ("sni", "servername"):
            assert other == made, path
        assert other != made or is_told or says_nothing(protocol, config, path, told), (path, told)


_STREAMS = {"socks5", "http", "ssh", "shadow-tls"}
"""Protocols and plugins that carry no datagrams unless asked to."""
PACKETS = {"packet-encoding", "packet-addr", "xudp"}
"""Fields that may say the same thing."""


def says_nothing(protocol: str, config: dict[str, Any], path: str, told: set[str]) -> bool:
    """Return True if a field's value in that entry is the default."""
    value: Any = config
    for key in path.split("."):
        value = value[key]
    if isinstance(value, dict):
        inner = (f"{path}.{key}" for key in value)
        return all(one in told or says_nothing(protocol, config, one, told) for one in inner)
    match path:
        case "sni" | "servername":
            return "sni" in config and "servername" in config
        case "udp":
            is_stream = (
                protocol in ("socks5", "http", "ssh") or config.get("plugin") == "shadow-tls"
            )
            return bool(value) is not is_stream
        case "tls" if value is True:
            return bool(config.get("network") == "h2")
        case "alpn":
            return bool(config.get("network", "tcp") != "tcp")
        case "xudp" | "packet-encoding" | "packet-addr":
            return path == "xudp" or len(PACKETS & config.keys()) > 1
        case "name-cert-verify" | "encryption":
            return True  # it must be what holds anyhow
        case "plugin-opts.mode":
            return bool(value == "websocket")  # there is no other
        case "ws-opts.v2ray-http-upgrade":
            return bool(config["network"] == "httpupgrade")
        case "ws-opts.max-early-data" | "ws-opts.early-data-header-name":
            return "ed=" in config["ws-opts"].get("path", "")
        case "protocol":
            return True  # there is no other
        case "plugin-opts.version":
            return bool(value == 2)
        case "ech-opts.config" | "ech-opts.query-server-name":
            return not config["ech-opts"].get("enable", False)
        case _:
            return value is False
