"""Random changes of every kind, undone in reverse order, give the first state."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from egressd.model.drafts import NodeBatch, RuleBatch
from egressd.model.errors import Unfit
from egressd.model.nouns import GROUP_STRATEGIES, Settings
from egressd.service.group_checks import GroupDraft

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench

pytestmark = pytest.mark.slow

CHANGES: Final = 1000
SEED: Final = 812
RESTORED: Final = 0.005
"""The part of changes that restore a backup: each reads it in a process of its own."""
TAKEN_BACK: Final = (
    "nodes",
    "rules",
    "lines",
    "proxy_services",
    "target_groups",
    "whitelist",
    "settings",
)
NEVER_FALL: Final = {"numbers": "number", "counters": "value"}


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in (*TAKEN_BACK, *NEVER_FALL)
        }


class Operator:
    """Makes random changes."""

    def __init__(self, bench: Bench, make: Make, chance: random.Random) -> None:
        self._bench = bench
        self._make = make
        self._chance = chance
        self._backups: list[bytes] = []

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

    def _comment(self) -> str:
        return self._chance.choice(["", "tv", "phone", "desk"])

    async def change(self) -> None:
        """Make a change; one that is refused, or that changes nothing, is another try's."""
        bench, chance, make = self._bench, self._chance, self._make
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


@pytest.mark.timeout(900)
async def test_undone_changes_give_the_first_state(
    bench: Bench, make: Make, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    operator = Operator(bench, make, chance)
    bench.quota = 100
    path = tmp_path / "data" / "state.db"
    await bench.rules.create(make.rule("10.0.9.9"))
    await bench.add_node("first", group="asia")
    await bench.whitelist.put("example.com", "", "DIRECT")
    await bench.settings.put(Settings(check_interval_s=77))
    first, before = bench.ledger.revision, tables(path)
    steps = {first: bench.state}
    while len(steps) <= CHANGES:
        await operator.change()
        steps[bench.ledger.revision] = bench.state
    assert before != tables(path)
    undo = bench.undo
    made = sorted(steps)
    for revision, previous in zip(made[:0:-1], made[-2::-1], strict=True):
        assert revision == previous + 1
        highest = dict(bench.state.last_ids)
        await undo.undo(revision)
        wanted = steps[previous]
        assert bench.state.nodes == wanted.nodes
        assert bench.state.rules == wanted.rules
        assert bench.state.lines == wanted.lines
        assert bench.state.services == wanted.services
        assert bench.state.groups == wanted.groups
        assert (bench.state.whitelist, bench.state.settings) == (wanted.whitelist, wanted.settings)
        assert all(bench.state.last_ids[name] >= value for name, value in highest.items())
    after = tables(path)
    for name in TAKEN_BACK:
        assert after[name] == before[name], name
    for name in NEVER_FALL:
        here = dict(after[name])
        assert all(here[key] >= value for key, value in before[name])
    await bench.agree()
