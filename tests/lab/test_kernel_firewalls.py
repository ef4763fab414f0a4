"""Reports on other programs' firewalls."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

import pytest

from egressd.netd.kernel.firewalls import legacy_problems, problems
from egressd.netd.kernel.nft import Nft
from egressd.planner.topology import Topology
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

TOPOLOGY = Topology(
    lans=("lan0", "guests"),
    lan_networks=(
        ("lan0", IPv4Network("10.77.0.0/24")),
        ("guests", IPv4Network("10.78.0.0/24")),
    ),
)
DROPPING = (
    "add table ip filter",
    "add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
)
LET_THROUGH = 'add rule ip filter FORWARD iifname "lan0" accept'


def told(namespace: Namespace, commands: Sequence[str]) -> tuple[str, ...]:
    """Return the reports after these commands of nft(8)."""

    def body() -> tuple[str, ...]:
        nft = Nft()
        nft.run("\n".join(commands))
        return problems(nft, TOPOLOGY)

    return namespace.run(body)


def test_a_chain_that_drops_unknown_packets_is_reported(namespace: Namespace) -> None:
    (sentence,) = told(namespace, DROPPING)
    assert "none of them names lan0, guests" in sentence
    assert "table ip filter, FORWARD" in sentence


def test_every_table_and_chain_is_named(namespace: Namespace) -> None:
    more = (
        "add chain ip filter INPUT { type filter hook input priority 0; policy drop; }",
        "add table inet firewalld",
        "add chain inet firewalld pre { type filter hook prerouting priority 10; policy drop; }",
    )
    sentences = told(namespace, (*DROPPING, *more))
    assert len(sentences) == 2
    assert "table ip filter, FORWARD, INPUT" in sentences[0]
    assert "table inet firewalld, pre" in sentences[1]


def test_a_lan_named_in_a_rule_is_not_reported(namespace: Namespace) -> None:
    (sentence,) = told(namespace, (*DROPPING, LET_THROUGH))
    assert "names guests:" in sentence
    by_network = "add rule ip filter FORWARD ip saddr 10.78.0.0/24 accept"
    assert told(namespace, (by_network,)) == ()


def test_a_longer_interface_name_or_part_of_a_network_does_not_count(namespace: Namespace) -> None:
    rules = (
        'add rule ip filter FORWARD iifname "lan01" accept',
        "add rule ip filter FORWARD ip saddr 10.78.0.0/25 accept",
    )
    (sentence,) = told(namespace, (*DROPPING, *rules))
    assert "names lan0, guests:" in sentence


@pytest.mark.parametrize(
    "commands",
    [
        ("add table ip filter",),
        (
            "add table inet own",
            "add chain inet own f { type filter hook forward priority 0; policy accept; }",
            "add chain inet own dropping",
            "add rule inet own dropping drop",
        ),
        (
            "add table ip6 filter",
            "add chain ip6 filter f { type filter hook forward priority 0; policy drop; }",
        ),
        (
            "add table inet egressd",
            "add chain inet egressd f { type filter hook forward priority 0; policy drop; }",
        ),
    ],
    ids=["no chain", "accepting", "IPv6", "our own"],
)
def test_harmless_chains_are_not_reported(namespace: Namespace, commands: Sequence[str]) -> None:
    assert told(namespace, commands) == ()


def test_a_chain_with_a_final_drop_is_reported(namespace: Namespace) -> None:
    """firewalld's chains end with a drop, although their policy is to accept."""
    commands = (
        "add table inet firewalld",
        "add chain inet firewalld filter_FORWARD"
        " { type filter hook forward priority 10; policy accept; }",
        "add rule inet firewalld filter_FORWARD ct state established accept",
        "add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited",
    )
    (sentence,) = told(namespace, commands)
    assert "table inet firewalld, filter_FORWARD" in sentence


MARKS = "add table inet marks"
PRE = "add chain inet marks pre { type filter hook prerouting priority %d; }"


@pytest.mark.parametrize(
    ("priority", "rule"),
    [
        (-150, "ct mark set 0x100"),
        (-150, "iifname lan0 ct mark set meta mark"),
        (-100, "iifname lan0 meta mark set 0x7"),
    ],
)
def test_conflicting_marks_are_reported(namespace: Namespace, priority: int, rule: str) -> None:
    commands = (MARKS, PRE % priority, f"add rule inet marks pre {rule}")
    (sentence,) = told(namespace, commands)
    assert "marks connections" in sentence
    assert "table inet marks, pre" in sentence


@pytest.mark.parametrize(
    ("priority", "rule"),
    [
        (-150, "meta mark set 0x7"),  # egressd's chains come behind it
        (-150, "meta l4proto udp meta mark set ct mark"),  # wg-quick's
        (0, "meta l4proto udp meta mark 51820 ct mark set meta mark"),
    ],
)
def test_harmless_marks_are_not_reported(namespace: Namespace, priority: int, rule: str) -> None:
    assert told(namespace, (MARKS, PRE % priority, f"add rule inet marks pre {rule}")) == ()


def test_tables_of_legacy_iptables_are_read(namespace: Namespace) -> None:
    assert namespace.run(legacy_problems, TOPOLOGY) == ()
    namespace.shell("iptables-legacy -P FORWARD DROP; iptables-legacy -P INPUT DROP")
    (sentence,) = namespace.run(legacy_problems, TOPOLOGY)
    assert "none of them names lan0, guests" in sentence
    assert "(iptables-legacy, table filter, INPUT, FORWARD)" in sentence
    namespace.shell("iptables-legacy -A FORWARD -i lan0 -j ACCEPT")
    (sentence,) = namespace.run(legacy_problems, TOPOLOGY)
    assert "none of them names guests:" in sentence
    namespace.shell("iptables-legacy -A FORWARD -s 10.78.0.0/24 -m conntrack --ctstate NEW -j LOG")
    assert namespace.run(legacy_problems, TOPOLOGY) == ()


def test_reading_legacy_iptables_creates_no_table(namespace: Namespace) -> None:
    assert namespace.run(legacy_problems, TOPOLOGY) == ()
    assert namespace.shell("cat /proc/self/net/ip_tables_names").strip() == ""
