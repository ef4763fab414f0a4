"""Two members of a site with ledgers of their own, over a real database and doubles of netd."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, Unconfirmed
from egressd.model.messages import InstanceStatus, Status
from egressd.model.nouns import Node, Rule
from egressd.model.plan import Change
from egressd.model.wording import as_sentence
from egressd.service.ledger import Proposal
from egressd.service.membership import MARGIN_S, TTL_S
from egressd.store.postgres.schema import revoke_member
from tests.store.lossy_proxy import LossyProxy, lossy_proxy
from tests.store.members import Member, clock, paired, until
from tests.store.rig import Site, newer_schema, rules, standby_away, write
from tests.support.postgres import OWNER

pytestmark = pytest.mark.slow

KILLS = 50 if os.environ.get("EGRESSD_SITE") == "long" else 2
"""Kills of the database's server under writes at both members."""
FAR_S = 0.025
"""Seconds that a message takes to the database that is far away, and back."""
WAITS_MAX = 6
"""Answers that a change of a member far from the database may wait for: three, one after the other,
and meanwhile those to what it announces, to its acknowledgement, and to a beat.
"""


@asynccontextmanager
async def pair(site: Site, folder: Path) -> AsyncIterator[tuple[Member, Member]]:
    """Yield two members, each of which has a lease."""
    a = Member.of_site(site, folder / "a")
    b = Member.of_site(site.second(), folder / "b")
    async with paired(a, b):
        yield a, b


async def test_a_change_is_in_force_at_both_when_it_is_answered(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        for key in range(1, 41):
            mine, other = (a, b) if key % 2 else (b, a)
            assert await mine.put(key) == ()
            assert other.netd.plan.hosts == mine.netd.plan.hosts
            assert len(other.netd.plan.hosts) == key
        assert a.ledger.state == b.ledger.state


async def test_two_writers_at_once_lose_nothing(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        before = a.ledger.revision

        async def writes(member: Member, first: int) -> None:
            for number in range(50):
                await member.put(first + number)
                await member.put(1000, f"Interface:{member is a}{number}")

        await asyncio.gather(writes(a, 1), writes(b, 101))
        assert a.ledger.state == b.ledger.state
        assert a.ledger.revision == before + 200
        assert a.netd.plan == b.netd.plan
        assert set(a.ledger.state.rules) == {*range(1, 51), *range(101, 151), 1000}


async def test_a_dead_member_costs_one_change_and_is_named(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        await until(lambda: all(each.is_beating and each.lag == 0 for each in a.site.states()))
        assert [each.is_this for each in a.site.states()] == [True, False]
        await b.die()
        began = clock()
        notes = await a.put(1)
        assert [note.code for note in notes] == ["site-member-shut"]
        assert "the member b" in notes[0]
        assert not b.is_open
        assert clock() - began < TTL_S + 1.5
        began = clock()
        assert await a.put(2)
        assert clock() - began < MARGIN_S
        await until(lambda: a.site.states()[1].lag == 2)
        mine, other = a.site.states()
        assert (mine.name, mine.is_beating, mine.is_shut_out, mine.lag) == ("a", True, False, 0)
        assert (other.name, other.is_beating, other.is_shut_out) == ("b", False, True)
        b.running = asyncio.create_task(b.site.run(b.ledger))
        await until(lambda: b.is_open)
        assert set(b.ledger.state.rules) == {1, 2}
        assert await a.put(3) == ()


async def test_a_member_that_beats_and_does_not_follow_is_shut_out(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.service.site_member.ACKNOWLEDGE_S", 1.0)
    async with pair(site, tmp_path) as (a, b):
        slow = asyncio.Event()
        apply = b.netd.apply

        async def late(change: Change, *, is_strict: bool = True) -> None:
            await slow.wait()
            await apply(change, is_strict=is_strict)

        b.netd.apply = late  # type: ignore[method-assign]
        notes = await a.put(1)
        assert [note.code for note in notes] == ["site-member-shut"]
        assert not b.is_open
        slow.set()
        await until(lambda: b.is_open)
        assert set(b.ledger.state.rules) == {1}
        assert await a.put(2) == ()


async def test_a_change_that_dies_half_way_is_not_relied_on(site: Site, tmp_path: Path) -> None:
    """At its member the kernel may have it in force until the lease has run out."""
    async with pair(site, tmp_path) as (a, b):
        await b.put(1, "REJECT")
        is_applied, is_over = asyncio.Event(), asyncio.Event()
        apply = a.netd.apply

        async def hang(change: Change, *, is_strict: bool = True) -> None:
            await apply(change, is_strict=is_strict)
            is_applied.set()
            await is_over.wait()
            raise Failed("talk to netd", "it was killed")

        a.netd.apply = hang  # type: ignore[method-assign]
        half = asyncio.create_task(a.put(1))
        await is_applied.wait()
        await a.die()
        # So the server ends the sessions of a process that was killed.
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename"
        await asyncio.to_thread(site.server.query, f"{kill} = '{site.role}'")
        try:
            notes = await b.put(1, "REJECT")
            assert [note.code for note in notes] == ["site-member-shut"]
            assert not a.is_open
        finally:
            is_over.set()
        with pytest.raises(Failed, match="roll back the database"):
            await half


async def test_a_change_is_relied_on_again_once_it_is_taken_back(
    site: Site, tmp_path: Path
) -> None:
    async with pair(site, tmp_path) as (a, b):
        await b.put(1)
        a.netd.behaviour = ["refuse"]
        with pytest.raises(Failed, match="the kernel would not"):
            await a.put(1, "REJECT")
        assert await b.put(1) == ()
        a.netd.behaviour = ["lose"]
        with pytest.raises(Failed, match="it went away"):
            await a.put(1, "REJECT")
        same = asyncio.create_task(b.put(1))
        assert await asyncio.wait({same}, timeout=1) == (set(), {same})
        a.netd.return_after_restart()
        await a.ledger.resync()
        assert await same == ()


async def test_a_member_without_a_lease_refuses_every_write(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        await a.put(1)
        await b.die()
        await until(lambda: not b.site.has_lease)
        assert not b.is_open
        for key in (1, 2):  # the first would change nothing
            with pytest.raises(Failed, match="this box has no lease in its site"):
                await b.put(key)
        assert b.ledger.phase == "restoring"
        assert [problem.code for problem in b.site.problems()] == ["site-without-lease"]


async def test_members_of_a_schema_for_newer_ones_keep_their_leases(
    site: Site, tmp_path: Path
) -> None:
    """They make no change, and say what they need."""
    async with pair(site, tmp_path) as (a, b):
        await a.put(1)
        with newer_schema(site.server):
            for member in (a, b):
                await until(lambda member=member: bool(member.site.problems()))  # type: ignore[misc]
                assert [problem.code for problem in member.site.problems()] == ["site-outdated"]
                with pytest.raises(Failed, match="upgrade this box"):
                    await member.put(2)
            begun = b.renewals
            while b.renewals < begun + TTL_S + 1:
                assert a.is_open
                assert b.is_open
                await asyncio.sleep(0.05)
        await until(lambda: not a.site.problems())
        assert await a.put(2) == ()


async def test_nothing_acknowledged_is_lost_when_the_server_dies(
    site: Site, tmp_path: Path
) -> None:
    async with pair(site, tmp_path) as (a, b):
        acknowledged: set[int] = set()

        async def writes(member: Member, first: int) -> None:
            for number in itertools.count(first, 2):
                if killing.done():
                    return
                try:
                    await member.put(number)
                    acknowledged.add(number)
                except (Failed, Unconfirmed):
                    await asyncio.sleep(0.05)

        async def kills() -> None:
            for _ in range(KILLS):
                wanted = len(acknowledged) + 5

                def is_enough(wanted: int = wanted) -> bool:
                    return len(acknowledged) > wanted

                await until(is_enough)
                await asyncio.to_thread(site.server.kill)
                await asyncio.to_thread(site.server.start)

        killing = asyncio.create_task(kills())
        await asyncio.gather(writes(a, 1), writes(b, 2))
        await killing
        async with asyncio.timeout(TTL_S + 2):
            await until(lambda: a.ledger.phase == b.ledger.phase == "running")
            await until(lambda: a.ledger.state == b.ledger.state)
        await a.put(0)
        assert a.ledger.state == b.ledger.state
        assert a.netd.plan == b.netd.plan
        assert acknowledged <= set(a.ledger.state.rules)


@asynccontextmanager
async def far_pair(
    site: Site, folder: Path, *, are_both_far: bool = False
) -> AsyncIterator[tuple[LossyProxy, Member, Member]]:
    """Yield two members, the first of which, or each, reaches the database by a proxy."""
    sockets = folder / "proxy"
    sockets.mkdir()
    with lossy_proxy(site.server, sockets) as proxy:

        def by_proxy(each: Site) -> str:
            return f"host={sockets} user={each.role} dbname=postgres"

        second = site.second()
        a = Member.of_site(site, folder / "a", by_proxy(site))
        b = Member.of_site(second, folder / "b", by_proxy(second) if are_both_far else "")
        async with paired(a, b):
            yield proxy, a, b


async def test_a_change_whose_commit_gets_no_answer_is_in_force_at_both(
    site: Site, tmp_path: Path
) -> None:
    async with far_pair(site, tmp_path) as (proxy, a, b):
        proxy.cut_after = b"pg_notify"
        for key in range(1, 21):
            proxy.cut_at = b"COMMIT\0"
            assert await a.put(key) == ()
            assert not proxy.cut_at
            assert set(a.ledger.state.rules) == set(b.ledger.state.rules) == {*range(1, key + 1)}
            assert a.netd.plan == b.netd.plan


@pytest.mark.parametrize("are_both_far", [False, True])
async def test_a_change_waits_seldom_for_a_database_far_away(
    site: Site, tmp_path: Path, are_both_far: bool
) -> None:
    async with far_pair(site, tmp_path, are_both_far=are_both_far) as (proxy, a, _):
        await a.put(1)
        proxy.delay_s = FAR_S
        waits, took = [], []
        for key in range(2, 22):
            before, began = proxy.waits, clock()
            await a.put(key)
            waits.append(proxy.waits - before)
            took.append((clock() - began) / 2 / FAR_S)
        print(f"waits {sorted(waits)}, median of round trips {statistics.median(took):.2f}")
        assert statistics.median(waits) <= (2 * WAITS_MAX if are_both_far else WAITS_MAX)


async def test_a_target_that_is_blocked_at_another_member_is_named(
    site: Site, tmp_path: Path
) -> None:
    async with pair(site, tmp_path) as (a, b):
        refused = InstanceStatus(problem=as_sentence("it is refused"))
        b.netd.shown = Status(state="running", revision=0, instances={"node:7": refused})

        place = '{"server": "198.51.100.1", "port": 1080}'
        node = Node(id=7, name="n", protocol="socks5", config_json=place, group="", created_at="t")
        rule = Rule(id=1, ip="10.0.0.5/32", target_node="n")

        def build(_: DesiredState) -> Proposal[None]:
            return Proposal([Edit("nodes", 7, node), Edit("rules", 1, rule)], None)

        notes = (await a.ledger.change(build)).notes
        assert notes == ("on the member b of the site n cannot be in force",)
        await until(lambda: a.site.states()[1].blocked == ("n",))
        assert not b.netd.was_strict
        assert b.netd.plan == a.netd.plan


async def test_a_false_hint_keeps_no_member_from_its_lease(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        number = site.server.query("SELECT egressd_site()", site.role)[0][0]
        for payload in ("9" * 19, "9" * 5000, "x"):
            site.server.query(f"SELECT pg_notify('egressd_{number}', '{payload}')")
            await a.put(1, f"Interface:wan{len(payload)}")
        await b.die()
        await until(lambda: not b.is_open)
        b.running = asyncio.create_task(b.site.run(b.ledger))
        site.server.query(f"SELECT pg_notify('egressd_{number}', '{'9' * 19}')")
        await until(lambda: b.is_open)
        assert await a.put(2) == ()
        assert b.ledger.state == a.ledger.state


async def other_history(site: Site, key: int) -> None:
    """Bring the site back to its saved state, and make another change there."""
    site.restore()
    database = site.database()
    await database.open()
    state = await database.load()
    await write(database, rules(1, start=key), state.revision + 1)
    await database.close()


async def test_members_of_a_restored_site_do_not_write_on(site: Site, tmp_path: Path) -> None:
    """The members' state and the database's have the same revision after different changes."""
    async with pair(site, tmp_path) as (a, b):
        await a.put(1)
        site.save()
        await b.put(2)
        await other_history(site, 77)
        with pytest.raises(Failed, match="its history is another one"):
            await a.put(3)
        for member in (a, b):
            await until(lambda member=member: not member.is_open)  # type: ignore[misc]
            with pytest.raises(Failed, match="its history is another one"):
                await member.put(4)
            assert "its history is another one" in member.site.problems()[0]
        assert {1, 2} <= set(b.ledger.state.rules)
        assert site.server.query("SELECT count(*) FROM rules", site.role) == [["2"]]


async def test_a_change_whose_database_was_restored_is_unconfirmed(
    site: Site, tmp_path: Path
) -> None:
    async with pair(site, tmp_path) as (a, b):
        site.save()
        await a.put(1)
        await b.die()
        waiting = asyncio.create_task(a.put(2))
        await until(lambda: 2 in a.ledger.state.rules)
        await other_history(site, 77)
        with pytest.raises(Unconfirmed, match="does not have the change"):
            await waiting


async def test_a_replica_alone_gets_no_lease(site: Site, tmp_path: Path) -> None:
    """A member starts while the database is away, and finds another configuration in it."""
    async with pair(site, tmp_path) as (a, b):
        await a.put(1)
        site.save()
        await a.put(2)
        await b.close()
        await a.close()
    await other_history(site, 77)
    b = Member.of_site(site.second(), tmp_path / "b")
    site.server.stop()
    try:
        await b.start()
        assert set(b.ledger.state.rules) == {1, 2}
        site.server.start()
        await until(lambda: b.is_open)
        assert set(b.ledger.state.rules) == {1, 77}
        assert b.netd.plan.hosts.keys() == {"10.0.0.1", "10.0.0.77"}
    finally:
        site.server.start()
        await b.close()


async def test_the_first_members_kernel_is_open_until_it_is_seen_as_shut(
    site: Site, tmp_path: Path
) -> None:
    """The first member is a box that runs on its own; the second one starts before it restarts."""
    a = Member.of_site(site, tmp_path / "a")
    b = Member.of_site(site.second(), tmp_path / "b")
    async with AsyncExitStack() as opened:
        for member in (a, b):
            opened.push_async_callback(member.close)
        await a.store.open()
        await a.ledger.load()
        await b.start()
        await until(lambda: b.site.has_lease and b.netd.plan.is_leased)
        assert not a.netd.plan.is_leased
        await until(lambda: "a lets clients through and is silent" in refusal(b))
        a.running = asyncio.create_task(a.site.run(a.ledger))
        await a.ledger.resync()
        await until(lambda: a.is_open and a.netd.plan.is_leased)
        await until(lambda: not any(seen.is_ungated for seen in b.site.members))
        assert await b.put(1) == ()
        assert set(a.ledger.state.rules) == {1}


def refusal(member: Member) -> str:
    """Return why a change would be refused; empty if it would not."""
    try:
        member.site.check()
    except Failed as error:
        return str(error)
    return ""


async def test_a_removed_members_site_is_open_again(site: Site, tmp_path: Path) -> None:
    async with pair(site, tmp_path) as (a, b):
        await b.die()
        revoke_member(site.server.conninfo(OWNER), site=site.name, member="b")
        await until(lambda: not a.netd.plan.is_leased)
        assert await a.put(1) == ()


async def test_the_last_member_keeps_its_lease_while_a_standby_is_away(
    site: Site, tmp_path: Path
) -> None:
    """Past fault: to open the gate waits for the standby, and the beats waited for that, so that
    the lease ran out and all clients were blocked.
    """
    async with pair(site, tmp_path) as (a, b):
        await b.die()
        with standby_away(site):
            removed = f"UPDATE member SET is_revoked = true WHERE id = {b.site.me}"
            site.server.query(f"SET synchronous_commit = local; {removed}")
            await until(lambda: [seen.name for seen in a.site.members] == ["a"])
            begun = a.renewals
            while a.renewals < begun + 2 * TTL_S:
                assert a.is_open
                assert a.netd.plan.is_leased
                await asyncio.sleep(0.05)
        await until(lambda: not a.netd.plan.is_leased)
