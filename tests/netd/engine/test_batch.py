"""Probes merged into one document share nothing but its listener."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.engine import batch

Entry = dict[str, Any]

PROBE: Entry = {
    "log": {"level": "error"},
    "dns": {
        "servers": [
            {"tag": "clients", "type": "udp", "server": "192.0.2.53", "detour": "node:1"},
            {"tag": "device", "type": "udp", "server": "192.0.2.54"},
        ],
        "final": "clients",
        "strategy": "ipv4_only",
    },
    "outbounds": [
        {"tag": "node:1", "type": "socks", "server": "a.test", "server_port": 1, "detour": "relay"},
        {"tag": "relay", "type": "socks", "server": "b.test", "server_port": 2, "routing_mark": 7},
        {"tag": "other", "type": "direct"},
    ],
    "route": {"rules": [{"port": 53}], "final": "node:1", "default_domain_resolver": "device"},
}


def merged(*probes: Entry) -> Entry:
    parts = {number: batch.part(json.dumps(probe)) for number, probe in enumerate(probes)}
    result: Entry = json.loads(batch.document(parts, 1080, "secret", "/log"))
    return result


def test_a_probe_is_reduced_to_the_entries_of_its_final_outbound() -> None:
    assert merged(PROBE) == {
        "log": {"level": "error", "output": "/log"},
        "inbounds": [
            {
                "type": "socks",
                "listen": "127.0.0.1",
                "listen_port": 1080,
                "users": [{"username": "probe-0", "password": "secret"}],
            }
        ],
        "dns": {
            "servers": [{"tag": "0/device", "type": "udp", "server": "192.0.2.54"}],
            "strategy": "ipv4_only",
        },
        "outbounds": [
            {
                "tag": "0/node:1",
                "type": "socks",
                "server": "a.test",
                "server_port": 1,
                "detour": "0/relay",
            },
            {
                "tag": "0/relay",
                "type": "socks",
                "server": "b.test",
                "server_port": 2,
                "routing_mark": 7,
                "domain_resolver": "0/device",
            },
        ],
        "route": {
            "rules": [
                {"auth_user": ["probe-0"], "outbound": "0/node:1"},
                {"action": "reject"},
            ]
        },
    }


def test_networks_are_refused_by_the_ipv4_addresses_of_a_name() -> None:
    direct = {
        "dns": {"servers": [{"tag": "d", "type": "udp", "server": "192.0.2.53"}]},
        "outbounds": [{"tag": "t", "type": "direct"}],
        "route": {"final": "t"},
    }
    part = batch.part(json.dumps(direct))
    made: Entry = json.loads(batch.document({0: part}, 1080, "secret", "/log", ["10.0.0.0/8"]))
    assert made["route"]["rules"] == [
        {
            "auth_user": ["probe-0"],
            "action": "resolve",
            "server": "0/d",
            "strategy": "ipv4_only",
        },
        {"ip_cidr": ["10.0.0.0/8"], "action": "reject"},
        {"auth_user": ["probe-0"], "outbound": "0/t"},
        {"action": "reject"},
    ]


def test_a_single_resolver_becomes_the_default() -> None:
    probe = {
        "dns": {"servers": [{"tag": "d", "type": "udp", "server": "192.0.2.54"}]},
        "outbounds": [{"tag": "n", "type": "direct"}],
        "route": {"final": "n"},
    }
    assert merged(probe)["outbounds"] == [
        {"tag": "0/n", "type": "direct", "domain_resolver": "0/d"}
    ]


def test_groups_and_long_resolvers_keep_their_references() -> None:
    probe = {
        "dns": {"servers": [{"tag": "d", "type": "udp", "server": "192.0.2.54"}]},
        "outbounds": [
            {"tag": "g", "type": "selector", "outbounds": ["n", "m"], "default": "m"},
            {"tag": "n", "type": "direct", "domain_resolver": {"server": "d", "rewrite_ttl": 1}},
            {"tag": "m", "type": "socks", "server": "192.0.2.1"},
        ],
        "route": {"final": "g"},
    }
    assert merged(probe)["outbounds"] == [
        {"tag": "0/g", "type": "selector", "outbounds": ["0/n", "0/m"], "default": "0/m"},
        {"tag": "0/n", "type": "direct", "domain_resolver": {"server": "0/d", "rewrite_ttl": 1}},
        {"tag": "0/m", "type": "socks", "server": "192.0.2.1"},
    ]


tags = st.sampled_from(["a", "b", "c", "1/a", "node:1"])
outbound_entries = st.builds(
    lambda tag, detour, server: (
        {"tag": tag, "type": "socks", "server": server} | ({"detour": detour} if detour else {})
    ),
    tags,
    st.none() | tags,
    st.sampled_from(["192.0.2.1", "2001:db8::1", "a.test"]),
)
servers = st.builds(
    lambda tag, detour: (
        {"tag": tag, "type": "udp", "server": "192.0.2.53"} | ({"detour": detour} if detour else {})
    ),
    tags,
    st.none() | tags,
)
probes = st.builds(
    lambda outbounds, servers: {
        "outbounds": outbounds,
        "dns": {"servers": servers},
        "route": {"final": outbounds[0]["tag"]}
        | ({"default_domain_resolver": servers[0]["tag"]} if servers else {}),
    },
    st.lists(outbound_entries, min_size=1, max_size=4, unique_by=lambda o: str(o["tag"])),
    st.lists(servers, max_size=3, unique_by=lambda s: str(s["tag"])),
)


@given(st.lists(probes, min_size=1, max_size=3))
def test_no_probe_refers_to_entries_of_another_probe(several: list[Entry]) -> None:
    document = merged(*several)
    entries = [*document["outbounds"], *document["dns"]["servers"]]
    for kind in (document["outbounds"], document["dns"]["servers"]):
        assert len({entry["tag"] for entry in kind}) == len(kind)
    for entry in entries:
        own = entry["tag"].split("/")[0]
        for field in ("detour", "domain_resolver"):
            if field in entry:
                assert entry[field].split("/")[0] == own
    assert {rule["outbound"] for rule in document["route"]["rules"][:-1]} == {
        f"{number}/{probe['route']['final']}" for number, probe in enumerate(several)
    }


def test_only_documents_with_equal_other_settings_may_share() -> None:
    def surroundings(**rest: Any) -> bytes:
        return batch.part(json.dumps(PROBE | rest)).surroundings

    assert surroundings() == surroundings(log={}, inbounds=[{"type": "tproxy"}])
    assert surroundings() != surroundings(ntp={"enabled": True})
    assert surroundings() != surroundings(dns={**PROBE["dns"], "strategy": "prefer_ipv6"})


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("", "the configuration is not a sing-box document"),
        ('{"outbounds": {}}', "the configuration is not a sing-box document"),
        ('{"route": {"final": 1}}', "the configuration is not a sing-box document"),
        ("{}", "route.final must name an outbound, not ''"),
        ('{"route": {"final": "x"}}', "route.final must name an outbound, not 'x'"),
    ],
)
def test_an_unmeasurable_document_is_refused_with_a_sentence(config: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        batch.part(config)


def test_errors_are_attributed_to_probes_and_the_first_counts() -> None:
    log = (
        "ERROR [1 1ms] connection: open connection to a.test:80 using outbound/socks[3/n]: first\n"
        "ERROR [1 1ms] connection: open connection to a.test:80 using outbound/socks[3/n]: then\n"
        "ERROR [2 5.0s] connection: open connection to [2001:db8::1]:443 using "
        "outbound/shadowsocks[12/node:1]: dial tcp: i/o timeout\n"
        "WARN something else\n"
    )
    assert batch.errors(log) == {3: "first", 12: "dial tcp: i/o timeout"}


TUNNEL = {
    "type": "wireguard",
    "tag": "node:7",
    "private_key": "4JjCzOn2BSqbJyQ3kGxkEJQ1oPYL5b9EZ1bJm3l5fWk=",
    "detour": "way:7",
}
WAY = {"type": "direct", "tag": "way:7", "routing_mark": 1}


def tunnelled() -> str:
    return msgspec.json.encode(
        {"endpoints": [TUNNEL], "outbounds": [WAY], "route": {"final": "node:7"}}
    ).decode()


def test_a_tunnel_is_an_endpoint_of_the_shared_document() -> None:
    made = msgspec.json.decode(batch.document({3: batch.part(tunnelled())}, 1, "p", "log"))
    assert made["endpoints"] == [{**TUNNEL, "tag": "3/node:7", "detour": "3/way:7"}]
    assert [each["tag"] for each in made["outbounds"]] == ["3/way:7"]
    # What its other end sends is of no probe.
    assert made["route"]["rules"] == [
        {"auth_user": ["probe-3"], "outbound": "3/node:7"},
        {"action": "reject"},
    ]


def test_a_tunnel_that_serves_clients_is_entered_by_its_instance() -> None:
    running = {"node:7": 20_007}
    inner = batch.part(batch.within(tunnelled(), lambda tag: running.get(tag, 0)))
    (way,) = inner.outbounds
    assert inner.endpoints == ()
    assert (way["type"], way["server"], way["server_port"]) == ("socks", "127.0.0.2", 20_007)
    assert way["password"] not in ("", TUNNEL["private_key"])
    assert batch.within(tunnelled(), lambda _: 0) == tunnelled()
