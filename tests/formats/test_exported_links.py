"""Exported links, as other programs read them: the same nodes."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.amounts import port_ranges
from egressd.formats.config_json import read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.share_links import render_link
from tests.formats.config_strategies import CONFIGS, UUID, names
from tests.formats.other_readers import READERS

OURS = {
    "socks5": {"udp"},
    "http": {"udp", "servername", "alpn", "client-fingerprint", "skip-cert-verify"},
    "ss": {"udp", "udp-over-tcp-version"},
    "vmess": {"udp", "packet-encoding"},
    "hysteria": {"udp", "hop-interval"},
    "hysteria2": {"udp", "hop-interval"},
    "tuic": {"udp", "udp-over-stream", "reduce-rtt"},
    "ssh": {"udp", "host-key-algorithms"},
    "wireguard": {"udp", "allowed-ips", "persistent-keepalive"},
}
"""Protocol -> the fields that only egressd's links can express; for other protocols
only ``udp``.
"""
UNSAID = {
    "vless": {"encryption": "none", "packet-encoding": "xudp"},
    "vmess": {"cipher": "auto"},
}
"""The defaults of all programs for fields that a link does not contain."""


def filled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without empty values, at any depth, and without a server name that equals
    the address.
    """
    if fields.get("servername") == fields.get("server"):
        fields = {key: value for key, value in fields.items() if key != "servername"}
    inner = {key: filled(v) if isinstance(v, dict) else v for key, v in fields.items()}
    return {key: value for key, value in inner.items() if value not in ("", [], [""], {}, False)}


def shared(protocol: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a node that links of other programs can express."""
    fields = deepcopy(read_config(protocol, json.dumps(config)).fields)
    found = {**UNSAID.get(protocol, {}), **fields}
    for key in OURS.get(protocol, {"udp"}):
        found.pop(key, None)
    if found.get("network") == "h2":
        found["tls"] = True
    if "max-early-data" in found.get("ws-opts", {}):
        found["ws-opts"]["early-data-header-name"] = "Sec-WebSocket-Protocol"  # Xray's only one
    found.get("http-opts", {}).pop("method", None)
    found.get("plugin-opts", {}).pop("mux", None)
    if config.get("udp-over-tcp-version") == 2:
        found.pop("udp-over-tcp", None)
    if "ports" in found:  # they hop from the first
        found["port"] = port_ranges(found["ports"])[0][0]
    return filled(found)


def test_every_protocol_has_a_reader() -> None:
    assert set(READERS) == set(PROTOCOLS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data(), name=names)
def test_other_programs_read_the_same_node_from_an_exported_link(
    protocol: str, data: st.DataObject, name: str
) -> None:
    config = data.draw(CONFIGS[protocol])
    link = render_link(name, protocol, json.dumps(config)).text
    assert filled(READERS[protocol](link)) == shared(protocol, config)


@pytest.mark.parametrize(
    ("protocol", "config", "lost"),
    [
        ("tuic", {"uuid": UUID, "password": "p", "heartbeat-interval": 5000}, ()),
        ("anytls", {"password": "p", "idle-session-timeout": 30}, ("idle-session-timeout",)),
        (
            "trojan",
            {"password": "p", "network": "ws", "ws-opts": {"max-early-data": 2048}},
            ("ws-opts.early-data-header-name",),
        ),
        ("http", {"headers": {"X-A": "b"}}, ("headers.X-A",)),
        ("vmess", {"uuid": UUID, "global-padding": True}, ("global-padding",)),
        ("ss", {"cipher": "none", "password": "p", "ip-version": "ipv4"}, ("ip-version",)),
        # Other programs write a missing name as `None`, so a server of that name is not read back.
        (
            "trojan",
            {"password": "p", "network": "httpupgrade", "ws-opts": {"headers": {"Host": "NONE"}}},
            ("ws-opts.headers.Host",),
        ),
    ],
)
def test_fields_that_a_link_cannot_express_are_named(
    protocol: str, config: dict[str, Any], lost: tuple[str, ...]
) -> None:
    server = {"server": "a.example", "port": 443}
    assert render_link("n", protocol, json.dumps(server | config)).lost == lost
