"""Timeouts of silent UDP sessions, in the documents of all instances that serve clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from egressd.model.device import Resolvers
from egressd.model.instances import Listed, ProxyListener, Sniffer
from egressd.model.nouns import Node, Whitelist
from egressd.planner.documents import document_of
from egressd.planner.instances import dialer
from egressd.planner.nodes import DialPath
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.whitelist_entries import listing_of

RESOLVER = "192.0.2.53"
RESOLVERS = Resolvers(
    device=(RESOLVER,), domestic=(RESOLVER,), outbound=(RESOLVER,), home=(RESOLVER,)
)
LISTING = listing_of(Whitelist(domains="a.test", node="DIRECT"))
LISTED = Listed(sets=LISTING.sets, is_direct=True)
CONFIG = json.dumps({"server": "192.0.2.1", "port": 1080})
NODE = Node(id=1, name="n", protocol="socks5", config_json=CONFIG, group="", created_at="")
PROXY = ProxyListener(mark=MARK_DIRECT, resolver=RESOLVER, dns_mark=MARK_DIRECT, port=1080)


DOCUMENTS = {
    "node": document_of(dialer((DialPath((NODE,)),), RESOLVERS, listed=LISTED)),
    "sniffer": document_of(Sniffer(mark=MARK_DIRECT, resolver=RESOLVER, listed=LISTED)),
    "service": document_of(PROXY),
}


def patience(document: str, port: int) -> str:
    """Return the timeout of a session that begins at `port`; the last matching rule counts."""
    rules: list[dict[str, Any]] = json.loads(document)["route"]["rules"]
    said = [
        r for r in rules if r.get("action") == "route-options" and port in r.get("port", [port])
    ]
    assert all(rule["network"] == "udp" for rule in said)
    return str(said[-1]["udp_timeout"]) if said else ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_stun_ntp_and_quic_outlast_two_minutes(name: str) -> None:
    told = {port: patience(DOCUMENTS[name], port) for port in (123, 443, 3478)}
    assert told == {123: "5m", 443: "150s", 3478: "5m"}


def test_other_ports_have_a_timeout_except_on_proxy_services() -> None:
    assert patience(DOCUMENTS["node"], 7) == "5m"
    assert patience(DOCUMENTS["service"], 7) == ""
