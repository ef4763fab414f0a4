"""Rotations that a caller follows: a client gets another member of its group, and the caller learns
the exit that this is.

A rotation is kept for a while after the request that began it, in memory: its exit is asked for
meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import structlog

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState
from egressd.model.errors import EgressdError, Failed, Invalid, Missing, TooOften
from egressd.model.faults import fault
from egressd.model.names import TargetName, parse_target
from egressd.model.rate_limit import Gcra
from egressd.model.source import source_of
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.planner.compile import group_key
from egressd.service.authorship import current_author
from egressd.service.exits import Exits
from egressd.service.group_members import member_name
from egressd.service.groups import TargetGroups, target_of_client
from egressd.service.ledger import Ledger
from egressd.service.ports import Clock, Netd

log = structlog.get_logger()

ALL: Final = "all"
"""The word for all clients of a group, in place of an address."""
ROTATIONS_MAX: Final = 1024
"""Rotations that are kept; beyond that, the oldest are forgotten."""

State: TypeAlias = Literal["running", "done", "failed"]


class LinkRate(NamedTuple):
    """The rate of rotations that one account may ask for."""

    free: int
    """Rotations at once."""
    interval_s: float
    """Seconds until the next one after that."""


OF_CLIENT: Final = LinkRate(3, 10.0)
"""By one link, for one client, or for all of them."""
OF_LINK: Final = LinkRate(60, 1.0)
"""By one link altogether."""


class RotationLink(NamedTuple):
    """A link of the caller."""

    id: str
    """The id of its token."""
    target: str
    """The target that it rotates, as rules name it."""


class FollowedRotation(msgspec.Struct, frozen=True, kw_only=True):
    """A rotation, and what came of it."""

    id: str
    state: State
    target: str
    client: str
    """Empty if it was about no single client."""
    clients: int
    """Clients with a rule of their own that have another member."""
    member: str
    """The new member of the one client, as rules name it; else empty."""
    exit_before: str
    exit_after: str
    """Addresses that far ends see; empty if unknown."""
    error: Sentence
    """The reason for which it failed, or for which the new exit is unknown."""
    began_at: str
    ended_at: str
    """Empty while it runs."""


class LinkView(NamedTuple):
    """The meaning of a link for its caller."""

    target: TargetName
    client: str
    """The caller's own address if it is that of a client of the group, which it rotates; else
    empty."""
    member: str
    """The member that the client has, if known."""
    exit_ip: str
    """The last known exit of that."""


class Rotations:
    """The use cases of rotation links. `clock` returns the time in UTC, `now` seconds that only
    grow; `note` records a change of a kind of thing.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        groups: TargetGroups,
        exits: Exits,
        *,
        clock: Clock,
        note: Callable[[ChangeRecord, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._groups = groups
        self._exits = exits
        self._clock = clock
        self._note = note
        self._now = now
        self._rates = Gcra()
        self._kept: dict[str, tuple[str, FollowedRotation]] = {}
        """Id -> the id of the link's token, and the rotation."""
        self._tasks: set[asyncio.Task[None]] = set()

    def check_target(self, target: str) -> None:
        """Raise Invalid if there is nothing of this name that a link could rotate."""
        if not _is_rotatable(self._ledger.state, parse_target(target)):
            raise Invalid(fault("scopes", "rotation-of-nothing", target=target[:200]))

    async def view(self, link: RotationLink, source: str) -> LinkView:
        """Return what a link means for a caller at the address `source`. Raises Missing."""
        state, target = self._ledger.state, _existing(self._ledger.state, link)
        client = _own_client(state, target, source)
        member = ""
        if client:
            with suppress(Failed):
                member = await self._member_of(state, target, client)
        return LinkView(target, client, member, self._exits.address_of(member))

    async def begin(self, link: RotationLink, source: str, client: str | None) -> FollowedRotation:
        """Rotate a client of the group of a link, or `ALL`. Without a `client` that is the one at
        the address `source`, which the request came from. Raises Invalid, Missing, Obstructed,
        TooOften, Failed.
        """
        state = self._ledger.state
        target = _existing(state, link)
        wanted = client or _own_client(state, target, source)
        if not wanted:
            shown = source_of(source).address
            raise Invalid(fault("client", "rotation-for-whom", address=shown, name=target.name))
        self._charge(link, wanted)
        one = None if wanted == ALL else wanted
        before = "" if one is None else await self._member_of(state, target, one)
        clients, member = await self._groups.rotate(target.name, one)
        self._record(say("group-rotated", n=clients, name=target.name), "groups")
        rotation = FollowedRotation(
            id=secrets.token_hex(8),
            state="running" if member else "done",
            target=link.target,
            client=one or "",
            clients=clients,
            member=member,
            exit_before=self._exits.address_of(before),
            exit_after="",
            error=NONE,
            began_at=self._clock(),
            ended_at="" if member else self._clock(),
        )
        self._keep(link, rotation)
        if member:
            self._follow(link, rotation, self._ask(rotation))
        return rotation

    def get(self, link: RotationLink, id_: str) -> FollowedRotation:
        """Return a rotation that the link has begun. Raises Missing."""
        owner, rotation = self._kept.get(id_, ("", None))
        if rotation is None or owner != link.id:
            raise Missing(fault("id", "no-such-rotation"))
        return rotation

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, rotation: FollowedRotation) -> FollowedRotation:
        found = await self._exits.ask(rotation.member)
        return msgspec.structs.replace(
            rotation, state="done", exit_after=found.ip, error=found.error
        )

    async def _member_of(self, state: DesiredState, target: TargetName, client: str) -> str:
        located = await self._netd.locate(client)
        return member_name(state, located.members.get(group_key(state, str(target)), ""))

    def _charge(self, link: RotationLink, client: str) -> None:
        now = self._now()
        accounts = ((f"{link.id} {client}", OF_CLIENT), (f"{link.id}", OF_LINK))
        wait_s = max(
            self._rates.of(account, now) - (rate.free - 1) * rate.interval_s
            for account, rate in accounts
        )
        if wait_s > 0:
            again_s = math.ceil(wait_s)
            raise TooOften(again_s, fault("", "rotation-too-soon", seconds=again_s))
        for account, rate in accounts:
            self._rates.charge(account, rate.interval_s, now)

    def _record(self, text: Sentence, subject: str) -> None:
        author = current_author()
        record = ChangeRecord(
            at=self._clock(),
            who=author.who,
            source=author.source,
            what=author.what,
            text=text,
            revision=author.revision,
        )
        self._note(record, subject)

    def _keep(self, link: RotationLink, rotation: FollowedRotation) -> None:
        self._kept[rotation.id] = link.id, rotation
        while len(self._kept) > ROTATIONS_MAX:
            del self._kept[next(iter(self._kept))]

    def _follow(
        self,
        link: RotationLink,
        rotation: FollowedRotation,
        work: Coroutine[None, None, FollowedRotation],
    ) -> None:
        """Keep what `work` makes of a rotation, once it is done."""

        async def follow() -> None:
            try:
                ended = await work
            except EgressdError as error:
                reason = as_sentence(str(error))
                ended = msgspec.structs.replace(rotation, state="failed", error=reason)
            if rotation.id in self._kept:
                ended = msgspec.structs.replace(ended, ended_at=self._clock())
                self._kept[rotation.id] = link.id, ended

        task = asyncio.get_running_loop().create_task(follow())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_rotatable(state: DesiredState, target: TargetName) -> bool:
    return target.kind == "group" and state.group_exists(target.name)


def _existing(state: DesiredState, link: RotationLink) -> TargetName:
    target = parse_target(link.target)
    if not _is_rotatable(state, target):
        raise Missing(fault("", "rotation-gone", target=link.target))
    return target


def _own_client(state: DesiredState, target: TargetName, source: str) -> str:
    """Return the address of a request's sender if its own rule names the group; else empty."""
    address = source_of(source).address
    return address if target_of_client(state, address) == str(target) else ""
