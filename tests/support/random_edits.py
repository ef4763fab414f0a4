"""Random edits of a state, which stays well-formed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import LocalZone, Resolvers
from egressd.model.names import INTERFACE_PREFIX, parse_target
from egressd.model.nouns import (
    GROUP_STRATEGIES,
    AlertChannel,
    GroupStrategy,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)

RESOLVERS = Resolvers(
    device=("192.0.2.53",), domestic=("192.0.2.54",), outbound=("192.0.2.55",), home=("192.0.2.56",)
)
LOCALLY = structs.replace(
    RESOLVERS, local=(LocalZone(domain="lan", servers=("10.0.0.2", "10.0.0.1")),)
)
NAMES = ("tokyo", "paris", "lima")
GROUPS = ("", "fast", "cheap")
TARGETS = (
    "DIRECT",
    "REJECT",
    *NAMES,
    "Group_fast",
    "Group_cheap",
    "Group_mixed",
    "Interface:wan1",
    "Interface:l2tp_1",
)
GROUP_MEMBERS = ("DIRECT", *NAMES, "Group_cheap", "Interface:wan1", "Interface:l2tp_1")
"""The group among them has no settings: no group leads to itself."""
ADDRESSES = ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.0/24", "10.0.0.0/30", "10.0.0.2/31")


def node(key: int, name: str, group: str, egress: str, relay: str) -> Node:
    config: dict[str, Any] = {"server": f"192.0.2.{key}", "port": 1080, "udp": key % 2 == 0}
    if relay and relay != name:
        config["dialer-proxy"] = relay
    elif egress:
        config["interface-name"] = egress
    return Node(
        id=key,
        name=name,
        protocol="socks5",
        config_json=json.dumps(config),
        group=group,
        created_at="2026-01-01T00:00:00Z",
    )


@dataclass
class Author:
    """Turns drawn values into edits that keep the state well-formed, as `service` does."""

    state: DesiredState
    edits: list[Edit] = field(default_factory=list)

    def number(self, name: str) -> None:
        if name not in self.state.numbers:
            self.put("numbers", name, len(self.state.numbers) + 1)

    def put(self, table: str, key: int | str, row: Any) -> None:
        edit = Edit(table, key, row)
        self.edits.append(edit)
        self.state = self.state.with_edits([edit], self.state.revision)

    def put_rule(
        self, ip: str, target: str, *, is_enabled: bool, limit: int, bound_mac: str = ""
    ) -> None:
        if parse_target(target).kind in ("group", "interface"):
            self.number(target)
        key = self.state.rule_by_ip.get(ip, max(self.state.rules, default=0) + 1)
        rule = Rule(
            id=key,
            ip=ip,
            bound_mac=bound_mac,
            target_node=target,
            is_enabled=is_enabled,
            upload_limit_kbps=limit,
        )
        self.put("rules", key, rule)

    def put_node(self, key: int, name: str, group: str, egress: str, relay: str) -> None:
        if self.state.node_by_name.get(name, key) != key:
            return
        if group:
            self.number(f"Group_{group}")
        if egress:
            self.number(INTERFACE_PREFIX + egress)
        self.put("nodes", key, node(key, name, group, egress, relay))

    def put_change_ip(self, key: int, via: str, *, has_page: bool) -> None:
        before = self.state.nodes.get(key)
        if before is None:
            return
        if parse_target(via).kind == "interface":
            self.number(via)
        url = "https://seller.test/change" if has_page else ""
        self.put("nodes", key, structs.replace(before, change_ip_url=url, change_ip_via=via))

    def drop(self, table: str, key: int) -> None:
        if key in getattr(self.state, table):
            self.put(table, key, None)

    def put_service(self, key: int, interface: str, *, is_enabled: bool) -> None:
        self.number(INTERFACE_PREFIX + interface)
        row = ProxyService(
            id=key,
            name=f"s{key}",
            outbound_interface=interface,
            port=9000 + key,
            username="u",
            password="p",
            is_enabled=is_enabled,
        )
        self.put("services", key, row)

    def put_channel(self, key: int, via: str, *, is_enabled: bool) -> None:
        if parse_target(via).kind in ("group", "interface"):
            self.number(via)
        row = AlertChannel(
            id=key, name=f"c{key}", url="json://example.com", via=via, is_enabled=is_enabled
        )
        self.put("alert_channels", key, row)

    def put_subscription(self, key: int, via: str, *, is_enabled: bool) -> None:
        if parse_target(via).kind in ("group", "interface"):
            self.number(via)
        row = Subscription(
            id=key, name=f"l{key}", url="https://example.com", via=via, is_enabled=is_enabled
        )
        self.put("subscriptions", key, row)

    def mark_gone(self, key: int, at: str) -> None:
        if key in self.state.nodes:
            now = structs.replace(self.state.nodes[key], subscription=1, gone_at=at)
            self.put("nodes", key, now)

    def put_group(
        self,
        key: int,
        name: str,
        members: tuple[str, ...],
        strategy: GroupStrategy,
        pattern: str,
    ) -> None:
        if self.state.group_by_name.get(name, key) != key or f"Group_{name}" in members:
            return
        for target in (f"Group_{name}", *members):
            if parse_target(target).kind in ("group", "interface"):
                self.number(target)
        weights = dict.fromkeys(members[:1], 3) if strategy == "spread" else {}
        row = TargetGroup(
            id=key,
            name=name,
            members=members,
            strategy=strategy,
            weights=weights,
            filter=pattern,
            failback_min=-1 if key == 1 else 0,
        )
        self.put("groups", key, row)


keys = st.integers(1, 4)
steps: st.SearchStrategy[Any] = st.one_of(
    st.tuples(
        st.just("put_rule"),
        st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(TARGETS)),
        st.fixed_dictionaries(
            {
                "is_enabled": st.booleans(),
                "limit": st.sampled_from((0, 512)),
                "bound_mac": st.sampled_from(("", "02:00:5e:00:53:01", "02:00:5e:00:53:02")),
            }
        ),
    ),
    st.tuples(
        st.just("put_node"),
        st.tuples(
            keys,
            st.sampled_from(NAMES),
            st.sampled_from(GROUPS),
            st.sampled_from(("", "wan1", "wan2")),
            st.sampled_from(("", *NAMES)),
        ),
        st.just({}),
    ),
    st.tuples(
        st.just("put_change_ip"),
        st.tuples(keys, st.sampled_from(("", "DIRECT", "paris", "Interface:wan2"))),
        st.fixed_dictionaries({"has_page": st.booleans()}),
    ),
    st.tuples(
        st.just("drop"),
        st.tuples(
            st.sampled_from(
                ("rules", "nodes", "services", "alert_channels", "groups", "subscriptions")
            ),
            keys,
        ),
        st.just({}),
    ),
    st.tuples(
        st.just("put_channel"),
        st.tuples(keys, st.sampled_from(TARGETS)),
        st.fixed_dictionaries({"is_enabled": st.booleans()}),
    ),
    st.tuples(
        st.just("put_subscription"),
        st.tuples(keys, st.sampled_from(TARGETS)),
        st.fixed_dictionaries({"is_enabled": st.booleans()}),
    ),
    st.tuples(
        st.just("mark_gone"),
        st.tuples(keys, st.sampled_from(("", "2026-01-01T00:00:00Z"))),
        st.just({}),
    ),
    st.tuples(
        st.just("put_group"),
        st.tuples(
            keys,
            st.sampled_from(("fast", "mixed")),
            st.lists(st.sampled_from(GROUP_MEMBERS), unique=True, max_size=4).map(tuple),
            st.sampled_from(GROUP_STRATEGIES),
            st.sampled_from(("", "i", "^p")),
        ),
        st.just({}),
    ),
    st.tuples(
        st.just("put_service"),
        st.tuples(keys, st.sampled_from(("wan1", "l2tp_1"))),
        st.fixed_dictionaries({"is_enabled": st.booleans()}),
    ),
    st.tuples(
        st.just("put"),
        st.one_of(
            st.tuples(
                st.just("whitelist"),
                st.just(0),
                st.builds(
                    Whitelist,
                    ips=st.sampled_from(("", "198.51.100.0/24")),
                    domains=st.sampled_from(("", "example.com", "quic://example.org:8443")),
                    node=st.sampled_from(("DIRECT", "tokyo", "Group_fast")),
                ),
            ),
            st.tuples(
                st.just("settings"),
                st.just(0),
                st.builds(
                    Settings,
                    unmanaged=st.sampled_from(("REJECT", "DIRECT", "paris")),
                    check_interval_s=st.sampled_from((30, 60)),
                    sniff_domains=st.booleans(),
                    stopped=st.booleans(),
                    opened=st.booleans(),
                ),
            ),
        ),
        st.just({}),
    ),
)
