"""Finds other programs' packet handling on interfaces that the fast path would bypass.

Incoming packets of an interface meet programs and filters there (tc(8)), then nftables' chains of
that device; outgoing packets meet such chains, programs, filters, and at last a qdisc. The fast
path bypasses the filters and chains where a packet comes in, and the chains where it goes out. It
does meet programs and filters there, and the qdisc, but without the mark and priority that nftables
may have set, by which those may classify. A qdisc with only one queue for all packets, or one that
classifies by itself, still works (``fq_codel``, ``cake``, ``tbf``, ``htb`` with one class); and so
does XDP, which comes before everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from egressd.model.wording import Sentence, say
from egressd.netd.kernel import traffic_control as tc
from egressd.netd.kernel import uapi
from egressd.netd.kernel.fast_path import filters
from egressd.netd.kernel.fast_path.hooks import Hooks
from egressd.netd.kernel.netlink import NFGENMSG, NetlinkSocket, attributes, items, text
from egressd.netd.kernel.set_elements import SUBSYSTEM
from egressd.planner.registry import NFT_TABLE

_SORTING: Final = frozenset(
    {"cbq", "drr", "dsmark", "ets", "hfsc", "htb", "mqprio", "multiq", "prio", "qfq", "taprio"}
)
"""Kinds of qdiscs with classes, which may be chosen by a packet's mark or priority."""
_REDIRECTING: Final = b"mirred\0"
"""The action that takes packets to another device, as it occurs in the options of a filter."""

_GET_CHAIN: Final = SUBSYSTEM | uapi.NFT_MSG_GETCHAIN
_GET_FLOWTABLE: Final = SUBSYSTEM | uapi.NFT_MSG_GETFLOWTABLE
_ALL_FAMILIES: Final = NFGENMSG.pack(uapi.NFPROTO_UNSPEC, 0, 0)
_FAMILIES: Final = {
    uapi.NFPROTO_INET: "inet",
    uapi.NFPROTO_IPV4: "ip",
    uapi.NFPROTO_NETDEV: "netdev",
    uapi.NFPROTO_IPV6: "ip6",
}


class Others(NamedTuple):
    """The result of a look at other programs' packet handling on some interfaces."""

    interfaces: Mapping[int, str]
    """Index -> name."""
    commands: Mapping[int, tuple[str, ...]] = {}
    """Interface that known flows must not pass by the fast path -> commands that show the
    reason."""
    fronts: frozenset[int] = frozenset()
    """Interfaces with a qdisc for filters, ours included."""
    diverted: frozenset[int] = frozenset()
    """Interfaces whose filters may lead incoming packets past nftables' chains of that device,
    where upload limits are."""
    passed: frozenset[int] = frozenset()
    """Interfaces with filters for outgoing packets. Packets that have waited for a download limit
    bypass their actions: the kernel regards them as already filtered."""
    flowtables: tuple[str, ...] = ()
    """Family, table and name of each flowtable that has one of the interfaces."""


def find(kernel: NetlinkSocket, hooks: Hooks, interfaces: Mapping[int, str]) -> Others:
    """Look at interfaces, by index and name. Raises OSError."""
    commands = defaultdict[int, list[str]](list)
    fronts, diverted, passed = set[int](), set[int](), set[int]()
    for qdisc in tc.qdiscs(kernel):
        index = qdisc.interface
        name = interfaces.get(index)
        if name is None:
            continue
        if qdisc.parent == uapi.TC_H_CLSACT:
            fronts.add(index)
            incoming = filters.others(kernel, index, tc.INGRESS)
            # A filter of ours would apply to all interfaces that share the qdisc.
            if incoming or (qdisc.is_shared and not hooks.has_tcx):
                commands[index].append(f"tc filter show dev {name} ingress")
            if any(it.kind == "bpf" or _REDIRECTING in it.options for it in incoming):
                diverted.add(index)
            if qdisc.kind == "clsact" and filters.others(kernel, index, tc.EGRESS):
                commands[index].append(f"tc filter show dev {name} egress")
                passed.add(index)
        elif qdisc.handle and tc.filters(kernel, index, qdisc.handle):
            commands[index].append(f"tc filter show dev {name}")
        elif qdisc.kind in _SORTING and tc.leaves(kernel, qdisc) > 1:
            commands[index].append(f"tc class show dev {name}")
    for index, name in interfaces.items():
        if hooks.has_others_at_egress(index):
            commands[index].append(f"bpftool net show dev {name}")
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as netfilter:
        for devices, command in _chains(netfilter):
            for index in _of(devices, interfaces):
                commands[index].append(command)
        flowtables = [
            found for devices, found in _flowtables(netfilter) if any(_of(devices, interfaces))
        ]
    unique = {index: tuple(dict.fromkeys(found)) for index, found in commands.items()}
    return Others(
        interfaces,
        commands=unique,
        fronts=frozenset(fronts),
        diverted=frozenset(diverted),
        passed=frozenset(passed),
        flowtables=tuple(flowtables),
    )


def told(found: Others, *, has_fast_path: bool, limited: Container[str]) -> Iterator[Sentence]:
    """Return sentences about the consequences. `limited`: LANs with clients that have speed
    limits.
    """
    if has_fast_path:
        for index, commands in found.commands.items():
            yield say("slower-by-rules", name=found.interfaces[index], commands=commands)
    for index, name in found.interfaces.items():
        if index in found.diverted and name in limited:
            yield say("upload-limits-passed", name=name)
        if index in found.passed and name in limited:
            yield say("filters-passed", name=name)
    for flowtable in found.flowtables:
        yield say("flowtable-in-the-way", flowtable=flowtable)


def _chains(kernel: NetlinkSocket) -> Iterator[tuple[list[tuple[int, str]], str]]:
    """Yield the devices of each chain that sees their incoming or outgoing packets, and the command
    that shows the chain.
    """
    for body in kernel.dump(_GET_CHAIN, _ALL_FAMILIES):
        family, found = body[0], attributes(body, NFGENMSG.size)
        hook = attributes(found.get(uapi.NFTA_CHAIN_HOOK, b""))
        number = int.from_bytes(hook.get(uapi.NFTA_HOOK_HOOKNUM, b""), "big")
        is_ingress = (family, number) == (uapi.NFPROTO_INET, uapi.NF_INET_INGRESS)
        if not hook or not (is_ingress or family == uapi.NFPROTO_NETDEV):
            continue
        table, chain = text(found[uapi.NFTA_CHAIN_TABLE]), text(found[uapi.NFTA_CHAIN_NAME])
        if table != NFT_TABLE:
            devices = list(items(hook.get(uapi.NFTA_HOOK_DEVS, b"")))
            devices.append((0, hook.get(uapi.NFTA_HOOK_DEV, b"")))
            command = f"nft list chain {_FAMILIES[family]} {table} {chain}"
            yield [(kind, text(name)) for kind, name in devices if name], command


def _flowtables(kernel: NetlinkSocket) -> Iterator[tuple[list[tuple[int, str]], str]]:
    """Yield the devices of each flowtable, and its name."""
    for body in kernel.dump(_GET_FLOWTABLE, _ALL_FAMILIES):
        found = attributes(body, NFGENMSG.size)
        hook = attributes(found.get(uapi.NFTA_FLOWTABLE_HOOK, b""))
        listed = items(hook.get(uapi.NFTA_FLOWTABLE_HOOK_DEVS, b""))
        devices = [(kind, text(name)) for kind, name in listed]
        names = text(found[uapi.NFTA_FLOWTABLE_TABLE]), text(found[uapi.NFTA_FLOWTABLE_NAME])
        yield devices, " ".join((_FAMILIES.get(body[0], "bridge"), *names))


def _of(devices: list[tuple[int, str]], interfaces: Mapping[int, str]) -> Iterator[int]:
    """Yield the matching interfaces. A device is a name, or (Linux 6.17) the beginning of a
    name.
    """
    for index, name in interfaces.items():
        if any(
            name.startswith(device) if kind == uapi.NFTA_DEVICE_PREFIX else name == device
            for kind, device in devices
        ):
            yield index
