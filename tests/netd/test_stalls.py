"""Which connections to nodes many clients share."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import Any

from egressd.netd.stalls import Ends

HERE, THERE = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")


def document(*outbounds: dict[str, Any]) -> str:
    return json.dumps({"outbounds": [{"type": "direct", "tag": "x"}, *outbounds], "route": {}})


def to(server: str, port: int, transport: str = "", *, tls: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "vless", "server": server, "server_port": port}
    if transport:
        made["transport"] = {"type": transport}
    if tls:
        made["tls"] = {"enabled": True}
    return made


def test_grpc_and_http_2_share() -> None:
    ends = Ends.of(
        [
            document(to("192.0.2.1", 1, "grpc")),
            document(to("192.0.2.1", 2, "http", tls=True), to("192.0.2.1", 3, "http")),
            document(to("192.0.2.1", 4, "ws", tls=True), to("192.0.2.1", 5)),
            document(),
        ]
    )
    assert ends.ports == {1, 2}
    assert [port for port in range(1, 6) if ends.is_shared(HERE, port)] == [1, 2]
    assert not ends.is_shared(THERE, 1)


def test_a_name_may_lead_anywhere_but_to_what_is_known_not_to_share() -> None:
    ends = Ends.of([document(to("node.test", 443, "grpc"), to("192.0.2.1", 443))])
    assert not ends.is_shared(HERE, 443)
    assert ends.is_shared(THERE, 443)
    assert not ends.is_shared(THERE, 80)
    both = Ends.of([document(to("192.0.2.1", 443, "grpc"), to("192.0.2.1", 443))])
    assert both.is_shared(HERE, 443)
    assert Ends.of([]).ports == frozenset()
