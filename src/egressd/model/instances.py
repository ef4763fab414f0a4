"""Engine instances as data: whom one serves, by which nodes or way out, and who resolves names.

netd makes the engine's own document of an instance, with `egressd.planner.documents`, just before
a worker starts it. What these structs have no field for cannot be asked of the engine.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.bounds import DNS_SERVERS_MAX, RELAYS_MAX
from egressd.model.device import LocalZone
from egressd.model.forms import Address, Credential, Mark, Number, Port, Url
from egressd.model.nouns import Settings
from egressd.model.outbounds import Hysteria2, Outbound, Part

InstanceKey: TypeAlias = Annotated[
    str, Meta(max_length=20, pattern=r"\A(?:node|sniff|dns|default|service):[0-9]{1,10}\Z")
]
"""``node:7``, ``sniff:…``, ``dns:0``, ``default:0``, ``service:4``: generated, never user text."""
Scheme: TypeAlias = Annotated[str, Meta(max_length=5, pattern=r"\A(?:https?|quic)?\Z")]
"""In which protocol a domain is recognised; empty: in each."""
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
    """A way that the kernel routes by ``mark``. ``resolver`` is asked by it, too."""

    mark: Mark
    resolver: Address


class GroupPolicy(Part, frozen=True, kw_only=True):
    """How an instance of several nodes chooses among them: by what each takes for ``url``."""

    url: Url
    interval_s: Annotated[int, Meta(ge=1, le=86_400)]

    @classmethod
    def of(cls, settings: Settings) -> GroupPolicy:
        """Return the device's policy."""
        return cls(url=settings.delay_url, interval_s=settings.check_interval_s)


class ListedSet(Part, frozen=True, kw_only=True):
    """Domains of the whitelist that are recognised alike: all with that scheme at that port, or
    without a scheme those at the usual ports of every scheme.
    """

    rule_set: RuleSetName
    scheme: Scheme = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0


class Listed(Part, frozen=True, kw_only=True):
    """What an instance looks for in its clients' traffic, and whether that leaves directly."""

    sets: Annotated[tuple[ListedSet, ...], Meta(min_length=1)]
    is_direct: bool


class Dialer(Part, frozen=True, kw_only=True, tag="dialer"):
    """Sends clients to a node, or to one of several, which takes a ``policy``."""

    paths: Annotated[tuple[NodePath, ...], Meta(min_length=1)]
    resolvers: Annotated[tuple[Address, ...], Meta(min_length=1, max_length=DNS_SERVERS_MAX)]
    """Asked for clients, each where those before it do not answer."""
    is_asked_directly: bool = False
    """Whether they are asked directly, not through the node."""
    policy: GroupPolicy | None = None
    listed: Listed | None = None
    zones: Zones = ()
    """Names that are asked at home."""

    @property
    def udp(self) -> bool:
        """Whether UDP gets through on each path."""
        return all(hop.outbound.udp for path in self.paths for hop in path.hops)

    @property
    def short(self) -> bool:
        """Whether longer datagrams than `planner.registry.SHORT_DATAGRAM` get lost on some path.

        Hysteria 2 sends 4,096 bytes at most, of which those of what it relays take some.
        """
        return any(isinstance(h.outbound, Hysteria2) for path in self.paths for h in path.hops)


class Sniffer(Part, frozen=True, kw_only=True, tag="sniffer"):
    """Looks for listed domains among kernel-routed traffic.

    What is not listed goes on by ``mark``, or is refused when that is REJECT's: also the DNS of
    such clients, who have no other resolver. Listed names in local ``zones`` are asked there.
    """

    mark: Mark
    resolver: Address
    listed: Listed
    zones: Zones = ()


class Asker(Part, frozen=True, kw_only=True, tag="asker"):
    """Answers the DNS of clients whose target the kernel routes: what is in local ``zones`` there,
    all else by the resolver that is in use by the way of ``mark``.
    """

    mark: Mark
    zones: Zones


class ProxyListener(Part, frozen=True, kw_only=True, tag="proxy"):
    """A local proxy service: socks5 and http at ``port``, with one way out.

    The resolver is asked by the way of ``dns_mark``.
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

    When ``mark`` is set the instance serves a target: netd picks the port of its TPROXY listener
    and puts it in the kernel's ``ports`` map.
    """

    key: InstanceKey
    work: Work
    mark: Mark = 0
    standby: bool = False
    """Whether it only serves groups: it is started when one of them needs it."""

    @property
    def udp(self) -> bool:
        """Whether it carries UDP. If not, clients' UDP is rejected so that they fall back."""
        return self.work.udp if isinstance(self.work, Dialer) else True

    @property
    def short(self) -> bool:
        """Whether it carries short datagrams only (`planner.registry.SHORT_DATAGRAM`)."""
        return isinstance(self.work, Dialer) and self.work.short

    @property
    def port(self) -> int:
        """The TCP port of a proxy service's listener; 0 for all others."""
        return self.work.port if isinstance(self.work, ProxyListener) else 0

    @property
    def lan_only(self) -> bool:
        """Whether only LAN clients may connect to `port`: it asks for no password."""
        work = self.work
        return isinstance(work, ProxyListener) and not (work.username and work.password)

    def __rich_repr__(self) -> Any:
        yield "key", self.key
        yield "mark", f"{self.mark:#x}"

    def __repr__(self) -> str:
        return f"Instance(key={self.key!r}, mark={self.mark:#x})"
