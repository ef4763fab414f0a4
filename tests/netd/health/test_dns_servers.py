"""The criteria for silent resolvers, and for valid answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Network

import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.model.facts import Facts, Interface, Route
from egressd.model.plan import Egress, GlobalPolicy, Plan
from egressd.netd.dataplane.kernel_state import KernelState
from egressd.netd.health import dns_servers, egress_probe
from egressd.netd.health.dns_servers import DnsServerChecks, answers
from egressd.netd.kernel import conntrack
from egressd.netd.kernel.nft import Nft
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.resolvers import Resolver
from egressd.planner.topology import Topology, inbound, interface_mark
from tests.support.netns import Namespace

WAN = interface_mark("wan1", 1)
FIRST, SECOND, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"
ONLY = "192.0.2.9"
ALL = (FIRST, SECOND, THIRD)


class Watched:
    """Resolvers of DIRECT (one) and of a WAN (three), some of which are silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.silent: set[str] = set()
        self.questions: list[Resolver] = []
        self.adapted = 0
        self.is_broken = False
        self.is_dead = False
        self.changes = 0
        self.machine = KernelState(Nft(), InterfaceRoles(), 1)
        self.machine.topology = Topology(
            wans=("wan1",), seen_wans=("wan1",), direct_exits=("wan1",), routable=("wan1", "l2tp_1")
        )
        wan1 = Interface(name="wan1", index=2, is_up=True)
        route = Route(destination=IPv4Network("0.0.0.0/0"), interface="wan1")
        self.machine.facts = Facts(interfaces={"wan1": wan1}, routes=(route,))
        self.plan = Plan(
            policy=GlobalPolicy(resolvers=(ONLY,)),
            egresses={"wan1": Egress(number=1, resolvers=ALL)},
        )
        self.resolvers = DnsServerChecks(
            self.machine, lambda: self.plan, self._adapt, self._changed
        )
        self.forgotten: list[str] = []
        monkeypatch.setattr(dns_servers, "answers", self._answers)
        monkeypatch.setattr(egress_probe, "is_anybody_there", self._is_anybody_there)
        monkeypatch.setattr(conntrack, "forget_questions", lambda s: self.forgotten.append(str(s)))

    async def _answers(self, server: str, mark: int) -> bool:
        self.questions.append((mark, server))
        return server not in self.silent

    async def _is_anybody_there(self, addresses: Sequence[str], mark: int) -> bool:
        return not self.is_dead

    def _changed(self) -> None:
        self.changes += 1

    async def _adapt(self) -> None:
        if self.is_broken:
            raise Failed("load the table", "it is away")
        self.adapted += 1

    async def look(self, *silent: str) -> list[Resolver]:
        """Run a check while these are silent; return the queried resolvers."""
        self.silent, self.questions = set(silent), []
        await self.resolvers.check()
        return [question for question in self.questions if question[1] != ONLY]

    def told(self) -> list[str]:
        """Return the problems reported to operators."""
        return list(self.resolvers.problems)


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched(monkeypatch)
    await made.look()
    made.adapted = 0
    return made


async def test_the_next_answering_resolver_replaces_a_silent_one(watched: Watched) -> None:
    assert await watched.look() == [(WAN, FIRST)]
    assert (MARK_DIRECT, ONLY) in watched.questions
    assert await watched.look(FIRST, THIRD) == [(WAN, server) for server in ALL]
    assert watched.machine.silent == {(WAN, FIRST)}


async def test_the_kernel_is_updated_only_when_silent_resolvers_change(watched: Watched) -> None:
    for silent, adapted in (
        ((), 0),
        ((FIRST,), 1),
        ((FIRST,), 1),
        ((FIRST, SECOND), 2),
        ((SECOND,), 3),
        ((), 3),
    ):
        await watched.look(*silent)
        assert watched.adapted == adapted
    assert watched.told() == []
    # The flows to resolvers that are no longer used are deleted, once.
    assert watched.forgotten == [FIRST, SECOND, THIRD]


async def test_a_failed_update_is_repeated_by_the_next_check(watched: Watched) -> None:
    watched.is_broken = True
    with pytest.raises(Failed):
        await watched.look(FIRST)
    watched.is_broken = False
    await watched.look(FIRST)
    assert watched.adapted == 1
    assert watched.forgotten == [FIRST]


async def test_a_silent_resolver_of_two_equal_egresses_is_reported_once(watched: Watched) -> None:
    domestic = Egress(number=1, resolvers=ALL, is_asked_directly=True)
    watched.plan = Plan(policy=GlobalPolicy(resolvers=ALL), egresses={"l2tp_1": domestic})
    await watched.look(FIRST)
    assert len(watched.machine.silent) == 2
    assert len(watched.told()) == 1


async def test_an_egress_without_any_answer_keeps_its_resolvers(watched: Watched) -> None:
    await watched.look(*ALL)
    assert watched.adapted == 0
    await watched.look(FIRST)
    assert await watched.look(*ALL) == [(WAN, server) for server in ALL]
    assert watched.machine.silent == {(WAN, FIRST)}
    assert watched.told() == [
        f"resolver {FIRST} does not answer by wan1: {SECOND} is asked in its place"
    ]


async def test_egresses_without_an_answer_are_reported_by_kind(watched: Watched) -> None:
    names = f"no resolver answers directly ({ONLY})"
    for silent, is_dead, dead_ends, nameless, changes in (
        ((FIRST,), False, {}, {}, 0),
        ((ONLY,), False, {}, {"DIRECT": names}, 1),
        ((ONLY,), False, {}, {"DIRECT": names}, 1),
        ((ONLY,), True, {"DIRECT": f"nothing that is asked directly answers ({ONLY})"}, {}, 2),
        ((), True, {}, {}, 3),
    ):
        watched.is_dead = is_dead
        await watched.look(*silent)
        told = (watched.resolvers.dead_ends, watched.resolvers.nameless, watched.changes)
        assert told == (dead_ends, nameless, changes)


async def test_an_egress_by_which_nothing_answers_is_a_dead_end(watched: Watched) -> None:
    watched.is_dead = True
    await watched.look(*ALL)
    reason = f"nothing that is asked by wan1 answers ({', '.join(ALL)})"
    assert watched.resolvers.dead_ends == {"wan1": reason}


async def test_a_line_whose_only_resolver_is_dead_leads_on(watched: Watched) -> None:
    """Other packets come by it, or it would not be up; and no other resolver is known."""
    watched.plan = Plan(egresses={"l2tp_1": Egress(number=1)})
    watched.machine.peer_dns = {"l2tp_1": ("10.9.0.53",)}
    watched.machine.facts = Facts(
        interfaces={"l2tp_1": Interface(name="l2tp_1", index=3, is_up=True)},
    )
    watched.is_dead = True
    await watched.look("10.9.0.53")
    assert watched.resolvers.dead_ends == {}
    reason = "no resolver answers by l2tp_1 (10.9.0.53)"
    assert watched.resolvers.nameless == {"l2tp_1": reason}


async def test_a_check_of_some_egresses_keeps_the_results_of_others(watched: Watched) -> None:
    await watched.look(FIRST, ONLY)
    watched.silent, watched.questions = {FIRST, SECOND, THIRD}, []
    await watched.resolvers.check({MARK_DIRECT, 77})
    assert watched.questions == [(MARK_DIRECT, ONLY)]
    assert watched.resolvers.nameless == {}
    assert watched.machine.silent == {(WAN, FIRST)}
    await watched.resolvers.check({WAN})
    assert set(watched.resolvers.nameless) == {"wan1"}


async def test_no_resolver_is_queried_by_a_closed_egress(watched: Watched) -> None:
    await watched.look(FIRST)
    watched.machine.topology = Topology()
    assert await watched.look(*ALL) == []
    assert watched.resolvers.dead_ends == {}
    assert watched.machine.silent == {(WAN, FIRST)}


async def test_a_wan_without_a_rule_is_checked_too(watched: Watched) -> None:
    watched.plan = Plan(policy=GlobalPolicy(resolvers=(FIRST,)))
    answers = interface_mark("wan1", inbound(watched.machine.topology)["wan1"].number)
    assert sorted(await watched.look()) == [(answers, FIRST), (MARK_DIRECT, FIRST)]
    watched.is_dead = True
    await watched.look(FIRST)
    assert set(watched.resolvers.dead_ends) == {"DIRECT", "wan1"}


async def test_resolvers_removed_from_the_plan_are_forgotten(watched: Watched) -> None:
    await watched.look(FIRST)
    watched.plan = Plan(policy=GlobalPolicy(resolvers=(FIRST, SECOND)))
    assert watched.told() == []
    asked = await watched.look(FIRST)
    assert [each for each in asked if each[0] == MARK_DIRECT] == [
        (MARK_DIRECT, FIRST),
        (MARK_DIRECT, SECOND),
    ]
    assert watched.machine.silent == {(MARK_DIRECT, FIRST)}
    assert watched.told() == [
        f"resolver {FIRST} does not answer directly: {SECOND} is asked in its place"
    ]


Reply = Callable[[bytes], Sequence[bytes]]


def reply(code: int, flags: int = 0x8180) -> Reply:
    """Return an answer with a code (RFC 1035, 4.1.1) to any query."""
    return lambda asked: [asked[:2] + (flags | code).to_bytes(2, "big") + asked[4:]]


REPLIES: Mapping[str, tuple[Reply, bool]] = {
    "no error": (reply(0), True),
    "no such name": (reply(3), True),
    "server failure": (reply(2), False),
    "refused": (reply(5), False),
    "the question itself": (lambda asked: [asked], False),
    "too little": (lambda asked: [asked[:2]], False),
    "nothing": (lambda _: [], False),
    "after that of another question": (lambda asked: [bytes(12), b"", *reply(0)(asked)], True),
}


@pytest.mark.lab
@pytest.mark.parametrize("kind", REPLIES)
def test_only_a_reply_usable_by_clients_counts_as_an_answer(kind: str) -> None:
    says, helps = REPLIES[kind]
    with Namespace() as network:
        network.shell("ip link set lo up")
        assert network.run_async(_ask, says) is helps


@pytest.mark.lab
def test_an_unreachable_or_closed_resolver_does_not_answer() -> None:
    with Namespace() as network:
        assert network.run_async(answers, FIRST, 0) is False
        network.shell("ip link set lo up")
        assert network.run_async(answers, "127.0.0.1", 0) is False


@pytest.mark.lab
def test_a_lost_query_is_repeated_by_the_same_egress() -> None:
    mark = 0x2000_0001
    with Namespace() as network:
        network.shell("ip link set lo up")
        network.shell(
            "nft add table ip t;"
            "nft 'add chain ip t out { type filter hook output priority 0; }';"
            f"nft add rule ip t out udp dport 53 meta mark {mark} counter"
        )
        lost: list[bytes] = []

        def second(asked: bytes) -> Sequence[bytes]:
            lost.append(asked)
            return reply(0)(asked) if len(lost) == 2 else []

        assert network.run_async(_ask, second, mark)
        assert "counter packets 2 " in network.shell("nft list table ip t")


async def _ask(says: Reply, mark: int = 0) -> bool:
    """Return whether a resolver that replies so answers."""

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as server:
        server.bind(("127.0.0.1", 53))

        def reply_to_it() -> None:
            asked, asker = server.recvfrom(512)
            for each in says(asked):
                server.sendto(each, asker)

        loop = asyncio.get_running_loop()
        loop.add_reader(server, reply_to_it)
        try:
            return await answers("127.0.0.1", mark)
        finally:
            loop.remove_reader(server)
