"""Ten configurations of a device, as the elements that the planner gives the nftables table.

Together they fill each set and map that a load fills. The golden files beside them have the whole
text of each; `tests/lab/test_ruleset.py` loads them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any, Final

import msgspec

from egressd.model.instances import Dialer, Hop
from egressd.model.nouns import Line
from egressd.model.outbounds import Hysteria2, Tls
from egressd.model.plan import Egress, GlobalPolicy, Group, Plan, WhitelistPlan
from egressd.planner import nft
from egressd.planner.groups import SLOTS, Choice
from egressd.planner.nft import Crowd, Greedy
from egressd.planner.registry import (
    MARK_DIRECT,
    MARK_REJECT,
    SNIFF_DIRECT,
    SNIFF_REJECT,
    egress_mark,
    group_mark,
    line_mark,
    node_mark,
    sniffer_mark,
)
from egressd.planner.sets import Elements
from egressd.planner.topology import Topology
from tests.support.nodes.instances import node_instance, node_path, service_instance

LAN, OTHER_LAN, DOCKER = map(IPv4Network, ("10.77.0.0/24", "10.78.0.0/24", "172.17.0.0/16"))
ONE_LAN: Final = Topology(
    lans=("lan0",),
    lan_networks=(("lan0", LAN),),
    wans=("wan1", "wan2"),
    seen_wans=("wan1", "wan2"),
    direct_exits=("wan1", "wan2"),
    routable=("wan1", "wan2"),
    known=("lan0", "wan1", "wan2"),
    outer_addresses=(
        ("wan1", IPv4Address("198.51.100.2")),
        ("wan2", IPv4Address("203.0.113.2")),
    ),
    router_addresses=(IPv4Address("10.77.0.1"),),
    unheard=("lan0",),
)
TWO_LANS: Final = msgspec.structs.replace(
    ONE_LAN,
    lans=("lan0", "lan1"),
    lan_networks=(("lan0", LAN), ("lan1", OTHER_LAN)),
    known=("lan0", "lan1", "wan1", "wan2"),
    unheard=("lan0", "lan1"),
    multicast=True,
    narrow=("wan2",),
)
ONE_ARM: Final = Topology(
    lans=("eth0",),
    lan_networks=(("eth0", LAN),),
    wans=("eth0",),
    seen_wans=("eth0",),
    direct_exits=("eth0",),
    routable=("eth0",),
    known=("eth0",),
    router_addresses=(IPv4Address("10.77.0.2"),),
    unheard=("eth0",),
    routers6=(("eth0", IPv6Address("fe80::1")),),
)
WITH_SOURCES: Final = msgspec.structs.replace(
    ONE_LAN,
    fixed_sources=(("wan1", IPv4Address("192.0.2.7")), ("wan2", IPv4Address("192.0.2.8"))),
    sources=(("wan1", IPv4Address("192.0.2.7")),),
)
WITH_A_LINE: Final = msgspec.structs.replace(
    ONE_LAN, routable=("wan1", "wan2", "l2tp_office"), known=(*ONE_LAN.known, "l2tp_office")
)
WITH_CONTAINERS: Final = msgspec.structs.replace(
    ONE_LAN,
    local=("docker0",),
    local_networks=(("docker0", DOCKER),),
    known=(*ONE_LAN.known, "docker0"),
    unheard=("lan0", "docker0"),
)

_POLICY: Final = GlobalPolicy(resolvers=("192.0.2.53", "192.0.2.54"))
_EGRESSES: Final = {
    "wan1": Egress(number=1, resolvers=("192.0.2.61",)),
    "wan2": Egress(number=2, resolvers=("192.0.2.62",)),
}
_RULES: Final = {
    "10.77.0.11": MARK_DIRECT,
    "10.77.0.12": egress_mark(1),
    "10.77.0.13": egress_mark(2),
    "10.77.0.14": MARK_REJECT,
}
_NODES: Final = {f"node:{n}": node_instance(n, udp=n != 2) for n in (1, 2, 3)}
_NODE_PORTS: Final = {"node:1": 20_000, "node:2": 20_001, "node:3": 20_002}


def _plan(**parts: Any) -> Plan:
    """Return the plan of these parts in netd, where it always has an epoch."""
    return Plan(**{"whitelist": WhitelistPlan(epoch=1), **parts})


def _stopped() -> Elements:
    plan = _plan(policy=GlobalPolicy(stopped=True, unmanaged=MARK_DIRECT), hosts=_RULES)
    return nft.elements(plan, ONE_LAN, {})


def _direct_and_wans() -> Elements:
    plan = _plan(
        policy=msgspec.structs.replace(_POLICY, unmanaged=MARK_DIRECT),
        hosts=_RULES,
        nets={"10.77.0.64-10.77.0.127": egress_mark(2), "10.77.0.9-10.77.0.9": MARK_REJECT},
        egresses=_EGRESSES,
    )
    return nft.elements(plan, WITH_SOURCES, {})


def _two_lans() -> Elements:
    plan = _plan(
        policy=_POLICY,
        hosts={**_RULES, "10.78.0.11": MARK_DIRECT},
        egresses=_EGRESSES,
        bindings={"10.78.0.11": "02:00:5e:00:53:01"},
    )
    return nft.elements(plan, TWO_LANS, {}, api_ports=(8080, 8443))


def _one_arm() -> Elements:
    plan = _plan(
        policy=GlobalPolicy(resolvers=("10.77.0.2", "192.0.2.53")),
        hosts={"10.77.0.11": MARK_DIRECT},
        egresses={"eth0": Egress(number=1)},
    )
    return nft.elements(plan, ONE_ARM, {})


def _nodes() -> Elements:
    hop = Hop(node=3, outbound=Hysteria2(server="192.0.2.3", udp=True, tls=Tls()))
    path = msgspec.structs.replace(node_path(3), hops=(hop,))
    work = Dialer(paths=(path,), resolvers=("192.0.2.55",))
    short = msgspec.structs.replace(_NODES["node:3"], work=work)
    plan = _plan(
        policy=_POLICY,
        hosts={f"10.77.0.{n}": node_mark(n) for n in (1, 2, 3)},
        instances={**_NODES, "node:3": short},
        neighbours={"node:2": "10.77.0.200"},
    )
    greedy = (Greedy("10.77.0.1", "tcp"), Greedy("10.77.0.3", "udp"))
    return nft.elements(plan, ONE_LAN, _NODE_PORTS, greedy=greedy)


def _groups() -> Elements:
    first = Group(
        mark=group_mark(1), members=(*_NODES,), strategy="fallback", url="", interval_s=30
    )
    second = msgspec.structs.replace(first, mark=group_mark(2), strategy="sticky")
    plan = _plan(
        policy=_POLICY,
        hosts={"10.77.0.21": group_mark(1), "10.77.0.22": group_mark(2)},
        instances=_NODES,
        groups={"group:1": first, "group:2": second},
    )
    living = ("node:1", "node:2")
    choices = {
        "group:1": Choice(living=living, elected="node:1"),
        "group:2": Choice(
            living=living,
            kept={"10.77.0.22": "node:2"},
            slots=tuple(living[n % 2] for n in range(SLOTS)),
        ),
    }
    return nft.elements(plan, ONE_LAN, _NODE_PORTS, choices=choices)


def _whitelist() -> Elements:
    sniffers = {MARK_DIRECT: SNIFF_DIRECT, egress_mark(1): 1, MARK_REJECT: SNIFF_REJECT}
    plan = _plan(
        policy=_POLICY,
        hosts={**_RULES, "10.77.0.15": node_mark(1)},
        egresses=_EGRESSES,
        instances=_NODES,
        whitelist=WhitelistPlan(
            mark=node_mark(2),
            ranges=("192.0.2.0-192.0.2.255", "198.51.100.7-198.51.100.9"),
            sniffers={mark: sniffer_mark(number) for mark, number in sniffers.items()},
            tcp_ports=(80, 443),
            udp_ports=(443,),
            epoch=7,
        ),
    )
    return nft.elements(plan, ONE_LAN, _NODE_PORTS)


def _vpn_line() -> Elements:
    line = Line(
        id=1, type="l2tp", name="l2tp_office", server="vpn.example.com", port=1701, username="u",
        password="p",
    )  # fmt: skip
    plan = _plan(
        policy=_POLICY,
        hosts={"10.77.0.31": line_mark(3)},
        egresses={"l2tp_office": Egress(number=3, default_resolvers=("192.0.2.53",))},
        lines={"l2tp_office": line},
    )
    silent = {(line_mark(3), "10.1.1.1")}
    peer_dns = {"l2tp_office": ("10.1.1.1", "10.1.1.2")}
    return nft.elements(plan, WITH_A_LINE, {}, peer_dns=peer_dns, silent=silent)


def _local_networks() -> Elements:
    """Return also the resolvers of local names, and of a WAN one that is asked directly."""
    plan = _plan(
        policy=msgspec.structs.replace(_POLICY, local_resolvers=("10.77.0.1",)),
        hosts={"172.17.0.2": egress_mark(1)},
        egresses={"wan1": Egress(number=1, resolvers=("192.0.2.61",), is_asked_directly=True)},
    )
    return nft.elements(plan, WITH_CONTAINERS, {}, ruled_locals=("docker0",))


def _proxy_services() -> Elements:
    services = {
        "service:1": service_instance(1080, username="u", password="p"),
        "service:2": service_instance(1081, 2),
    }
    crowd = Crowd(frozenset({"10.77.0.50", "203.0.113.9"}), is_full=True)
    return nft.elements(_plan(policy=_POLICY, instances=services), ONE_LAN, {}, crowd=crowd)


def _leased() -> Elements:
    """Return the member of a site, with all that a gate is at: a LAN, multicast, containers with a
    client, and proxy services.
    """
    plan = _plan(
        policy=msgspec.structs.replace(_POLICY, is_leased=True),
        hosts={**_RULES, "172.17.0.2": egress_mark(1)},
        egresses=_EGRESSES,
        instances={"service:1": service_instance(1080, username="u", password="p")},
    )
    topology = msgspec.structs.replace(WITH_CONTAINERS, multicast=True)
    return nft.elements(plan, topology, {}, ruled_locals=("docker0",))


LEASED: Final = _leased()
"""A configuration whose table is loaded with a gate."""
CONFIGURATIONS: Final[dict[str, Elements]] = {
    "stopped": _stopped(),
    "direct_and_wans": _direct_and_wans(),
    "two_lans": _two_lans(),
    "one_arm": _one_arm(),
    "nodes": _nodes(),
    "groups": _groups(),
    "whitelist": _whitelist(),
    "vpn_line": _vpn_line(),
    "local_networks": _local_networks(),
    "proxy_services": _proxy_services(),
}
