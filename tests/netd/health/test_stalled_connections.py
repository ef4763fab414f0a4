"""The connections to nodes that many clients share."""

from __future__ import annotations

from ipaddress import IPv4Address

from egressd.model.instances import Dialer, Hop, Instance, NodePath
from egressd.model.outbounds import Grpc, HttpStream, Tls, Transport, VLess, WebSocket
from egressd.netd.health.stalled_connections import Ends
from egressd.planner.registry import MARK_DIRECT
from tests.support.nodes.instances import service_instance

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"

HERE, THERE = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")


def to(server: str, port: int, transport: Transport | None = None, *, tls: bool = False) -> Hop:
    layer = Tls() if tls else None
    node = VLess(
        server=server, server_port=port, udp=True, uuid=UUID, transport=transport, tls=layer
    )
    return Hop(node=port, outbound=node)


def by(*hops: Hop) -> Instance:
    """Return an instance that dials the first of the hops through the others."""
    path = NodePath(hops=hops, mark=MARK_DIRECT, resolver="192.0.2.53")
    return Instance(key="node:1", work=Dialer(paths=(path,), resolvers=("192.0.2.53",)))


def test_grpc_and_http_2_nodes_share_connections() -> None:
    far = to("192.0.2.1", 9, Grpc())
    ends = Ends.of(
        [
            by(far, to("192.0.2.1", 1, Grpc())),
            by(to("192.0.2.1", 2, HttpStream(), tls=True)),
            by(to("192.0.2.1", 3, HttpStream())),
            by(to("192.0.2.1", 4, WebSocket(), tls=True)),
            by(to("192.0.2.1", 5)),
            service_instance(1080),
        ]
    )
    assert ends.ports == {1, 2}
    assert [port for port in range(1, 6) if ends.is_shared(HERE, port)] == [1, 2]
    assert not ends.is_shared(THERE, 1)


def test_an_end_is_shared_unless_it_is_known_not_to_be() -> None:
    ends = Ends.of([by(to("node.test", 443, Grpc())), by(to("192.0.2.1", 443))])
    assert not ends.is_shared(HERE, 443)
    assert ends.is_shared(THERE, 443)
    assert not ends.is_shared(THERE, 80)
    both = Ends.of([by(to("192.0.2.1", 443, Grpc())), by(to("192.0.2.1", 443))])
    assert both.is_shared(HERE, 443)
    assert Ends.of([]).ports == frozenset()
