"""Speed limits: the class of each rule, and the nftables table that leads to it.

Upload is limited where it comes in from a LAN, download where it goes out to one, so the egress of
a rule's traffic does not matter. A limited rule has one HTB class for each direction, on an
intermediate device (IFB) that all LANs share. The table (family netdev) looks a client's address
up; if its rule is limited, the packet gets the number of the rule's class as priority, by which HTB
chooses the class, and is sent to the device that has the class (``fwd``), from which it returns to
its previous place. Packets of other clients never enter a queue of egressd's, and the LANs keep
their own queueing disciplines.

A packet may be many that the network card or the kernel has joined, up to 64 KiB. At a low limit
that takes seconds, so there are trees that split such packets first. At a high limit it takes no
time, while forwarding each part alone would, so there are as many trees that take them whole. A
rule has one number for both directions, and in each the class of that number in a tree of the kind
that fits its limit (`class_at`).

The checks of a packet, the most specific rule first:

1. traffic with other LANs belongs to no rule and passes, and that of a VLAN on its parent, because
   it is caught on the VLAN;
2. ``…_free_hosts``: addresses with a rule that has no limit, in a network that has one, pass;
3. ``…_hosts``: addresses with a limit go on to their class;
4. ``…_nets``: the same for CIDR rules, flattened to disjoint ranges;
5. traffic of a limited rule with the router itself passes after all (``local``).

So a packet of an unlimited client costs one or two hash look-ups, with ten limited rules as with
ten thousand, and nothing at all while no client is limited: the LANs are not hooked then.

Traffic is counted by elements of the table that every packet passes anyway (`planner.chains`):
``sent``, ``received`` and the same for ranges. The download of a limited rule is counted in its
class, because those elements come before it and count the packets that it drops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses
from itertools import product
from typing import Final, NamedTuple

import msgspec

from egressd.model.plan import Limit
from egressd.planner.declared import Chain, SetSpec, base_chain, chain
from egressd.planner.flatten import flatten, merge, range_text
from egressd.planner.registry import (
    DOWNLOAD_DEVICE,
    HTB_MAJOR,
    HTB_TREE_CLASSES,
    HTB_TREES,
    NFT_TABLE,
    SPLITTER_MAJOR,
    UPLOAD_DEVICE,
)
from egressd.planner.sets import Elements, Sets
from egressd.planner.topology import Topology

LINK_HEADER_BYTES: Final = 14
"""Bytes of Ethernet's header, which the kernel counts as part of a packet."""
PACKET_BYTES: Final = 1500
"""Bytes of a full-sized IP packet."""
FRAME_BYTES: Final = PACKET_BYTES + LINK_HEADER_BYTES

_BURST_MS: Final = 20
"""Milliseconds for which a class may make up after the machine was too busy to serve it."""
_QUEUE_MS: Final = 200
"""Milliseconds that a packet may wait, by the limit, before it is dropped."""
_QUEUE_MIN, _QUEUE_MAX = 10, 1000
"""Packets: enough that eight TCP flows do not starve, and a bound of the memory."""

WHOLE_FROM_KBPS: Final = 100_000
"""Kbps from which joined packets are taken whole: one of 64 KiB takes 5 ms, no longer than fq_codel
lets any packet wait."""
_WHOLE_QUEUE_MAX: Final = 16_000_000
"""Bytes that may wait where packets are taken whole, for the memory's sake."""
_NUMBERS: Final = HTB_TREES * HTB_TREE_CLASSES
"""The end of the numbers given to rules; those of classes that take packets whole begin there."""

_MULTICAST = tuple(IPv4Network(n) for n in ("224.0.0.0/4", "255.255.255.255/32"))


class Direction(msgspec.Struct, frozen=True):
    """Upload or download."""

    name: str
    device: str
    """The beginning of the IFBs' names."""
    hook: str
    """The hook on a LAN interface where its packets are caught."""
    client: str
    """The field of the IPv4 header that holds the client's address."""
    other: str
    """The field that holds the other side's address."""
    counted: str
    """The beginning of the names of the sets that count."""

    @property
    def label(self) -> str:
        """The direction's name in comments."""
        return f"{self.name}load"

    @property
    def hosts(self) -> str:
        """The map of limited hosts to classes."""
        return f"{self.name}_hosts"

    @property
    def nets(self) -> str:
        """The map of limited ranges to classes."""
        return f"{self.name}_nets"

    @property
    def free_hosts(self) -> str:
        """The set of hosts whose rule has no limit, though a network around one may."""
        return f"{self.name}_free_hosts"

    @property
    def counted_hosts(self) -> str:
        """The set of hosts with a rule."""
        return self.counted

    @property
    def counted_nets(self) -> str:
        """The set of ranges with a rule."""
        return f"{self.counted}_nets"

    @property
    def devices(self) -> str:
        """The map of trees' handles to devices."""
        return f"{self.name}_devices"

    def kbps(self, limit: Limit) -> int:
        """Return the limit of this direction; 0 is unlimited."""
        return limit.upload_kbps if self is UPLOAD else limit.download_kbps


UPLOAD: Final = Direction("up", UPLOAD_DEVICE, "ingress", "saddr", "daddr", "sent")
DOWNLOAD: Final = Direction("down", DOWNLOAD_DEVICE, "egress", "daddr", "saddr", "received")
DIRECTIONS: Final = (UPLOAD, DOWNLOAD)


class Shape(NamedTuple):
    """A limit in HTB's terms."""

    rate: int
    """Bytes per second, link headers included."""
    burst: int
    """Bytes that may be sent at once after a pause."""
    queue: int
    """Packets that may wait, joined ones counting as one."""
    queue_bytes: int = 0
    """Bytes that may wait; 0 where `queue` bounds them, since no packet is larger than a frame."""


class Hook(NamedTuple):
    """A LAN interface to catch packets on."""

    ifindex: int
    name: str
    above: tuple[IPv4Network, ...] = ()
    """The networks of LANs stacked on it, whose packets pass it: they are caught on those LANs."""
    own: tuple[IPv4Network, ...] = ()
    """Its own networks, if LANs are stacked on it."""


def is_limited(limit: Limit) -> bool:
    """True if it limits a direction; otherwise it only records a rule."""
    return bool(limit.upload_kbps or limit.download_kbps)


def tree_handle(tree: int) -> int:
    """Return the handle of a tree's HTB qdisc."""
    return (HTB_MAJOR + tree) << 16


def splitter_handle(tree: int) -> int:
    """Return the handle of the qdisc above a tree's."""
    return (SPLITTER_MAJOR + tree) << 16


def class_at(number: int, kbps: int) -> int:
    """Return the number of the class for a limit of `kbps`, in either direction. `number`: what the
    rule was given, 0 to 65,535.
    """
    return number + _NUMBERS * (kbps >= WHOLE_FROM_KBPS)


def given_number(number: int) -> int:
    """Return the number given to the rule that the class `number` is for."""
    return number % _NUMBERS


def class_handle(number: int) -> int:
    """Return the handle of a class by its number, 0 to 131,071.

    It is the priority of its packets: the tree in the upper half, the class in it in the lower.
    """
    return tree_handle(tree_of(number)) | number % HTB_TREE_CLASSES


def class_number(handle: int) -> int:
    """Return the number of a class by its handle."""
    return ((handle >> 16) - HTB_MAJOR) * HTB_TREE_CLASSES + (handle & 0xFFFF)


def tree_of(number: int) -> int:
    """Return the tree that a class is in."""
    return number // HTB_TREE_CLASSES


def splits(tree: int) -> bool:
    """Return whether a tree splits joined packets."""
    return tree < HTB_TREES


def shape(kbps: int) -> Shape:
    """Return the shape of a limit in Kbps (1,000 bit/s of IP packets).

    HTB counts link headers too. A full-sized packet's is added here; small packets, which have more
    header per byte, stay under the limit.
    """
    rate = kbps * 125 * FRAME_BYTES // PACKET_BYTES
    waiting = rate * _QUEUE_MS // 1000
    return Shape(
        rate=rate,
        burst=max(rate * _BURST_MS // 1000, FRAME_BYTES),
        queue=min(max(waiting // FRAME_BYTES, _QUEUE_MIN), _QUEUE_MAX),
        queue_bytes=min(waiting, _WHOLE_QUEUE_MAX) if kbps >= WHOLE_FROM_KBPS else 0,
    )


def local_elements(topology: Topology) -> Elements:
    """Return the set ``local``: the addresses that clients may exchange traffic with at full
    speed.
    """
    networks = [network for _, network in topology.lan_networks]
    networks += [IPv4Network(address) for address in topology.router_addresses]
    return {"local": {range_text(r): "" for r in merge([*networks, *_MULTICAST])}}


def with_exceptions(nets: Mapping[str, Limit]) -> frozenset[Direction]:
    """Return the directions in which a CIDR rule limits hosts that have an unlimited rule of their
    own.
    """
    return frozenset(d for d in DIRECTIONS if any(map(d.kbps, nets.values())))


def host_elements(
    limits: Mapping[str, Limit],
    classes: Mapping[int, int],
    exceptions: Collection[Direction],
) -> Elements:
    """Return the elements of rules of one address. `classes`: rule -> the number given to it;
    `exceptions`: the result of `with_exceptions`."""
    result: Elements = {}
    for direction in DIRECTIONS:
        limited = result.setdefault(direction.hosts, {})
        free = result.setdefault(direction.free_hosts, {})
        for address, limit in limits.items():
            if kbps := direction.kbps(limit):
                limited[address] = handle_text(class_handle(class_at(classes[limit.number], kbps)))
            elif direction in exceptions:
                free[address] = ""
    return result


def net_elements(limits: Mapping[str, Limit], classes: Mapping[int, int]) -> Elements:
    """Return the elements of CIDR rules, disjoint, the most specific rule winning."""
    by_number = {limit.number: limit for limit in limits.values()}
    ranges = net_ranges(limits)
    return {
        direction.nets: {
            key: handle_text(class_handle(class_at(classes[number], kbps)))
            for key, number in ranges.items()
            if (kbps := direction.kbps(by_number[number]))
        }
        for direction in DIRECTIONS
    }


def count_elements(hosts: Iterable[str], ranges: Iterable[str]) -> Elements:
    """Return the elements that count the traffic of rules of one address, and of those of
    ranges.
    """
    result: Elements = {}
    for direction in DIRECTIONS:
        result[direction.counted_hosts] = dict.fromkeys(hosts, "")
        result[direction.counted_nets] = dict.fromkeys(ranges, "")
    return result


def net_ranges(limits: Mapping[str, Limit]) -> dict[str, int]:
    """Return the disjoint ranges of CIDR rules in nft's notation -> number of the rule that has
    each.
    """
    flat = flatten({IPv4Network(cidr): limit.number for cidr, limit in limits.items()})
    return {range_text(key): number for key, number in flat.items()}


def device_elements(devices: Mapping[Direction, Mapping[int, int]]) -> Elements:
    """Return the IFB of each tree. `devices`: tree -> interface index.

    By index, because ``fwd`` accepts nothing else: a recreated device needs a new element.
    """
    return {
        direction.devices: {
            handle_text(tree_handle(tree)): str(index) for tree, index in on.items()
        }
        for direction, on in devices.items()
    }


_CLASS_TYPE: Final = "type ipv4_addr : classid"
_TREE_MASK: Final = 0xFFFF_0000
_NETWORKS_COMPARED: Final = 4
"""Number of LAN networks up to which they are compared one by one, which is faster than a look-up
in a set of ranges (0.3 µs, of 6 µs for forwarding a packet)."""

NETDEV: Final = Sets(
    "netdev",
    {
        "local": SetSpec(
            "type ipv4_addr; flags interval",
            "LANs, this machine and multicast: traffic with these has no limit",
        ),
        **{
            d.free_hosts: SetSpec(
                "type ipv4_addr", f"{d.label}: hosts without a limit in a network that has one"
            )
            for d in DIRECTIONS
        },
    },
    {
        **{
            d.devices: SetSpec(
                "type classid : iface_index", f"{d.label}: handle of an HTB tree to its IFB"
            )
            for d in DIRECTIONS
        },
        **{
            d.hosts: SetSpec(_CLASS_TYPE, f"{d.label}: limited host to its HTB class")
            for d in DIRECTIONS
        },
        **{
            d.nets: SetSpec(
                f"{_CLASS_TYPE}; flags interval", f"{d.label}: limited range to its HTB class"
            )
            for d in DIRECTIONS
        },
    },
    "egressd: speed limits, see docs/shaping.md",
)
COUNT_SETS: Final = tuple(n for d in DIRECTIONS for n in (d.counted_hosts, d.counted_nets))
"""The sets that count, of the table of family inet."""
ADDRESS_SETS: Final = tuple(name for name in NETDEV.names if not name.endswith("_devices"))
"""The sets and maps of the table of family netdev whose elements are addresses or ranges."""
RANGE_SETS: Final = NETDEV.ranges | {d.counted_nets for d in DIRECTIONS}
"""Sets and maps of both tables whose elements are ranges of addresses."""


def chains(hooks: Iterable[Hook], networks: Sequence[IPv4Network], stale: Iterable[str]) -> str:
    """Make sets, chains and rules, leaving the sets' elements as they are.

    `networks`: those of the LANs. `stale`: the existing base chains. All of them are deleted and
    those of `hooks` added in the same transaction.
    """
    table = f"netdev {NFT_TABLE}"
    lines = NETDEV.create()
    lines += [f"delete chain {table} {name}" for name in stale]
    for name, made in (pair for d in DIRECTIONS for pair in _chains(d, networks).items()):
        lines += [f"add chain {table} {name} {made.declared()}", f"flush chain {table} {name}"]
        lines += [f"add rule {table} {name} {rule}" for rule in made.rules]
    for direction, hook in product(DIRECTIONS, hooks):
        name, made = hook_chain(direction, hook), _hooked(direction, hook)
        lines.append(f"add chain {table} {name} {made.declared()}")
        lines += [f"add rule {table} {name} {rule}" for rule in made.rules]
    return "\n".join(lines) + "\n"


def _hooked(direction: Direction, hook: Hook) -> Chain:
    """Return the chain that catches a direction's packets on a LAN."""
    return base_chain(
        f'type filter hook {direction.hook} device "{hook.name}" priority 0;',
        f"{direction.label}: packets of this LAN interface",
        *_base_rules(direction, hook),
    )


def _base_rules(direction: Direction, hook: Hook) -> Iterator[str]:
    """Yield the rules that let packets pass or send them to the direction's chain: the longest
    prefix decides, and if two networks are equal the LAN's own. Limiting a packet twice is better
    than not at all."""
    verdicts = dict.fromkeys(hook.above, "accept") | dict.fromkeys(
        hook.own, f"goto {direction.name}"
    )
    for network in sorted(verdicts, key=lambda one: one.prefixlen, reverse=True):
        yield f"ip {direction.client} {network} {verdicts[network]}"
    yield f"goto {direction.name}"


def _chains(direction: Direction, networks: Sequence[IPv4Network]) -> dict[str, Chain]:
    """Return the chains of one direction; the first is the target of the second."""
    limited = f"{direction.name}_limited"
    client, other = f"ip {direction.client}", f"ip {direction.other}"
    lans = [str(network) for network in networks]
    if len(lans) > _NETWORKS_COMPARED:
        lans = ["@local"]
    return {
        limited: chain(
            f"{direction.label}: to the IFB of the client's HTB class, unless traffic is local",
            f"{other} @local meta priority set 0 accept",
            f"fwd to meta priority & {_TREE_MASK:#x} map @{direction.devices}",
        ),
        direction.name: chain(
            f"{direction.label}: look up the client's HTB class",
            *(f"{other} {lan} accept" for lan in lans),
            f"{client} @{direction.free_hosts} accept",
            f"meta priority set {client} map @{direction.hosts} goto {limited}",
            f"meta priority set {client} map @{direction.nets} goto {limited}",
        ),
    }


def lan_networks(topology: Topology) -> tuple[IPv4Network, ...]:
    """Return the networks of the LANs, as few as cover them."""
    return tuple(collapse_addresses(network for _, network in topology.lan_networks))


def hook_chain(direction: Direction, hook: Hook) -> str:
    """Return the name of the chain that hooks a LAN: by index, because a name may hold an ``@``."""
    return f"{direction.name}_{hook.ifindex}"


def handle_text(handle: int) -> str:
    """Return a class or tree in nft's notation."""
    return f"{handle:#x}"
