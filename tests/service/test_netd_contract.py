"""The contract that the use cases rely on in netd. The double meets it, and so does the real
socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.messages import Probe, RuleCount
from egressd.model.plan import Change, Patch, Plan
from egressd.model.wording import as_sentence
from egressd.planner.registry import MARK_DIRECT, MARK_REJECT
from egressd.service.ports import Netd
from tests.support.findings import NO_DHCP, NO_PPTP
from tests.support.nodes.instances import node_path

if TYPE_CHECKING:
    from tests.support.netd_double import NetdDouble

    Both = tuple[Netd, NetdDouble]


PLAN = Plan(revision=4, hosts={"10.0.0.5": MARK_DIRECT})
CHANGE = Change(base=4, revision=5, hosts=Patch(put={"10.0.0.6": MARK_REJECT}, drop=("10.0.0.5",)))


async def test_a_plan_is_in_force_once_it_is_set(any_netd: Both) -> None:
    netd, double = any_netd
    await netd.set_plan(PLAN)
    assert (await netd.status()).revision == 4
    assert double.plan == PLAN
    await netd.set_plan(Plan(revision=2))
    assert (await netd.status()).revision == 2


async def test_a_change_is_applied_to_its_base(any_netd: Both) -> None:
    netd, double = any_netd
    await netd.set_plan(PLAN)
    await netd.apply(CHANGE)
    assert (await netd.status()).revision == 5
    assert double.plan.hosts == {"10.0.0.6": MARK_REJECT}
    assert "10.0.0.5" in PLAN.hosts


@pytest.mark.parametrize("is_strict", [True, False])
async def test_netd_hears_whether_a_change_is_strict(any_netd: Both, is_strict: bool) -> None:
    netd, double = any_netd
    await netd.set_plan(PLAN)
    await netd.apply(CHANGE, is_strict=is_strict)
    assert double.was_strict is is_strict


async def test_a_change_from_another_base_is_refused(any_netd: Both) -> None:
    netd, double = any_netd
    await netd.set_plan(Plan(revision=3))
    with pytest.raises(Failed, match="revision 4, not 3"):
        await netd.apply(CHANGE)
    assert double.plan == Plan(revision=3)


async def test_a_refused_change_changes_nothing(any_netd: Both) -> None:
    netd, double = any_netd
    await netd.set_plan(PLAN)
    double.behaviour = ["refuse", "refuse"]
    with pytest.raises(Failed, match="the kernel would not"):
        await netd.apply(CHANGE)
    with pytest.raises(Failed, match="the kernel would not"):
        await netd.set_plan(Plan(revision=9))
    assert double.plan == PLAN
    await netd.apply(CHANGE)


@pytest.mark.parametrize(("how", "revision"), [("break", 4), ("lose", 5)])
async def test_after_a_broken_connection_either_revision_may_be_in_force(
    any_netd: Both, how: str, revision: int
) -> None:
    netd, double = any_netd
    await netd.set_plan(PLAN)
    double.behaviour = [how]
    with pytest.raises(Failed, match="talk to netd"):
        await netd.apply(CHANGE)
    for call in (
        netd.status(),
        netd.apply(CHANGE),
        netd.set_plan(PLAN),
        netd.try_paths([node_path()]),
    ):
        with pytest.raises(Failed, match="talk to netd"):
            await call
    double.return_after_restart()
    assert (await netd.status()).revision == revision


async def test_each_tried_configuration_has_its_result(any_netd: Both) -> None:
    netd, double = any_netd
    double.engine_refuses = {"bad.test": "unknown cipher"}
    verdicts = await netd.try_paths([node_path(1, "good.test"), node_path(2, "bad.test")])
    assert list(verdicts) == ["", "unknown cipher"]


async def test_each_rule_has_its_counters(any_netd: Both) -> None:
    netd, double = any_netd
    assert await netd.counters() == {}
    double.counted = {7: RuleCount(1 << 50, 2, 3, 4), 8: RuleCount(0, 0, 0, 0)}
    assert await netd.counters() == double.counted
    double.is_away = True
    with pytest.raises(Failed, match="talk to netd"):
        await netd.counters()


async def test_findings_about_the_system_are_passed_on(any_netd: Both) -> None:
    netd, double = any_netd
    assert list(await netd.check_system()) == []
    double.lacking = (NO_PPTP, NO_DHCP)
    found = await netd.check_system()
    assert list(found) == [NO_PPTP, NO_DHCP]
    assert (found[0].text.code, found[0].text.values) == (NO_PPTP.text.code, NO_PPTP.text.values)


async def test_each_probe_gets_its_delay(any_netd: Both) -> None:
    netd, double = any_netd
    double.delay_of = lambda p: (
        Delay(delay=5) if p.name == "a" else Delay(delay=-1, error=as_sentence("no"))
    )
    probes = [Probe(name="a", path=node_path(1)), Probe(name="b", path=node_path(2))]
    assert await netd.delays(probes, "https://example.com/", 1000) == {
        "a": Delay(delay=5),
        "b": Delay(delay=-1, error=as_sentence("no")),
    }
