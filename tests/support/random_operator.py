"""An operator who makes random changes of every kind, and takes all of them back."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from egressd.model.alerts import ALERTS
from egressd.model.drafts import NodeBatch, RuleBatch
from egressd.model.errors import Unfit
from egressd.model.nouns import GROUP_STRATEGIES, AlertPolicy, Settings
from egressd.service.alerts import Alerts, ChannelDraft
from egressd.service.group_checks import GroupDraft
from egressd.service.subscription_checks import SubscriptionDraft
from egressd.service.subscriptions import Subscriptions
from tests.support.drafts import Make
from tests.support.use_cases import RESOLVERS, Bench, MemoryAlerts, MemoryFetches

RESTORED: Final = 0.005
"""The part of changes that restore a backup: each reads it in a process of its own."""
TAKEN_BACK: Final = (
    "nodes",
    "rules",
    "lines",
    "proxy_services",
    "target_groups",
    "alert_channels",
    "subscriptions",
    "whitelist",
    "settings",
)
"""Tables that are as they were once all changes are undone."""
NEVER_FALL: Final = {"numbers": "number", "counters": "value"}
"""Tables of numbers that no other object gets."""
_OBJECTS: Final = (
    "nodes",
    "rules",
    "lines",
    "services",
    "groups",
    "alert_channels",
    "subscriptions",
)


def tables(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a device's database, or of a member's copy of the site's."""
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in (*TAKEN_BACK, *NEVER_FALL)
        }


class RandomOperator:
    """Makes random changes."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self._bench = bench
        self._make = Make()
        self._chance = random.Random(seed)
        self._backups: list[bytes] = []
        self._alerts = Alerts(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            record=MemoryAlerts(),
            clock=bench.clock,
            problems=lambda: (),
            inner=lambda _: (),
            host="gw1",
        )
        self._subscriptions = Subscriptions(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            store=MemoryFetches(),
            clock=bench.clock,
            around=lambda: bench.around,
            notify=lambda _: None,
            note=lambda *_: None,
        )

    def _any(self, table: str) -> int:
        keys = sorted(getattr(self._bench.state, table))
        return self._chance.choice(keys) if keys else 1

    def _ip(self) -> str:
        return f"10.0.{self._chance.randrange(3)}.{self._chance.randrange(1, 30)}"

    def _target(self) -> str:
        names = sorted(self._bench.state.node_by_name)
        state = self._bench.state
        groups = [f"Group_{n}" for n in sorted({*state.group_sizes, *state.group_by_name})]
        return self._chance.choice(["DIRECT", "REJECT", "Interface:wan1", *names, *groups])

    def _way(self) -> str:
        """Return a target that lets something out."""
        target = self._target()
        return "DIRECT" if target == "REJECT" else target

    def _node(self) -> Any:
        number = self._chance.randrange(20)
        return self._make.node(
            f"node-{number}",
            group=self._chance.choice(["", "asia", "europe", f"group{number}"]),
            password="x" * self._chance.choice([3, 30, 600]),
            username="u",
        )

    def _group(self) -> tuple[str, GroupDraft]:
        members = (self._target() for _ in range(self._chance.randrange(4)))
        draft = GroupDraft(
            strategy=self._chance.choice(GROUP_STRATEGIES),
            members=tuple(dict.fromkeys(each for each in members if each != "REJECT")),
            filter=self._chance.choice(["", "1$"]),
            failback_min=self._chance.randrange(-1, 5),
        )
        return self._chance.choice(["asia", "europe", "office", "home"]), draft

    def _line(self) -> Any:
        kind = self._chance.choice(["l2tp", "pptp"])
        return self._make.line(f"{kind}_{self._chance.randrange(6)}", comment=self._comment())

    def _named_line(self) -> tuple[str, str]:
        lines = sorted((line.type, line.name) for line in self._bench.state.lines.values())
        return self._chance.choice(lines or [("l2tp", "l2tp_1")])

    def _service(self) -> Any:
        number = self._chance.randrange(8)
        return self._make.service(f"service{number}", port=8080 + number, password=self._comment())

    def _channel(self) -> ChannelDraft:
        number = self._chance.randrange(6)
        url = f"ntfys://ntfy.example.org/{self._chance.randrange(3)}"
        return ChannelDraft(name=f"channel{number}", url=url, via=self._way())

    def _policy(self) -> AlertPolicy:
        return AlertPolicy(
            on=(self._chance.choice(sorted(ALERTS)),),
            for_s=self._chance.randrange(100),
            channels=tuple(self._bench.state.alert_channels)[:1],
        )

    def _subscription(self) -> SubscriptionDraft:
        return SubscriptionDraft(
            name=f"list{self._chance.randrange(6)}",
            url=f"https://lists.example.org/{self._chance.randrange(3)}",
            group=self._chance.choice(["asia", "europe"]),
            via=self._way(),
        )

    def _comment(self) -> str:
        return self._chance.choice(["", "tv", "phone", "desk"])

    async def change(self) -> None:
        """Make a change; one that is refused, or that changes nothing, is another try's."""
        bench, chance, make = self._bench, self._chance, self._make
        alerts, subscriptions = self._alerts, self._subscriptions
        ip = self._ip()
        kinds: list[Callable[[], Awaitable[Any]]] = [
            lambda: bench.rules.create(make.rule(ip, self._target())),
            lambda: bench.rules.replace(
                self._any("rules"), make.rule(ip, self._target(), comment=self._comment())
            ),
            lambda: bench.rules.set_enabled(self._any("rules"), chance.random() < 0.5),
            lambda: bench.rules.delete(self._any("rules")),
            lambda: bench.rules.delete_many([self._ip() for _ in range(3)]),
            lambda: bench.rules.update_many(
                RuleBatch(ips=tuple(self._ip() for _ in range(9)), target_node=self._target())
            ),
            lambda: bench.rules.import_rows(
                "\n".join(f"{self._ip()},{self._target()}" for _ in range(5)),
                replace=chance.random() < 0.2,
            ),
            lambda: bench.nodes.create(self._node()),
            lambda: bench.nodes.replace(self._any("nodes"), self._node()),
            lambda: bench.nodes.delete(self._any("nodes")),
            lambda: bench.nodes.update_many(
                NodeBatch(ids=(self._any("nodes"), self._any("nodes")), group=self._comment())
            ),
            lambda: bench.groups.create(*self._group()),
            lambda: bench.groups.put(*self._group()),
            lambda: bench.groups.delete(self._group()[0]),
            lambda: bench.lines.create(self._line()),
            lambda: bench.lines.replace(*self._named_line(), self._line()),
            lambda: bench.lines.set_enabled_many([self._named_line()], chance.random() < 0.5),
            lambda: bench.lines.delete_many([self._named_line()]),
            lambda: bench.services.create(self._service()),
            lambda: bench.services.replace(self._any("services"), self._service()),
            lambda: bench.services.delete(self._any("services")),
            lambda: alerts.create(self._channel()),
            lambda: alerts.revise(self._any("alert_channels"), {"via": self._way()}),
            lambda: alerts.delete(self._any("alert_channels")),
            lambda: alerts.put_policy(self._policy()),
            lambda: subscriptions.create(self._subscription()),
            lambda: subscriptions.revise(self._any("subscriptions"), {"group": self._comment()}),
            lambda: subscriptions.delete(
                self._any("subscriptions"), with_nodes=chance.random() < 0.5
            ),
            lambda: bench.whitelist.put(
                "\n".join(f"{n}.example.com" for n in range(chance.randrange(40))), "", "DIRECT"
            ),
            lambda: bench.whitelist.amend([f"{self._comment()}x.example.net"], ["1.example.com"]),
            lambda: bench.settings.put(
                Settings(check_interval_s=chance.randrange(5, 60), unmanaged=self._target())
            ),
            chance.choice([bench.settings.stop, bench.settings.start, bench.settings.open]),
        ]
        if chance.random() < RESTORED:
            kinds = [self._restore]
        with suppress(Unfit):
            await chance.choice(kinds)()

    async def _restore(self) -> None:
        with await self._bench.backups.export() as file:
            self._backups.append(file.read())

        async def chosen() -> AsyncIterator[bytes]:
            yield self._chance.choice(self._backups)

        await self._bench.backups.restore(chosen())


async def check_undoing(bench: Bench, folder: Path, *, changes: int, seed: int) -> None:
    """Make random changes of a device whose database is in `folder`, undo them in reverse order,
    and check that each one gives the state before it, and the last one the first rows, ids
    included.
    """
    operator = RandomOperator(bench, seed)
    make = Make()
    bench.quota = 100
    await bench.rules.create(make.rule("10.0.9.9"))
    await bench.add_node("first", group="asia")
    await bench.whitelist.put("example.com", "", "DIRECT")
    await bench.settings.put(Settings(check_interval_s=77))
    first, before = bench.ledger.revision, tables(folder)
    steps = {first: bench.state}
    while len(steps) <= changes:
        await operator.change()
        steps[bench.ledger.revision] = bench.state
    assert before != tables(folder)
    made = sorted(steps)
    for revision, previous in zip(made[:0:-1], made[-2::-1], strict=True):
        assert revision == previous + 1
        highest = dict(bench.state.last_ids)
        await bench.undo.undo(revision)
        wanted = steps[previous]
        for name in _OBJECTS:
            assert getattr(bench.state, name) == getattr(wanted, name), name
        assert (bench.state.whitelist, bench.state.settings) == (wanted.whitelist, wanted.settings)
        assert all(bench.state.last_ids[name] >= value for name, value in highest.items())
    after = tables(folder)
    for name in TAKEN_BACK:
        assert after[name] == before[name], name
    for name in NEVER_FALL:
        here = dict(after[name])
        assert all(here[key] >= value for key, value in before[name])
    await bench.agree()
