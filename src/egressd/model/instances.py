"""Engine instances as data: the clients of each, its nodes or egress, and its resolvers.

netd makes the engine's own document of an instance, with `egressd.planner.documents`, just before a
worker starts it. Options that these structs have no field for cannot be set in the engine.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.bounds import DNS_SERVERS_MAX, RELAYS_MAX
from egressd.model.device import LocalZone
from egressd.model.forms import Address, Credential, Mark, Number, Port, Url
from egressd.model.nouns import Settings
from egressd.model.outbounds import Hysteria, Hysteria2, Outbound, Part

InstanceKey: TypeAlias = Annotated[
    str, Meta(max_length=20, pattern=r"\A(?:node|sniff|dns|default|service):[0-9]{1,10}\Z")
]
"""The key of an instance: ``node:7``, ``sniff:…``, ``dns:0``, ``default:0``, ``service:4``:
generated, never user text."""
Scheme: TypeAlias = Annotated[str, Meta(max_length=5, pattern=r"\A(?:https?|quic)?\Z")]
"""The protocol in which a domain is recognised; empty: each protocol."""
Zones: TypeAlias = Annotated[tuple[LocalZone, ...], Meta(max_length=1 << 14)]
RuleSetName: TypeAlias = Annotated[str, Meta(max_length=36, pattern=r"\A[0-9a-f]{32}\.srs\Z")]
"""The file name of a rule set, made from its content."""


class Hop(Part, frozen=True, kw_only=True):
    """A node of a path. ``node`` is its id, by which the engine's log names it."""

    node: Number
    outbound: Outbound


class NodePath(Part, frozen=True, kw_only=True, tag="node"):
    """A node and the relays it is dialled through, outermost last.

    Sockets of the outermost one bear ``mark``, and so do questions to ``resolver`` for the names of
    servers.
    """

    hops: Annotated[tuple[Hop, ...], Meta(min_length=1, max_length=RELAYS_MAX + 1)]
    mark: Mark
    resolver: Address


class KernelPath(Part, frozen=True, kw_only=True, tag="kernel"):
    """A path that the kernel routes by ``mark``. ``resolver`` is asked by the same path."""

    mark: Mark
    resolver: Address


class GroupPolicy(Part, frozen=True, kw_only=True):
    """The policy by which an instance of several nodes chooses among them: the delay of ``url``."""

    url: Url
    interval_s: Annotated[int, Meta(ge=1, le=86_400)]

    @classmethod
    def of(cls, settings: Settings) -> GroupPolicy:
        """Return the device's policy."""
        return cls(url=settings.delay_url, interval_s=settings.check_interval_s)


class ListedSet(Part, frozen=True, kw_only=True):
    """Domains of the whitelist that are recognised alike: with a scheme, all of that scheme at that
    port; without one, those at the usual ports of every scheme.
    """

    rule_set: RuleSetName
    scheme: Scheme = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0


class Listed(Part, frozen=True, kw_only=True):
    """The domains that an instance looks for in its clients' traffic. ``is_direct``: listed traffic
    leaves directly.
    """

    sets: Annotated[tuple[ListedSet, ...], Meta(min_length=1)]
    is_direct: bool


class Dialer(Part, frozen=True, kw_only=True, tag="dialer"):
    """Sends clients to a node, or to one of several, which requires a ``policy``."""

    paths: Annotated[tuple[NodePath, ...], Meta(min_length=1)]
    resolvers: Annotated[tuple[Address, ...], Meta(min_length=1, max_length=DNS_SERVERS_MAX)]
    """Resolvers for clients' questions. Each is asked if those before it do not answer."""
    is_asked_directly: bool = False
    """True if ``resolvers`` are asked directly, not through the node."""
    policy: GroupPolicy | None = None
    listed: Listed | None = None
    zones: Zones = ()
    """Domains that are resolved locally."""

    @property
    def udp(self) -> bool:
        """True if every path carries UDP."""
        return all(hop.outbound.udp for path in self.paths for hop in path.hops)

    @property
    def short(self) -> bool:
        """True if datagrams longer than `planner.registry.SHORT_DATAGRAM` are lost on some path.

        Hysteria sends 4,096 bytes at most, which include the headers of a protocol relayed
        inside.
        """
        kinds = Hysteria | Hysteria2
        return any(isinstance(h.outbound, kinds) for path in self.paths for h in path.hops)


class Sniffer(Part, frozen=True, kw_only=True, tag="sniffer"):
    """Looks for listed domains among kernel-routed traffic.

    Other traffic leaves by ``mark``, or is refused if that is REJECT's. This includes the DNS of
    such clients, because they have no other resolver. Listed names in local ``zones`` are asked
    there.
    """

    mark: Mark
    resolver: Address
    listed: Listed
    zones: Zones = ()


class Asker(Part, frozen=True, kw_only=True, tag="asker"):
    """Answers the DNS of clients whose target the kernel routes: names in local ``zones`` by their
    resolvers, others by the resolver that is in use for the egress of ``mark``.
    """

    mark: Mark
    zones: Zones


class ProxyListener(Part, frozen=True, kw_only=True, tag="proxy"):
    """A local proxy service: socks5 and http at ``port``, with one egress.

    The resolver is asked by the egress of ``dns_mark``.
    """

    mark: Mark
    resolver: Address
    dns_mark: Mark
    port: Port
    username: Credential = ""
    password: Credential = ""


Work: TypeAlias = Dialer | Sniffer | Asker | ProxyListener


class Instance(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An engine instance to run: a sing-box of its own inside a worker process.

    If ``mark`` is set the instance serves a target: netd picks the port of its TPROXY listener
    and puts it in the kernel's ``ports`` map.
    """

    key: InstanceKey
    work: Work
    mark: Mark = 0
    standby: bool = False
    """True if the instance only serves groups: it is started when one of them needs it."""

    @property
    def udp(self) -> bool:
        """True if it carries UDP. If not, clients' UDP is rejected so that they fall back to
        TCP.
        """
        return self.work.udp if isinstance(self.work, Dialer) else True

    @property
    def short(self) -> bool:
        """True if it carries short datagrams only (`planner.registry.SHORT_DATAGRAM`)."""
        return isinstance(self.work, Dialer) and self.work.short

    @property
    def port(self) -> int:
        """The TCP port of a proxy service's listener; 0 for all others."""
        return self.work.port if isinstance(self.work, ProxyListener) else 0

    @property
    def lan_only(self) -> bool:
        """True if only LAN clients may connect to `port`, because it asks for no password."""
        work = self.work
        return isinstance(work, ProxyListener) and not (work.username and work.password)

    def __rich_repr__(self) -> Any:
        yield "key", self.key
        yield "mark", f"{self.mark:#x}"

    def __repr__(self) -> str:
        return f"Instance(key={self.key!r}, mark={self.mark:#x})"
