"""netd's own checks of a change: values that must not reach a script, a route, a file or a
document.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from egressd.model.errors import Invalid
from egressd.model.instances import (
    Asker,
    Dialer,
    GroupPolicy,
    Instance,
    Listed,
    ListedSet,
    ProxyListener,
    Sniffer,
)
from egressd.model.nouns import Line
from egressd.model.plan import (
    TABLES,
    Change,
    Egress,
    GlobalPolicy,
    Group,
    Limit,
    Patch,
    Plan,
    WhitelistPlan,
)
from egressd.netd.reconciler.validation import check, problems
from egressd.planner.registry import (
    MARK_ANSWER,
    MARK_ASKED_DIRECTLY,
    MARK_ASKED_LOCALLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_LISTED,
    MARK_LOCAL,
    MARK_PAST,
    MARK_REJECT,
    MARK_UNMANAGED,
    asker_mark,
    egress_mark,
    inbound_number,
    line_mark,
    sniffer_mark,
)
from egressd.planner.rule_set import RULE_SETS_MAX, encode, name_of, sound_size
from tests.support.nodes.instances import node_instance, node_path, service_instance

SERVER = "192.0.2.53"
CONTENT = encode(["a.test"])
NAME = name_of(CONTENT)
OTHER = encode(["A=/etc/shadow"])
LISTED = Listed(sets=(ListedSet(rule_set=NAME),), is_direct=False)
SNIFFER = Sniffer(mark=MARK_DIRECT, resolver=SERVER, listed=LISTED)
NODE, SERVICE = node_instance(1), service_instance(1080)
PROXY = ProxyListener(mark=MARK_DIRECT, resolver=SERVER, dns_mark=MARK_DIRECT, port=1080)
POLICY = GroupPolicy(url="http://site.test/", interval_s=30)
GROUP = Group(
    mark=0x1800_0001, members=("node:1",), strategy="fallback", url="http://a.test/", interval_s=5
)


def line(name: str, **fields: Any) -> Line:
    given = {"type": "l2tp", "server": "s", "port": 1701, "username": "u", "password": "p"}
    return Line(id=1, name=name, **{**given, **fields})


def dialer(*marks: int, policy: GroupPolicy | None = None) -> Dialer:
    paths = tuple(replace(node_path(), mark=mark) for mark in marks)
    return Dialer(paths=paths, resolvers=(SERVER,), policy=policy)


def instance(key: str, work: Any, mark: int = 0) -> Patch[Instance]:
    return Patch(put={key: Instance(key=key, work=work, mark=mark)})


GOOD: dict[str, Any] = {
    "policy": GlobalPolicy(unmanaged=0x3000_0000, resolvers=(SERVER,)),
    "whitelist": WhitelistPlan(
        mark=0x3000_0000,
        ranges=("192.0.2.0-192.0.2.255",),
        sniffers={0x3000_0000: 0x1400_0000},
        tcp_ports=(80, 443),
        rule_sets={NAME: CONTENT},
    ),
    "hosts": Patch(put={"10.0.0.1": 0x1000_0001}, drop=("10.0.0.2",)),
    "nets": Patch(put={"10.1.0.0-10.1.255.255": 0x2000_0001}),
    "instances": Patch(
        put={
            each.key: each
            for each in (
                NODE,
                SERVICE,
                Instance(key="sniff:0", work=SNIFFER, mark=sniffer_mark(0)),
                Instance(
                    key="sniff:7", work=replace(SNIFFER, mark=MARK_REJECT), mark=sniffer_mark(7)
                ),
                Instance(
                    key="dns:2", work=Asker(mark=MARK_ASKED_DIRECTLY, zones=()), mark=asker_mark(2)
                ),
                Instance(
                    key="default:0",
                    work=dialer(egress_mark(1), line_mark(2), policy=POLICY),
                    mark=MARK_UNMANAGED,
                ),
            )
        }
    ),
    "groups": Patch(put={"group:1": GROUP}),
    "egresses": Patch(put={"wan1.7": Egress(number=1, resolvers=())}),
    "limits": Patch(put={"10.0.0.0/24": Limit(number=1, upload_kbps=1, download_kbps=0)}),
    "lines": Patch(put={"l2tp_1": line("l2tp_1"), "pptp_1": line("pptp_1", type="pptp")}),
}

INJECTION = "10.0.0.1 }; flush ruleset; add element inet egressd hosts { 10.0.0.1"


def found(change: Change) -> list[str]:
    """Return the problems of a change that comes over the socket."""
    try:
        asked = msgspec.msgpack.decode(msgspec.msgpack.encode(change), type=Change)
    except msgspec.ValidationError as error:
        return [str(error)]
    assert asked == change
    return list(problems(asked))


def test_a_valid_change_has_no_problems() -> None:
    assert found(Change(base=0, revision=1, **GOOD)) == []


@pytest.mark.parametrize(
    ("table", "value", "field"),
    [
        ("hosts", Patch(put={INJECTION: 0x1000_0001}), "hosts"),
        ("hosts", Patch(drop=(INJECTION,)), "hosts"),
        ("hosts", Patch(put={"10.0.0.1/24": 0x1000_0001}), "hosts"),
        ("hosts", Patch(put={"::1": 0x1000_0001}), "hosts"),
        ("hosts", Patch(put={"10.0.0.1": 0}), "hosts.10.0.0.1"),
        ("hosts", Patch(put={"10.0.0.1": 0x5000_0001}), "hosts.10.0.0.1"),
        ("hosts", Patch(put={"10.0.0.1": 0x1_0000_0001}), "hosts"),
        ("nets", Patch(put={"10.0.0.9-10.0.0.1": 0x1000_0001}), "nets"),
        ("nets", Patch(put={"10.0.0.1": 0x1000_0001}), "nets"),
        ("nets", Patch(put={"10.0.0.1-10.0.0.2\n": 0x1000_0001}), "nets"),
        ("instances", Patch(put={"node:x": NODE}), "instances"),
        ("instances", Patch(put={"node:01": NODE}), "instances"),
        ("instances", Patch(put={"shell:1": NODE}), "instances"),
        ("instances", Patch(put={"node:2": NODE}), "instances.node:2: key"),
        ("instances", Patch(put={"node:1": replace(NODE, mark=0x2000_0001)}), "mark"),
        ("instances", Patch(put={"node:1": replace(NODE, mark=0x1000_0002)}), "mark"),
        ("instances", Patch(put={"node:1": replace(NODE, mark=0)}), "mark"),
        ("instances", Patch(put={"node:1": replace(NODE, work=PROXY)}), "work"),
        ("instances", instance("service:1", dialer(MARK_DIRECT)), "work"),
        ("instances", instance("node:99999999", dialer(MARK_DIRECT), 0x1000_0001), "mark"),
        ("instances", instance("node:1", dialer(0), 0x1000_0001), "work.paths[0].mark"),
        ("instances", instance("node:1", dialer(MARK_ENGINE | 1), 0x1000_0001), "paths[0].mark"),
        ("instances", instance("node:1", dialer(MARK_REJECT), 0x1000_0001), "paths[0].mark"),
        (
            "instances",
            instance("node:1", dialer(egress_mark(inbound_number(0))), 0x1000_0001),
            "paths[0].mark",
        ),
        (
            "instances",
            instance("default:0", dialer(MARK_DIRECT, MARK_DIRECT), MARK_UNMANAGED),
            "policy",
        ),
        ("instances", instance("default:1", dialer(MARK_DIRECT), MARK_UNMANAGED), "mark"),
        ("instances", instance("sniff:1", replace(SNIFFER, mark=1), sniffer_mark(1)), "work.mark"),
        ("instances", instance("dns:1", Asker(mark=MARK_LISTED, zones=()), asker_mark(1)), "work"),
        ("instances", instance("service:1", replace(PROXY, port=22)), "work.port"),
        ("instances", instance("service:1", replace(PROXY, port=20_000)), "work.port"),
        ("instances", instance("service:1", replace(PROXY, port=65_536)), "work.port"),
        ("instances", instance("service:1", replace(PROXY, mark=MARK_REJECT)), "work.mark"),
        ("instances", instance("service:1", replace(PROXY, dns_mark=5)), "work.dns_mark"),
        ("groups", Patch(put={"group:x": GROUP}), "groups"),
        ("groups", Patch(put={"group:2": GROUP}), "groups.group:2: mark"),
        ("groups", Patch(put={"group:1": replace(GROUP, members=())}), "members"),
        ("groups", Patch(put={"group:1": replace(GROUP, members=("x",))}), "members"),
        ("groups", Patch(put={"group:1": replace(GROUP, strategy="x")}), "strategy"),
        ("groups", Patch(put={"group:1": replace(GROUP, url="file:///etc/shadow")}), "url"),
        ("groups", Patch(put={"group:1": replace(GROUP, interval_s=0)}), "interval_s"),
        ("egresses", Patch(put={'wan1" accept': Egress(number=1)}), "egresses"),
        ("egresses", Patch(put={"wan*": Egress(number=1)}), "egresses"),
        ("egresses", Patch(put={"-wan": Egress(number=1)}), "egresses"),
        ("egresses", Patch(put={"../../x": Egress(number=1)}), "egresses"),
        ("egresses", Patch(put={"lo": Egress(number=1)}), "egresses"),
        ("egresses", Patch(put={"wan1": Egress(number=0)}), "number"),
        ("egresses", Patch(put={"wan1": Egress(number=inbound_number(0))}), "wan1: number"),
        ("egresses", Patch(put={"wan1": Egress(number=0x1_0000)}), "number"),
        ("egresses", Patch(put={"wan1": Egress(number=1, resolvers=("evil; x",))}), "resolvers"),
        (
            "egresses",
            Patch(put={"wan1": Egress(number=1, default_resolvers=("evil; x",))}),
            "default_resolvers",
        ),
        (
            "limits",
            Patch(put={"10.0.0.1": Limit(number=1, upload_kbps=-1, download_kbps=0)}),
            "upload_kbps",
        ),
        ("limits", Patch(put={"x": Limit(number=1, upload_kbps=1, download_kbps=0)}), "limits"),
        ("lines", Patch(drop=("../x",)), "lines"),
        ("lines", Patch(put={"l2tp_1": line("../x")}), "lines.l2tp_1: name"),
        ("lines", Patch(put={"eth0": line("eth0")}), "lines.eth0: name"),
        ("lines", Patch(put={"l2tp_a/b": line("l2tp_a/b")}), "lines"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_2")}), "lines.l2tp_1: name"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", type="sh")}), "type"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", server="-x")}), "server"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", server="$(id)")}), "server"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", port=0)}), "port"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", username="u\nplugin x")}), "username"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", username="")}), "username"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", password="p\0")}), "password"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", password="@/etc/shadow")}), "password"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", secret="é" * 128)}), "secret"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", interface="a b")}), "interface"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", comment="\n")}), "comment"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", dns_profile="x")}), "dns_profile"),
        ("lines", Patch(put={"l2tp_1": line("l2tp_1", dns_servers=("x",))}), "dns_servers"),
        ("policy", GlobalPolicy(unmanaged=5), "policy.unmanaged"),
        ("policy", GlobalPolicy(resolvers=("resolver.example",)), "policy.resolvers"),
        ("policy", GlobalPolicy(local_resolvers=("resolver.example",)), "policy.local_resolvers"),
        ("whitelist", WhitelistPlan(mark=1), "whitelist.mark"),
        ("whitelist", WhitelistPlan(mark=0x3000_0000, ranges=("192.0.2.1",)), "ranges"),
        ("whitelist", WhitelistPlan(mark=0x3000_0000, sniffers={0x3000_0000: 7}), "sniffers"),
        ("whitelist", WhitelistPlan(rule_sets={"../../etc/passwd": CONTENT}), "rule_sets"),
        ("whitelist", WhitelistPlan(rule_sets={f"{NAME}\n": CONTENT}), "rule_sets"),
        ("whitelist", WhitelistPlan(rule_sets={NAME: encode(["b.test"])}), "rule_sets"),
        ("whitelist", WhitelistPlan(rule_sets={name_of(OTHER): OTHER}), "rule_sets"),
        ("whitelist", WhitelistPlan(epoch=-1), "whitelist.epoch"),
        ("whitelist", WhitelistPlan(epoch=0x1000), "whitelist.epoch"),
        ("whitelist", WhitelistPlan(mark=0x3000_0000, tcp_ports=(0,)), "tcp_ports"),
        ("delay_url", "http://a.test/\nHost: b", "delay_url"),
    ],
)
def test_an_invalid_entry_is_a_problem_that_names_its_field(
    table: str, value: Any, field: str
) -> None:
    told = found(Change(base=0, revision=1, **{table: value}))
    assert any(field in problem for problem in told), told


@pytest.mark.parametrize(
    "mark",
    [
        MARK_DIRECT | 2,
        MARK_ASKED_DIRECTLY,
        MARK_ASKED_LOCALLY,
        MARK_PAST,
        MARK_REJECT | 1,
        MARK_LOCAL,
        MARK_ANSWER,
        egress_mark(0),
        egress_mark(inbound_number(0)),
        egress_mark(1) | 0x1_0000,
    ],
    ids=hex,
)
def test_a_host_with_the_mark_of_no_target_is_a_problem(mark: int) -> None:
    for change in (
        Change(base=0, revision=1, hosts=Patch(put={"10.0.0.1": mark})),
        Change(base=0, revision=1, nets=Patch(put={"10.0.0.0-10.0.0.9": mark})),
        Change(base=0, revision=1, policy=GlobalPolicy(unmanaged=mark)),
        Change(base=0, revision=1, whitelist=WhitelistPlan(mark=mark)),
    ):
        assert len(found(change)) == 1, change


def test_the_total_size_of_rule_sets_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [encode([f"{letter * 60}.test"]) for letter in "abc"]
    listed = WhitelistPlan(rule_sets={name_of(content): content for content in contents})
    change = Change(base=0, revision=1, whitelist=listed)
    sizes = [sound_size(content, RULE_SETS_MAX) for content in contents]
    monkeypatch.setattr("egressd.netd.reconciler.validation.RULE_SETS_MAX", sum(sizes))
    assert found(change) == []
    monkeypatch.setattr("egressd.netd.reconciler.validation.RULE_SETS_MAX", sum(sizes) - 1)
    (told,) = found(change)
    assert name_of(contents[-1]) in told


def test_no_rule_set_is_read_after_an_invalid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def size(content: bytes, most: int) -> int:
        read.append(content)
        return sound_size(content, most)

    monkeypatch.setattr("egressd.netd.reconciler.validation.sound_size", size)
    listed = WhitelistPlan(rule_sets={f"{n:032x}.srs": bytes([n]) for n in range(50)})
    assert len(found(Change(base=0, revision=1, whitelist=listed))) == 1
    assert read == [b"\0"]


MEMBERS = {f"node:{n}": node_instance(n) for n in (1, 2)}


@pytest.mark.parametrize(
    ("put", "drop", "is_fine"),
    [
        (("node:1",), (), True),
        (("node:1", "node:2"), ("node:3",), True),
        (("node:2",), (), False),
        ((), (), False),
        (("node:1",), ("node:1",), True),
    ],
)
def test_members_of_a_group_must_exist(
    put: tuple[str, ...], drop: tuple[str, ...], is_fine: bool
) -> None:
    instances = Patch(put={key: MEMBERS[key] for key in put}, drop=drop)
    change = Change(base=0, revision=1, instances=instances, groups=Patch(put={"group:1": GROUP}))
    if is_fine:
        check(change, Plan())
    else:
        with pytest.raises(Invalid, match=r"groups\.group:1: members .* node:1 is none"):
            check(change, Plan())


def test_a_member_of_a_group_cannot_be_dropped() -> None:
    plan = Plan(instances=dict(MEMBERS), groups={"group:1": GROUP})
    check(Change(base=0, revision=1, instances=Patch(drop=("node:2",))), plan)
    dropped: Patch[Instance] = Patch(drop=("node:1",))
    with pytest.raises(Invalid, match="node:1 is none"):
        check(Change(base=0, revision=1, instances=dropped), plan)
    check(Change(base=0, revision=1, instances=dropped, groups=Patch(drop=("group:1",))), plan)


@pytest.mark.parametrize(
    ("now", "put", "drop", "is_fine"),
    [
        (3, 1, 0, True),
        (3, 2, 0, False),
        (4, 2, 2, True),
        (4, 0, 0, True),
        (5, 0, 1, True),
        (5, 0, 0, True),
    ],
)
def test_the_size_of_every_table_is_limited(
    monkeypatch: pytest.MonkeyPatch, now: int, put: int, drop: int, is_fine: bool
) -> None:
    monkeypatch.setitem(TABLES, "hosts", 4)
    plan = Plan(hosts={f"10.0.0.{n}": MARK_DIRECT for n in range(now)})
    hosts = Patch(
        put={f"10.0.1.{n}": MARK_DIRECT for n in range(put)},
        drop=tuple(f"10.0.0.{n}" for n in range(drop)),
    )
    change = Change(base=0, revision=1, hosts=hosts)
    if is_fine:
        check(change, plan)
    else:
        with pytest.raises(Invalid, match="hosts must not have more than 4 entries"):
            check(change, plan)


def test_another_version_of_a_change_is_a_problem() -> None:
    assert found(Change(version=99, base=0, revision=1))
