"""The plan: the state that netd has to put in force, and the difference of two plans.

A plan says nothing about the machine at the moment (see `facts`): netd finds out the gateway of a
WAN, the port of an engine instance and the index of an interface. So a plan stays valid while the
api is away.

Everything that can change on its own is an entry of a keyed table, so that one host's rule is one
entry of one table on the way from the planner to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from egressd.model.bounds import RULE_LIMIT_MAX_KBPS
from egressd.model.forms import Address, Addresses, Mac, Mark, Number, Port, Url
from egressd.model.instances import Instance, RuleSetName
from egressd.model.nouns import GroupStrategy, Line, OnSwitch

K = TypeVar("K")
V = TypeVar("V")

PLAN_VERSION = 2
"""The format of plans. It is raised if an older netd could misread a plan; another version is
refused."""

CLIENTS_MAX: Final = 1 << 18
"""Entries of a table of clients. The largest devices have 50,000 rules."""
OTHERS_MAX: Final = 1 << 14
"""Entries of any other table. There are 10,000 ports for engine instances to listen at."""

MemberKey: TypeAlias = Annotated[
    str,
    Meta(
        max_length=25,
        pattern=r"\A(node:[0-9]{1,10}|DIRECT|Interface:[A-Za-z0-9][A-Za-z0-9_.@-]{0,14})\Z",
    ),
]
Entries: TypeAlias = Annotated[dict[str, V], Meta(max_length=CLIENTS_MAX)]
Ports: TypeAlias = Annotated[tuple[Port, ...], Meta(max_length=65_535)]
Rate: TypeAlias = Annotated[int, Meta(ge=0, le=RULE_LIMIT_MAX_KBPS)]


class _Entry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of the plan, in the form that it has on netd's socket and in the plan file."""


class Group(_Entry, frozen=True, kw_only=True):
    """Nodes, interfaces and DIRECT, which share the clients of one target. netd decides which of
    them serves which client, by their health (`egressd.planner.groups`).
    """

    mark: Mark
    members: Annotated[tuple[MemberKey, ...], Meta(min_length=1)]
    """In the order of ``fallback``: keys of nodes' instances, and the other targets as rules name
    them."""
    strategy: GroupStrategy
    url: Url
    """The URL that is fetched through a member to check it."""
    interval_s: Annotated[int, Meta(ge=1, le=86_400)]
    """Seconds within which clients leave a member that falls silent."""
    weights: dict[MemberKey, Annotated[int, Meta(ge=1, le=100)]] = {}
    """Member -> its part of the clients with ``spread``, 1 if it is missing."""
    tolerance_ms: Annotated[int, Meta(ge=0, le=10_000)] = 50
    """With ``urltest``, the milliseconds by which another member must be faster."""
    failback_s: Annotated[int, Meta(ge=-1, le=86_400)] = 0
    """Seconds for which a better member must have been healthy before clients return to it; -1 if
    they do not."""
    on_switch: OnSwitch = "keep"
    """The fate of flows if another member is chosen while theirs lives."""
    rotate_every_s: Annotated[int, Meta(ge=0, le=31 * 86_400)] = 0
    """With ``sticky``, the seconds after which each client gets another member; 0 for never."""

    @property
    def routed_members(self) -> tuple[str, ...]:
        """The members whose traffic the kernel routes."""
        return tuple(key for key in self.members if is_routed_member(key))


def is_routed_member(key: str) -> bool:
    """True for the key of a group's member whose traffic the kernel routes, and no node."""
    return not key.startswith("node:")


class Egress(_Entry, frozen=True, kw_only=True):
    """An interface that traffic may leave by: a mark and a routing table of its own."""

    number: Annotated[int, Meta(ge=1, le=0x7FFF)]
    resolvers: Addresses = ()
    """IPv4 addresses that its clients' DNS is sent to, the preferred one first; if empty, those
    that a line's peer hands out."""
    default_resolvers: Addresses = ()
    """Resolvers for a line whose peer hands out none."""
    is_asked_directly: bool = False
    """True if the resolvers are asked as DIRECT traffic instead of through the interface. All such
    egresses have the same resolvers."""


class Limit(_Entry, frozen=True, kw_only=True):
    """A rule's speed limits in Kbps (1,000 bit/s); 0 is unlimited. ``number`` is the rule's id.

    An enabled rule without limits has an entry too: it exempts its clients from the limit of a
    wider rule around it, and its traffic is counted.
    """

    number: Annotated[int, Meta(ge=1, le=0x7FFF_FFFF_FFFF_FFFF)]
    upload_kbps: Rate
    download_kbps: Rate


class WhitelistPlan(_Entry, frozen=True, kw_only=True):
    """The target of listed destinations, and the ports on which traffic is inspected for
    domains.
    """

    mark: Mark = 0
    """The destination's mark; 0 if the whitelist is empty."""
    ranges: tuple[str, ...] = ()
    """Disjoint, sorted ``first-last`` IPv4 ranges."""
    sniffers: Annotated[dict[Mark, Mark], Meta(max_length=OTHERS_MAX)] = {}
    """Mark of a kernel-routed target -> mark of the instance that sniffs for it."""
    tcp_ports: Ports = ()
    udp_ports: Ports = ()
    rule_sets: dict[RuleSetName, bytes] = {}
    """Rule sets of the domains, as `planner.rule_set` writes them and names them."""
    epoch: Annotated[int, Meta(ge=0, le=0xFFF)] = 0
    """The number of this whitelist, which flows decided under it keep; another one cuts them. It
    comes from the state. In a plan of a state that has none yet it is 0, and netd counts on from
    its own, which is never 0."""

    def same_entries(self, other: WhitelistPlan) -> bool:
        """True if both send the same traffic to the same destination, regardless of the
        sniffers.
        """
        mine = msgspec.structs.replace(self, sniffers={}, epoch=0)
        return mine == msgspec.structs.replace(other, sniffers={}, epoch=0)


class GlobalPolicy(_Entry, frozen=True, kw_only=True):
    """The settings that hold for the device as a whole."""

    unmanaged: Mark = 0
    """Mark of LAN clients without a rule; 0 blocks them."""
    resolvers: Addresses = ()
    """Resolvers of DIRECT's clients, the preferred one first; without any, only questions to the
    router itself are refused."""
    local_resolvers: Addresses = ()
    """Resolvers of local names. If there are any, an instance ``dns:N`` answers the DNS of each
    target that the kernel routes, N being its egress's number, or 0 for DIRECT."""
    stopped: bool = False
    """True if every client is blocked, regardless of the tables."""
    opened: bool = False
    """True if no client has a rule, regardless of the tables: each is treated as `unmanaged` is."""
    is_leased: bool = False
    """True in a site of several members: the kernel lets clients through only as long as the lease
    says that netd was given last, and none before the first one. So the other members know that it
    lets no client through without one, also while it is opened."""

    @property
    def is_ruled(self) -> bool:
        """True if the tables of clients apply."""
        return not (self.stopped or self.opened)


class Plan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything netd keeps in force. Tables map their key to the entry."""

    version: int = PLAN_VERSION
    revision: Number = 0
    policy: GlobalPolicy = GlobalPolicy()
    whitelist: WhitelistPlan = WhitelistPlan()
    delay_url: Url = ""
    """The URL that is fetched to check a node that connections fail through."""
    hosts: Entries[Mark] = {}
    """Client address -> mark of its target."""
    nets: Entries[Mark] = {}
    """Disjoint ``first-last`` IPv4 range -> mark: the CIDR rules, flattened."""
    instances: Entries[Instance] = {}
    groups: Entries[Group] = {}
    """``group:<number>`` -> group, if it is used."""
    egresses: Entries[Egress] = {}
    """Interface name -> egress."""
    limits: Entries[Limit] = {}
    """Client address or CIDR -> limit, for every enabled rule."""
    lines: Entries[Line] = {}
    """Interface name -> the line to dial."""
    bindings: Entries[Mac] = {}
    """Client address -> the hardware address of the only device that may use it."""
    neighbours: Entries[Address] = {}
    """``node:7`` -> the IPv4 address of that node's server, if a LAN uses such addresses."""

    @property
    def is_leased(self) -> bool:
        """True if clients are let through only while a lease runs."""
        return self.policy.is_leased

    def apply(self, change: Change) -> None:
        """Turn this plan into the one that `change` leads to, in place.

        Raises ValueError if `change` starts from another revision.
        """
        if change.base != self.revision:
            raise ValueError(f"change starts from revision {change.base}, not {self.revision}")
        for name in TABLES:
            table: dict[Any, Any] = getattr(self, name)
            patch: Patch[Any] = getattr(change, name)
            for key in patch.drop:
                table.pop(key, None)
            table.update(patch.put)
        for name in SINGLES:
            if (value := getattr(change, name)) is not None:
                setattr(self, name, value)
        self.revision = change.revision


TABLES: Final = {
    "hosts": CLIENTS_MAX,
    "nets": CLIENTS_MAX,
    "instances": OTHERS_MAX,
    "groups": OTHERS_MAX,
    "egresses": OTHERS_MAX,
    "limits": CLIENTS_MAX,
    "lines": OTHERS_MAX,
    "bindings": CLIENTS_MAX,
    "neighbours": OTHERS_MAX,
}
"""The fields of `Plan` that are keyed tables, and the number of entries that netd takes."""
SINGLES = ("policy", "whitelist", "delay_url")
"""The fields of `Plan` that change as a whole."""


class Patch(
    msgspec.Struct, Generic[V], frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The changes in one table: entries put (new or replaced) and keys dropped."""

    put: Entries[V] = {}
    drop: Annotated[tuple[str, ...], Meta(max_length=CLIENTS_MAX)] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.drop)

    def applied(self, table: Mapping[str, V]) -> Iterator[tuple[str, V]]:
        """Yield the entries that `table` has after this patch; `table` is not changed. O(n)."""
        gone = {*self.drop, *self.put}
        yield from ((key, value) for key, value in table.items() if key not in gone)
        yield from self.put.items()


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The difference of two plans: applying it to revision `base` gives `revision`."""

    version: int = PLAN_VERSION
    base: Number
    revision: Number
    policy: GlobalPolicy | None = None
    whitelist: WhitelistPlan | None = None
    delay_url: Url | None = None
    hosts: Patch[Mark] = Patch()
    nets: Patch[Mark] = Patch()
    instances: Patch[Instance] = Patch()
    groups: Patch[Group] = Patch()
    egresses: Patch[Egress] = Patch()
    limits: Patch[Limit] = Patch()
    lines: Patch[Line] = Patch()
    bindings: Patch[Mac] = Patch()
    neighbours: Patch[Address] = Patch()

    @property
    def is_empty(self) -> bool:
        """True if nothing but the revision changes."""
        tables = any(getattr(self, name) for name in TABLES)
        return not tables and all(getattr(self, name) is None for name in SINGLES)

    def inverse(self, plan: Plan) -> Change:
        """Return the change that leads back to `plan`, the plan that this change starts from."""
        patches: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(plan, name) for name in SINGLES
        }
        for name in TABLES:
            table: dict[str, Any] = getattr(plan, name)
            patch: Patch[Any] = getattr(self, name)
            touched = [*patch.put, *patch.drop]
            patches[name] = Patch(
                put={key: table[key] for key in touched if key in table},
                drop=tuple(key for key in patch.put if key not in table),
            )
        return Change(base=self.revision, revision=plan.revision, **patches)


def patch_between(before: Mapping[str, V], after: Mapping[str, V]) -> Patch[V]:
    """Return the patch that turns table `before` into `after`. O(n)."""
    return Patch(
        put={key: value for key, value in after.items() if before.get(key) != value},
        drop=tuple(key for key in before if key not in after),
    )


def difference(before: Plan, after: Plan) -> Change:
    """Return the change from `before` to `after`. O(n) in the size of the plans."""
    tables: dict[str, Any] = {
        name: patch_between(getattr(before, name), getattr(after, name)) for name in TABLES
    }
    singles: dict[str, Any] = {
        name: getattr(after, name) if getattr(after, name) != getattr(before, name) else None
        for name in SINGLES
    }
    return Change(
        version=after.version, base=before.revision, revision=after.revision, **singles, **tables
    )
