"""The order in which lines use their secrets for one server."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address

from egressd.netd.lines.shared_secrets import SharedSecrets

SERVER, OTHER = IPv4Address("203.0.113.9"), IPv4Address("203.0.113.10")


class Users:
    """Users of secrets, each of which goes on until it is let go."""

    def __init__(self) -> None:
        self.using: list[str] = []
        self._secrets = SharedSecrets()
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, secret: str, server: IPv4Address = SERVER) -> None:
        """Have one use a secret, as soon as it may."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._use(name, secret, server))
        await settle()

    async def go(self, name: str) -> None:
        """Have one be done with it."""
        self._ends[name].set()
        await settle()

    async def give_up(self, name: str) -> None:
        """Have one no longer wait."""
        self._tasks[name].cancel()
        await settle()

    async def _use(self, name: str, secret: str, server: IPv4Address) -> None:
        async with self._secrets.lent(server, secret):
            self.using.append(name)
            await self._ends[name].wait()
            self.using.remove(name)


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_secret_is_used_at_a_time() -> None:
    users = Users()
    await users.come("a", "one")
    await users.come("b", "one")
    await users.come("c", "two")
    await users.come("elsewhere", "two", OTHER)
    assert users.using == ["a", "b", "elsewhere"]
    await users.go("a")
    assert users.using == ["b", "elsewhere"]
    await users.go("b")
    assert users.using == ["elsewhere", "c"]


async def test_a_waiting_line_is_not_passed_by_later_ones() -> None:
    users = Users()
    await users.come("a", "one")
    await users.come("waits", "two")
    await users.come("b", "one")
    await users.come("c", "two")
    assert users.using == ["a"]
    await users.go("a")
    assert users.using == ["waits"]
    await users.go("waits")
    assert users.using == ["b"]
    await users.go("b")
    assert users.using == ["c"]


async def test_a_line_that_has_given_up_waiting_delays_no_other() -> None:
    users = Users()
    await users.come("a", "one")
    await users.come("waits", "two")
    await users.come("b", "one")
    await users.give_up("waits")
    assert users.using == ["a", "b"]
    await users.go("a")
    await users.go("b")
    await users.come("c", "two")
    assert users.using == ["c"]
