"""netd's own checks of a change: what must not reach a script, a route or a document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from egressd.model.nouns import Line
from egressd.model.plan import Change, Egress, Floor, Instance, Limit, Patch, WhitelistPlan
from egressd.netd.validation import problems

GOOD: dict[str, Any] = {
    "floor": Floor(unmanaged=0x3000_0000, resolvers=("192.0.2.53",)),
    "whitelist": WhitelistPlan(
        mark=0x3000_0000,
        ranges=("192.0.2.0-192.0.2.255",),
        sniffers={0x3000_0000: 0x1400_0000},
        tcp_ports=(80, 443),
    ),
    "hosts": Patch(put={"10.0.0.1": 0x1000_0001}, drop=("10.0.0.2",)),
    "nets": Patch(put={"10.1.0.0-10.1.255.255": 0x2000_0001}),
    "instances": Patch(put={"node:1": Instance(key="node:1", mark=0x1000_0001, config="{}")}),
    "egresses": Patch(put={"wan1.7": Egress(number=1, resolvers=())}),
    "limits": Patch(put={"10.0.0.0/24": Limit(number=1, upload_kbps=1, download_kbps=0)}),
}

INJECTION = "10.0.0.1 }; flush ruleset; add element inet egressd hosts { 10.0.0.1"


def test_a_good_change_has_no_problems() -> None:
    assert list(problems(Change(base=0, revision=1, **GOOD))) == []


def line(name: str) -> Line:
    return Line(id=1, type="l2tp", name=name, server="s", port=1701, username="u", password="p")


def reading(path: str) -> Instance:
    """An instance whose document names a file."""
    rule_set = {"type": "local", "tag": "listed", "path": path}
    return Instance(key="node:1", config=json.dumps({"route": {"rule_set": [rule_set]}}))


def test_a_document_may_read_rule_sets_and_no_other_file() -> None:
    wanted = Patch(put={"node:1": reading(f"/proc/self/cwd/{'0' * 32}.srs")})
    assert list(problems(Change(base=0, revision=1, instances=wanted))) == []


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("hosts", Patch(put={INJECTION: 0x1000_0001})),
        ("hosts", Patch(drop=(INJECTION,))),
        ("hosts", Patch(put={"10.0.0.1/24": 0x1000_0001})),
        ("hosts", Patch(put={"::1": 0x1000_0001})),
        ("hosts", Patch(put={"10.0.0.1": 0})),
        ("hosts", Patch(put={"10.0.0.1": 0x5000_0001})),
        ("hosts", Patch(put={"10.0.0.1": 0x1_0000_0001})),
        ("nets", Patch(put={"10.0.0.9-10.0.0.1": 0x1000_0001})),
        ("nets", Patch(put={"10.0.0.1": 0x1000_0001})),
        ("nets", Patch(put={"10.0.0.1-10.0.0.2\n": 0x1000_0001})),
        ("instances", Patch(put={"node:x": Instance(key="node:x")})),
        ("instances", Patch(put={"node:1": Instance(key="node:1", config="[]")})),
        ("instances", Patch(put={"node:1": Instance(key="node:1", config="{")})),
        (
            "instances",
            Patch(put={"node:1": Instance(key="node:1", config='{"experimental": {}}')}),
        ),
        ("instances", Patch(put={"node:1": Instance(key="node:1", mark=0x2000_0001)})),
        ("egresses", Patch(put={'wan1" accept': Egress(number=1)})),
        ("egresses", Patch(put={"wan*": Egress(number=1)})),
        ("egresses", Patch(put={"-wan": Egress(number=1)})),
        ("egresses", Patch(put={"wan1": Egress(number=0)})),
        ("egresses", Patch(put={"wan1": Egress(number=0x1_0000)})),
        ("egresses", Patch(put={"wan1": Egress(number=1, resolvers=("evil; x",))})),
        ("egresses", Patch(put={"wan1": Egress(number=1, default_resolvers=("evil; x",))})),
        ("limits", Patch(put={"10.0.0.1": Limit(number=1, upload_kbps=-1, download_kbps=0)})),
        ("limits", Patch(put={"x": Limit(number=1, upload_kbps=1, download_kbps=0)})),
        ("lines", Patch(drop=("../x",))),
        ("lines", Patch(put={"l2tp_1": line("../x")})),
        ("lines", Patch(put={"l2tp_1": line("eth0")})),
        ("lines", Patch(put={"l2tp_1": line("l2tp_a/b")})),
        ("floor", Floor(unmanaged=5)),
        ("floor", Floor(resolvers=("resolver.example",))),
        ("floor", Floor(local_resolvers=("resolver.example",))),
        ("whitelist", WhitelistPlan(mark=1)),
        ("whitelist", WhitelistPlan(mark=0x3000_0000, ranges=("192.0.2.1",))),
        ("whitelist", WhitelistPlan(rule_sets={"../../etc/passwd": b""})),
        ("whitelist", WhitelistPlan(rule_sets={f"{'0' * 32}.srs\n": b""})),
        ("whitelist", WhitelistPlan(epoch=0)),
        ("whitelist", WhitelistPlan(epoch=0x1000)),
        ("instances", Patch(put={"node:1": reading("/etc/shadow")})),
        ("instances", Patch(put={"node:1": reading("/proc/self/cwd/../worker-1.sock")})),
        ("instances", Patch(put={"node:1": reading(f"/proc/self/cwd/x/{'0' * 32}.srs")})),
        ("instances", Patch(put={"service:1": Instance(key="service:1", port=65536)})),
        ("whitelist", WhitelistPlan(mark=0x3000_0000, tcp_ports=(0,))),
    ],
)
def test_a_bad_entry_is_a_problem(table: str, value: Any) -> None:
    assert list(problems(Change(base=0, revision=1, **{table: value})))


def test_another_version_is_a_problem() -> None:
    assert list(problems(Change(version=99, base=0, revision=1)))
