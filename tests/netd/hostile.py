"""Messages of a hostile api: everything that the model has, and ways to put something else
into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import singbox

from egressd.model import messages, outbounds
from egressd.model.device import LocalZone
from egressd.model.instances import (
    Asker,
    Dialer,
    GroupPolicy,
    Hop,
    Instance,
    KernelPath,
    Listed,
    ListedSet,
    NodePath,
    Sniffer,
    Work,
)
from egressd.model.nouns import Line
from egressd.model.plan import (
    Change,
    Egress,
    GlobalPolicy,
    Group,
    Limit,
    Patch,
    Plan,
    WhitelistPlan,
)
from egressd.planner.registry import (
    MARK_DIRECT,
    MARK_UNMANAGED,
    asker_mark,
    egress_mark,
    sniffer_mark,
)
from egressd.planner.rule_set import encode, name_of
from tests.support.nodes.instances import service_instance

Json = dict[str, Any]

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
RESOLVER = "192.0.2.53"
SERVER: Json = {"server": "a.test", "server_port": 443, "udp": False, "strategy": "ipv6_only"}
HEADERS = (("Host", "b.test"),)
TLS = outbounds.Tls(
    server_name="b.test",
    disable_sni=True,
    insecure=True,
    alpn=("h2",),
    fingerprint="firefox",
    reality=outbounds.Reality(public_key="A" * 43, short_id="0123"),
    ech=outbounds.Ech(config="AAAA", query_server_name="c.test"),
)
TRANSPORTS: tuple[outbounds.Transport, ...] = (
    outbounds.WebSocket(path="/p", headers=HEADERS, max_early_data=1, early_data_header_name="X"),
    outbounds.HttpUpgrade(path="/p", headers=HEADERS, host="b.test"),
    outbounds.Grpc(service_name="s"),
    outbounds.HttpStream(path="/p", host=("b.test",), method="PUT", headers=(("X", ("y",)),)),
)
V2RAY: Json = {"uuid": UUID, "packet_encoding": "packetaddr", "tls": TLS, **SERVER}
OUTBOUNDS: tuple[outbounds.Outbound, ...] = (
    outbounds.Socks5(username="u", password="p", **SERVER),
    outbounds.HttpProxy(username="u", password="p", tls=TLS, headers=HEADERS, **SERVER),
    outbounds.Shadowsocks(
        method="none",
        password="p",
        plugin=outbounds.Obfs(mode="tls", host="b.test"),
        udp_over_tcp=2,
        **SERVER,
    ),
    outbounds.Shadowsocks(
        method="none",
        password="p",
        plugin=outbounds.V2rayPlugin(host="b.test", path="/p", mux=False, tls=True),
        **SERVER,
    ),
    *(
        outbounds.VMess(
            alter_id=1,
            security="zero",
            global_padding=True,
            authenticated_length=True,
            transport=transport,
            **V2RAY,
        )
        for transport in TRANSPORTS
    ),
    outbounds.VLess(flow="xtls-rprx-vision", transport=TRANSPORTS[0], **V2RAY),
    outbounds.Trojan(password="p", tls=TLS, transport=TRANSPORTS[0], **SERVER),
    outbounds.Hysteria2(
        server_ports=((1, 2),),
        hop_interval_s=5,
        password="p",
        salamander="o",
        up_mbps=1,
        down_mbps=1,
        tls=TLS,
        **SERVER,
    ),
    outbounds.Tuic(
        uuid=UUID,
        password="p",
        congestion_control="bbr",
        udp_relay_mode="quic",
        udp_over_stream=True,
        zero_rtt_handshake=True,
        heartbeat_ms=1,
        tls=TLS,
        **SERVER,
    ),
    outbounds.AnyTls(
        password="p",
        idle_session_check_interval_s=1,
        idle_session_timeout_s=1,
        min_idle_session=1,
        tls=TLS,
        **SERVER,
    ),
)
"""Each protocol with every field in use."""


def path(*hops: outbounds.Outbound) -> NodePath:
    """Return a path through these, the first of which is the node."""
    numbered = tuple(Hop(node=n, outbound=made) for n, made in enumerate(hops, 1))
    return NodePath(hops=numbered, mark=egress_mark(1), resolver=RESOLVER)


ZONES = (LocalZone(domain="lan", servers=("10.0.0.1", "10.0.0.2")),)
CONTENT = encode(["a.test"])
RULE_SET = name_of(CONTENT)
LISTED = Listed(
    sets=(ListedSet(rule_set=RULE_SET), ListedSet(rule_set=RULE_SET, scheme="quic", port=99)),
    is_direct=False,
)
POLICY = GroupPolicy(url="http://site.test/", interval_s=30)
RELAY = OUTBOUNDS[0]


def dialer(made: outbounds.Outbound) -> Dialer:
    """Return the work that serves clients by it, through a relay."""
    return Dialer(paths=(path(made, RELAY),), resolvers=(RESOLVER,), listed=LISTED, zones=ZONES)


WORKS: dict[str, tuple[Work, int]] = {
    **{f"node:{n}": (dialer(made), 0x1000_0000 + n) for n, made in enumerate(OUTBOUNDS, 1)},
    "default:0": (
        Dialer(
            paths=(path(RELAY), path(OUTBOUNDS[1])),
            resolvers=(RESOLVER, RESOLVER),
            is_asked_directly=True,
            policy=POLICY,
        ),
        MARK_UNMANAGED,
    ),
    "sniff:0": (
        Sniffer(mark=MARK_DIRECT, resolver=RESOLVER, listed=LISTED, zones=ZONES),
        sniffer_mark(0),
    ),
    "dns:0": (Asker(mark=MARK_DIRECT, zones=ZONES), asker_mark(0)),
}
INSTANCES = {
    **{
        key: Instance(key=key, work=work, mark=mark, standby=True)
        for key, (work, mark) in WORKS.items()
    },
    "service:1": service_instance(1080, username="u", password="p"),
}
GROUP = Group(
    mark=0x1800_0001, members=("node:1",), strategy="fallback", url="http://a.test/", interval_s=5
)
LINE = Line(
    id=1,
    type="l2tp",
    name="l2tp_1",
    server="vpn.test",
    port=1701,
    username="u",
    password="p",
    secret="s",
    dns_servers=(RESOLVER,),
)
TABLES: dict[str, Any] = {
    "hosts": {"10.0.0.1": MARK_DIRECT},
    "nets": {"10.0.1.0-10.0.1.9": MARK_DIRECT},
    "groups": {"group:1": GROUP},
    "egresses": {
        "wan1": Egress(
            number=1, resolvers=(RESOLVER,), default_resolvers=(RESOLVER,), is_asked_directly=True
        )
    },
    "limits": {"10.0.0.1": Limit(number=1, upload_kbps=8, download_kbps=8)},
    "lines": {"l2tp_1": LINE},
    "bindings": {"10.0.0.1": "02:00:5e:00:53:01"},
    "neighbours": {"node:1": "10.0.0.9"},
}
SINGLES: Json = {
    "policy": GlobalPolicy(
        unmanaged=MARK_DIRECT, resolvers=(RESOLVER,), local_resolvers=(RESOLVER,), opened=True
    ),
    "whitelist": WhitelistPlan(
        mark=MARK_DIRECT,
        ranges=("192.0.2.0-192.0.2.9",),
        sniffers={0x2000_0001: sniffer_mark(1)},
        tcp_ports=(443,),
        udp_ports=(443,),
        rule_sets={RULE_SET: CONTENT},
        epoch=2,
    ),
    "delay_url": "http://site.test/",
}


def changing(**tables: Mapping[str, Any]) -> messages.ApplyChange:
    """Return a change that puts these entries."""
    patches: dict[str, Any] = {name: Patch(put=dict(put)) for name, put in tables.items()}
    return messages.ApplyChange(Change(base=0, revision=1, **patches))


def good() -> dict[str, messages.RequestBody]:
    """Return a message of each kind, small ones if possible."""
    made: dict[str, messages.RequestBody] = {
        f"change {key}": changing(instances={key: each}) for key, each in INSTANCES.items()
    }
    made |= {f"change {name}": changing(**{name: put}) for name, put in TABLES.items()}
    made["change groups"] = changing(
        groups=TABLES["groups"], instances={"node:1": INSTANCES["node:1"]}
    )
    made |= {
        f"change {name}": messages.ApplyChange(Change(base=0, revision=1, **{name: value}))
        for name, value in SINGLES.items()
    }
    made["plan"] = messages.SetPlan(
        Plan(revision=1, instances={"node:1": INSTANCES["node:1"]}, **SINGLES, **TABLES)
    )
    made["try"] = messages.Try((path(OUTBOUNDS[4], RELAY),))
    probes = (
        messages.Probe(name="a", path=path(RELAY), read_max=9),
        messages.Probe(name="b", path=KernelPath(mark=MARK_DIRECT, resolver=RESOLVER)),
    )
    made["measure"] = messages.MeasureDelay(probes=probes, url="http://site.test/", timeout_ms=1000)
    made["alert"] = messages.SendAlert(
        paths=tuple(probe.path for probe in probes),
        url="json://user:alert-secret@site.test/x",
        title="gw1: one",
        body="one\ntwo",
    )
    made["locate"] = messages.Locate("10.0.0.1")
    made["connections"] = messages.ListConnections("10.0.0.1")
    made["close"] = messages.CloseConnections("10.0.0.1", 7)
    made["halt"] = messages.Halt("why")
    made["renew_lease"] = messages.RenewLease(1000)
    made["status"] = messages.GetStatus()
    made["counters"] = messages.GetCounters()
    made["check"] = messages.CheckSystem()
    made["watch"] = messages.Watch()
    made["watch_devices"] = messages.WatchDevices()
    return made


def raw(message: messages.RequestBody) -> Json:
    """Return the message as its dictionaries and lists."""
    built: Json = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return built


@cache
def engine_keys() -> tuple[str, ...]:
    """Return every name that the engine's library has a JSON field for: its documented options, and
    more that other parts of it have.
    """
    (library,) = Path(singbox.__file__).parent.glob("_native*.so")
    found = set(re.findall(rb'json:"([a-z0-9_]+)[",]', library.read_bytes()))
    return tuple(sorted(key.decode() for key in found))


def objects(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every dictionary in a message."""
    if isinstance(value, dict):
        yield at
        for key, item in value.items():
            yield from objects(item, (*at, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from objects(item, (*at, place))


def at(message: Json, place: tuple[str | int, ...]) -> Any:
    """Return the value at a place of a message."""
    value: Any = message
    for step in place:
        value = value[step]
    return value


def is_table(place: tuple[str | int, ...]) -> bool:
    """Return whether the keys there are those of entries, and not the names of fields."""
    in_plan = len(place) == 2 and place[0] == "plan" and place[1] in TABLES.keys() | {"instances"}
    return in_plan or (bool(place) and place[-1] in ("put", "rule_sets", "sniffers"))


@contextmanager
def having(message: Json, place: tuple[str | int, ...], key: str, value: Any) -> Iterator[None]:
    """Keep `key` in the dictionary at that place of the message for the duration of the context."""
    changed = at(message, place)
    before = dict(changed)
    changed[key] = value
    try:
        yield
    finally:
        changed.clear()
        changed.update(before)
