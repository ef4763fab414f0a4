"""The judgement of clients: each reason, their precedence, and the reports of changes."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec
import pytest

from egressd.model.desired import Edit
from egressd.model.messages import InstanceStatus, LineStatus, Status
from egressd.model.nouns import Rule, Settings, TargetGroup, Whitelist
from egressd.model.wording import as_sentence
from egressd.service.judgement import (
    CAUSES_MAX,
    EgressIndex,
    Verdict,
    blocked,
    judge,
    judge_all,
    judge_unruled,
    why_no_client,
)
from tests.service.judged import OPEN, RUNNING, STATE, Told, node, rules, seen, state
from tests.support.use_cases import RESOLVERS

NO_ROUTE = "the device has no default route"


def closed(**reasons: str) -> Status:
    return seen(egress_problems=OPEN | reasons)


def down(*keys: str) -> dict[str, InstanceStatus]:
    """Return instances that do not run; the other nodes' instances do."""
    running = {f"node:{number}": InstanceStatus(worker=1) for number in (1, 2, 3)}
    return running | {key: InstanceStatus(problem=as_sentence("no memory")) for key in keys}


@pytest.mark.parametrize(
    ("target", "what", "cause", "reason"),
    [
        ("DIRECT", RUNNING, "", ""),
        ("DIRECT", closed(DIRECT=NO_ROUTE), "exit", NO_ROUTE),
        ("DIRECT", seen(networks=()), "lan", "there is no LAN"),
        (
            "DIRECT",
            seen(networks=(), egress_problems={"DIRECT": NO_ROUTE}),
            "lan",
            "there is no LAN",
        ),
        ("DIRECT", seen(full="it is full"), "table", "it is full"),
        (
            "DIRECT",
            seen(lease_ms=0, full="it is full"),
            "lease",
            "this member of the site has no lease: it lets no client through until it is in step "
            "with the site",
        ),
        ("DIRECT", seen(lease_ms=1), "", ""),
        ("DIRECT", seen(dead_ends={"DIRECT": "nothing answers"}), "nowhere", "nothing answers"),
        ("DIRECT", seen(nameless={"DIRECT": "no resolver"}), "names", "no resolver"),
        ("DIRECT", seen(dead_ends={"wan1": "nothing answers"}), "", ""),
        ("DIRECT", seen(unserved="others take it"), "", ""),
        ("Interface:wan2", closed(wan2="it is down"), "exit", "it is down"),
        ("Interface:wan2", closed(DIRECT=NO_ROUTE), "", ""),
        ("Interface:wan2", seen(dead_ends={"wan2": "nothing"}), "nowhere", "nothing"),
        ("one", closed(DIRECT=NO_ROUTE), "exit", NO_ROUTE),
        ("near", closed(DIRECT=NO_ROUTE), "", ""),
        ("six", closed(DIRECT=NO_ROUTE), "", ""),
        ("one", seen(unserved="others take it"), "engine", "others take it"),
        ("one", seen(instances=down("node:1")), "engine", "no memory"),
        ("one", seen(failing={"node:1": "refused"}), "nodes", "its node fails: refused"),
        # A dead end for other traffic may still lead to a node, which is checked itself.
        ("one", seen(dead_ends={"DIRECT": "nothing"}), "", ""),
        ("Group_g", closed(DIRECT=NO_ROUTE), "", ""),
        ("Group_g", closed(DIRECT=NO_ROUTE, wan2="down"), "exit", f"{NO_ROUTE}; down"),
        ("Group_g", seen(instances=down("node:1")), "", ""),
        ("Group_g", seen(instances=down("node:1", "node:2")), "engine", "no memory"),
        ("Group_g", seen(failing={"node:1": "a"}), "", ""),
        (
            "Group_g",
            seen(failing={"node:1": "a", "node:2": "b"}),
            "nodes",
            "all of its nodes fail: a",
        ),
        ("gone", RUNNING, "target", "there is no node gone"),
        ("Group_gone", RUNNING, "target", "there is no group gone"),
        ("REJECT", seen(networks=(), full="full"), "", ""),
        (
            "Interface:l2tp_1",
            seen(lines={"l2tp_1": LineStatus(is_online=False, reason=as_sentence("no answer"))}),
            "exit",
            "the line l2tp_1 is offline: no answer",
        ),
        ("Interface:l2tp_1", seen(lines={"l2tp_1": LineStatus(is_online=True)}), "", ""),
    ],
)
def test_each_state_gives_its_cause_and_reason(
    target: str, what: Status, cause: str, reason: str
) -> None:
    verdict = judge(STATE, target, RESOLVERS, what)
    assert (verdict.cause, verdict.reason) == (cause, reason)
    all_of_them = judge_all(STATE, EgressIndex(STATE, RESOLVERS), what)
    assert target not in all_of_them or all_of_them[target] == verdict


MIXED = STATE.with_edits(
    [
        Edit("groups", 1, TargetGroup(id=1, name="m", members=("one", "Interface:wan2"))),
        Edit("groups", 2, TargetGroup(id=2, name="n", members=("Group_g",), filter="^near$")),
        *(Edit("numbers", f"Group_{name}", number) for number, name in enumerate("mn", 5)),
        *(
            Edit("rules", number, Rule(id=number, ip=f"10.0.0.{number}/32", target_node=target))
            for number, target in enumerate(("Group_m", "Group_n"), 20)
        ),
    ],
    2,
)


@pytest.mark.parametrize(
    ("target", "what", "egresses", "cause", "reason"),
    [
        ("Group_m", RUNNING, ("DIRECT", "wan2"), "", ""),
        ("Group_m", seen(failing={"node:1": "refused"}), ("wan2",), "", ""),
        ("Group_m", seen(silent_members=("Interface:wan2",)), ("DIRECT",), "", ""),
        ("Group_m", closed(wan2="it is down"), ("DIRECT",), "", ""),
        (
            "Group_m",
            seen(failing={"node:1": "refused"}, egress_problems=OPEN | {"wan2": "it is down"}),
            (),
            "nodes",
            "none of its members works: its node fails: refused; it is down",
        ),
        (
            "Group_m",
            seen(instances=down("node:1"), silent_members=("Interface:wan2",)),
            (),
            "engine",
            "none of its members works: no memory; Interface:wan2: the check of its group gets no "
            "answer",
        ),
        ("Group_m", seen(networks=()), (), "lan", "there is no LAN"),
        ("Group_n", seen(failing={"node:1": "a", "node:2": "b"}), ("DIRECT", "wan2"), "", ""),
        (
            "Group_n",
            seen(failing={"node:1": "a", "node:2": "b", "node:3": "c"}),
            ("DIRECT", "wan2"),
            "nodes",
            "all of its nodes fail: a",
        ),
    ],
)
def test_a_group_with_settings_works_while_a_member_does(
    target: str, what: Status, egresses: tuple[str, ...], cause: str, reason: str
) -> None:
    verdict = judge(MIXED, target, RESOLVERS, what)
    assert (verdict.egresses, verdict.cause, verdict.reason) == (egresses, cause, reason)
    assert judge_all(MIXED, EgressIndex(MIXED, RESOLVERS), what)[target] == verdict


def test_a_stopped_device_takes_precedence_and_an_opened_one_is_direct() -> None:
    stopped = msgspec.structs.replace(STATE, settings=Settings(stopped=True))
    verdicts = judge_all(stopped, EgressIndex(stopped, RESOLVERS), RUNNING)
    assert {verdict.cause for verdict in verdicts.values()} == {"stopped"}
    opened = msgspec.structs.replace(STATE, settings=Settings(opened=True))
    verdicts = judge_all(opened, EgressIndex(opened, RESOLVERS), closed(wan2="down"))
    assert all(verdict == Verdict(egresses=("DIRECT",)) for verdict in verdicts.values())
    assert judge_unruled(opened, closed(DIRECT=NO_ROUTE)).reason == NO_ROUTE


def test_clients_without_a_rule_have_a_separate_instance() -> None:
    made = msgspec.structs.replace(STATE, settings=Settings(unmanaged="one"))
    assert judge_unruled(made, seen(instances=down("default:0"))).reason == "no memory"
    assert judge_unruled(made, seen(instances=down("node:1"))).reason == ""
    assert judge_unruled(STATE, closed(DIRECT=NO_ROUTE)) == Verdict()


def test_an_address_outside_the_lans_is_no_client() -> None:
    assert why_no_client(IPv4Address("10.0.0.9"), RUNNING) == ""
    assert why_no_client(IPv4Address("10.0.1.9"), RUNNING) == (
        "10.0.1.9 is in none of the LANs' networks (10.0.0.0/24)"
    )
    assert why_no_client(IPv4Address("10.0.1.9"), seen(networks=None)) == ""
    assert why_no_client(IPv4Address("10.0.1.9"), seen(networks=())) == "there is no LAN"


def test_one_cause_is_reported_once_for_any_number_of_clients() -> None:
    nodes = [node(number, f"n{number}") for number in range(1, 2001)]
    made = state(*nodes, *rules(*(f"n{number}" for number in range(1, 2001))))
    for what in (
        closed(DIRECT=NO_ROUTE),
        seen(failing={f"node:{n}": f"timed out after {n} ms" for n in range(1, 2001)}),
    ):
        (cause,) = blocked(made, judge_all(made, EgressIndex(made, RESOLVERS), what), {})
        assert (cause.clients, len(cause.targets)) == (2000, 20)
        assert cause.text.startswith("2000 clients of n1, n10, n100 and 1997 others are blocked: ")
    gone = state(*rules(*(f"gone{number}" for number in range(1, 2001))))
    (cause,) = blocked(gone, judge_all(gone, EgressIndex(gone, RESOLVERS), RUNNING), {})
    assert "their target is gone" in cause.text


def test_the_number_of_causes_is_limited_and_all_clients_are_counted() -> None:
    nodes = [node(number, f"n{number}") for number in range(1, 101)]
    made = state(*nodes, *rules(*(f"n{number}" for number in range(1, 101))))
    instances = {
        f"node:{n}": InstanceStatus(problem=as_sentence(f"reason {chr(97 + n // 10)}{n}"))
        for n in range(1, 101)
    }
    causes = blocked(
        made, judge_all(made, EgressIndex(made, RESOLVERS), seen(instances=instances)), {}
    )
    assert len(causes) == CAUSES_MAX
    assert sum(cause.clients for cause in causes) == 100
    assert causes[-1].reason == "there are 81 reasons"


def test_a_change_of_state_and_its_end_are_each_reported_once() -> None:
    told = Told()
    assert told.take(RUNNING) == []
    bad = seen(egress_problems=OPEN | {"wan2": "it is down"}, wans=("wan1", "wan2"))
    assert told.take(bad) == [
        ("wan", "wan2", "wan2 does not work: it is down"),
        ("target", "Interface:wan2", "1 client of Interface:wan2 is blocked: it is down"),
    ]
    assert [notice.is_bad for notice in told.notices] == [True, True]
    wan, target = (notice.event for notice in told.notices)
    assert (wan.code, wan.values) == ("fails", {"subjects": ("wan2",), "reason": "it is down"})
    assert (target.code, target.values) == (
        "blocked",
        {"subjects": ("Interface:wan2",), "cause": "exit", "reason": "it is down", "clients": 1},
    )
    assert told.take(bad) == []
    assert told.take(RUNNING) == [
        ("wan", "wan2", "wan2 works again"),
        ("target", "Interface:wan2", "1 client of Interface:wan2 gets out again"),
    ]
    assert [notice.is_bad for notice in told.notices] == [False, False]
    assert [notice.event.code for notice in told.notices] == ["works", "unblocked"]


def test_nodes_are_reported_by_name_and_key() -> None:
    told = Told()
    assert told.take(seen(failing={"node:1": "timed out after 12 ms"})) == [
        ("node", "one", "one fails: timed out after 12 ms"),
        ("target", "one", "1 client of one is blocked: its node fails: timed out after 12 ms"),
    ]
    assert told.notices[0].key == "node:1"
    assert told.take(seen(failing={"node:1": "timed out after 13 ms"})) == []
    both = {"node:1": "refused", "node:2": "refused"}
    assert told.take(seen(failing=both)) == [
        ("node", "", "one, two fail: refused"),
        ("target", "Group_g", "1 client of Group_g is blocked: all of its nodes fail: refused"),
        ("target", "one", "1 client of one is blocked: its node fails: refused"),
    ]
    # A deleted node is not reported as answering again.
    told.state = STATE.with_edits([Edit("nodes", 2, None)], 2)
    assert told.take(seen(failing={})) == [
        ("node", "one", "one answers again"),
        ("target", "", "2 clients of Group_g, one get out again"),
    ]


def test_the_start_of_a_block_is_remembered_until_its_end() -> None:
    told = Told()
    told.take(closed(DIRECT=NO_ROUTE))
    told.now = "2"
    told.take(seen(dead_ends={"DIRECT": "nothing answers"}))
    assert (told.judge.since("DIRECT"), told.judge.since("one")) == ("1", "")
    told.take(RUNNING)
    assert told.judge.since("DIRECT") == ""
    told.now = "3"
    (cause, *_) = told.judge.take(closed(DIRECT=NO_ROUTE)).blocked
    assert (cause.since, cause.reason) == ("3", NO_ROUTE)


def test_states_are_kept_while_netd_is_away() -> None:
    told = Told()
    told.take(closed(DIRECT=NO_ROUTE))
    away = Status(state="restoring", revision=0, problems=(as_sentence("it is away"),))
    assert told.take(away) == [("problem", "", "it is away")]
    assert told.take(closed(DIRECT=NO_ROUTE)) == [("problem", "", "over: it is away")]
    assert told.judge.since("DIRECT") == "1"


def test_problems_that_differ_in_numbers_are_one_problem() -> None:
    told = Told()
    assert told.take(seen(problems=("95 of 100 are tracked",))) == [
        ("problem", "", "95 of 100 are tracked")
    ]
    assert told.take(seen(problems=("96 of 100 are tracked",))) == []
    assert told.take(RUNNING) == [("problem", "", "over: 96 of 100 are tracked")]
    (over,) = (notice.event for notice in told.notices)
    assert (over.code, over.values) == (
        "over",
        {"subjects": (), "problem": "96 of 100 are tracked"},
    )


def test_problems_include_everything_that_is_blocked() -> None:
    listed = Whitelist(ips="192.0.2.0/24", node="two")
    made = msgspec.structs.replace(STATE, whitelist=listed, settings=Settings(unmanaged="DIRECT"))
    what = seen(
        egress_problems={"DIRECT": NO_ROUTE, "wan2": "it is down"},
        wans=("wan2",),
        problems=("another",),
    )
    assert Told(made).judge.take(what).problems == (
        "2 clients of DIRECT, one are blocked: the device has no default route",
        "1 client of Group_g is blocked: the device has no default route; it is down",
        "1 client of Interface:wan2 is blocked: it is down",
        "clients without a rule are blocked: the device has no default route",
        "the whitelist's destinations are blocked: it is down",
        "the WAN wan2 does not work: it is down",
        "another",
    )


def test_an_outage_of_everything_causes_few_events() -> None:
    nodes = [node(number, f"n{number}") for number in range(1, 2001)]
    told = Told(state(*nodes, *rules(*(f"n{number}" for number in range(1, 2001)))))
    assert len(told.take(closed(DIRECT=NO_ROUTE))) == 2
    assert len(told.take(RUNNING)) == 2
    reasons = {f"node:{n}": f"reason {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(1, 601)}
    assert len(told.take(seen(failing=reasons))) <= 2 * 21
