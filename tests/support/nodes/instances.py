"""Engine instances of the plan, for tests that are not about their work."""

from __future__ import annotations

from egressd.model.instances import Dialer, Hop, Instance, NodePath, ProxyListener
from egressd.model.outbounds import Socks5
from egressd.planner.registry import MARK_DIRECT, node_mark


def node_path(number: int = 1, server: str = "192.0.2.1", *, udp: bool = True) -> NodePath:
    """Return the path to a SOCKS5 node with this id."""
    outbound = Socks5(server=server, server_port=1080, udp=udp)
    hop = Hop(node=number, outbound=outbound)
    return NodePath(hops=(hop,), mark=MARK_DIRECT, resolver="192.0.2.53")


def node_instance(
    number: int = 1, server: str = "192.0.2.1", *, udp: bool = True, standby: bool = False
) -> Instance:
    """Return the instance that sends clients to the node; another `server` is another
    configuration.
    """
    work = Dialer(paths=(node_path(number, server, udp=udp),), resolvers=("192.0.2.55",))
    return Instance(key=f"node:{number}", mark=node_mark(number), work=work, standby=standby)


def service_instance(
    port: int, number: int = 1, *, username: str = "", password: str = ""
) -> Instance:
    """Return the instance of a proxy service."""
    work = ProxyListener(
        mark=MARK_DIRECT,
        resolver="192.0.2.53",
        dns_mark=MARK_DIRECT,
        port=port,
        username=username,
        password=password,
    )
    return Instance(key=f"service:{number}", work=work)
