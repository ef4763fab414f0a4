"""Members of a site with ledgers of their own, over a real database and doubles of netd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import Rule
from egressd.model.plan import Plan
from egressd.model.wording import Sentence
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan
from egressd.service.ledger import Ledger, Proposal
from egressd.service.site_member import SiteMember
from egressd.store.database import Database
from egressd.store.postgres.site_link import SiteLink
from egressd.store.postgres.site_store import DurableMark, SiteStore
from tests.store.rig import Site
from tests.support.netd_double import NetdDouble
from tests.support.use_cases import RESOLVERS


class Member:
    """One member: its store, its ledger, and the lease that its kernel would have."""

    def __init__(self, store: SiteStore, link: SiteLink, folder: Path) -> None:
        self.netd = NetdDouble()
        self.store = store
        self.link = link
        self.until_ms = 0
        self.renewals = 0
        mark = DurableMark(folder / "site-gated")
        mark.open()
        self.site = SiteMember(
            self.link, clock=clock, renew=self._renew, mark=mark, point=lambda: self.store.point
        )
        self.ledger = Ledger(
            self.store,
            self.netd,
            compile_plan=self._compiled,
            plan_change=lambda before, after, edits: plan_change(
                before, after, edits, RESOLVERS, is_leased=self.site.is_leased
            ),
            site=self.site,
        )
        self.running: asyncio.Task[None] | None = None
        self.is_closed = False

    @classmethod
    def of_site(cls, site: Site, folder: Path, conninfo: str = "") -> Member:
        """Return the member that `site` logs in as, with its replica in `folder`. It connects as
        `site` does, or as `conninfo` says.
        """
        folder.mkdir(parents=True, exist_ok=True)
        store = SiteStore(site.database(conninfo), Database(folder))
        return cls(store, site.link(conninfo), folder)

    def _compiled(self, state: DesiredState) -> Plan:
        return compile_plan(state, RESOLVERS, is_leased=self.site.is_leased)

    async def _renew(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self.renewals += 1

    @property
    def is_open(self) -> bool:
        """True if its kernel lets clients through."""
        return not self.netd.plan.is_leased or clock() * 1000 < self.until_ms

    async def start(self) -> None:
        await self.store.open()
        await self.ledger.load()
        await self.ledger.resync()
        self.running = asyncio.create_task(self.site.run(self.ledger))

    async def die(self) -> None:
        """Stop beating and following, as a power loss would."""
        assert self.running is not None
        self.running.cancel()
        await asyncio.wait({self.running})

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.running is not None:
            await self.die()
        await self.ledger.close()
        await self.link.close()
        await self.store.close()

    async def put(self, key: int, target: str = "DIRECT") -> tuple[Sentence, ...]:
        """Make a rule; return the notes of the answer."""
        rule = Rule(id=key, ip=f"10.0.{key >> 8}.{key & 255}/32", target_node=target)

        def build(_: DesiredState) -> Proposal[None]:
            return Proposal([Edit("rules", key, rule)], None)

        return (await self.ledger.change(build)).notes


def clock() -> float:
    """Return CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not condition():  # noqa: ASYNC110 - it depends on clocks too
        await asyncio.sleep(0.02)


def is_paired(member: Member) -> bool:
    """True if it lets clients through by a lease."""
    return member.netd.plan.is_leased and member.is_open and member.ledger.phase != "restoring"


@asynccontextmanager
async def paired(a: Member, b: Member) -> AsyncIterator[None]:
    """Have both members run, each with a lease, for the block."""
    async with AsyncExitStack() as opened:
        for member in (a, b):
            opened.push_async_callback(member.close)
            await member.start()
        for member in (a, b):
            await until(partial(is_paired, member))
        await until(lambda: not any(seen.is_ungated for seen in b.site.members))
        yield
