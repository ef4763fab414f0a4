"""Rotations that a caller follows: a client gets another member of its group, or a node another
address, and the caller learns the new exit.

A node is rotated by a page of its seller's, which is asked through the node itself, or by another
target, and by nothing else. It is done once a page outside sees another address.

A rotation is kept for a while after the request that began it: its exit is asked for meanwhile.
That of a node is on disk, too, before the request is answered. After a restart of the api it goes
on: the page is asked if it cannot have been, and never twice.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.errors import (
    EgressdError,
    Failed,
    Invalid,
    Missing,
    Obstructed,
    TooOften,
    Unfit,
)
from egressd.model.faults import fault
from egressd.model.messages import FetchPage, Status
from egressd.model.names import TargetName
from egressd.model.nouns import Node
from egressd.model.rate_limit import Gcra
from egressd.model.rotations import FollowedRotation, KeptRotation
from egressd.model.source import source_of
from egressd.model.times import utc_seconds
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.planner.compile import group_key
from egressd.service.authorship import current_author
from egressd.service.errand_paths import errand_paths
from egressd.service.exits import AskedExit, Exits
from egressd.service.group_members import member_name
from egressd.service.groups import TargetGroups, target_of_client
from egressd.service.ledger import Ledger
from egressd.service.link_targets import found_target, kept_target, shown_target
from egressd.service.ports import Clock, Netd

log = structlog.get_logger()

ALL: Final = "all"
"""The word for all clients of a group, in place of an address."""
ROTATIONS_MAX: Final = 1024
"""Rotations that are kept; beyond that, the oldest ended ones are forgotten."""
STORED_MAX: Final = 64
"""Rotations of nodes that are kept on disk after their end."""

CHANGE_S: Final = 120.0
"""Seconds that a node may take until it leaves by another address."""
UNASKED_S: Final = 30.0
"""The same for one whose page had no good answer: it may be on its way to another address."""
ASKED_LATE_S: Final = 600.0
"""Seconds after which a rotation whose page could not be asked is not begun any more: the other box
of a pair may have gone on, or the operator."""
LOOK_S: Final = 3.0
"""Seconds between looks at its address."""
_READ_MAX: Final = 65_536
"""Bytes of the page that are taken; they are not looked at."""
_OPERATOR: Final = ""
"""The id in place of a link's token's for rotations without a link."""


class RotationStore(Protocol):
    """The rotations of nodes, over restarts. It raises nothing."""

    async def load(self) -> Sequence[KeptRotation]:
        """Return what was saved last, the oldest first; nothing if that cannot be read."""
        ...

    async def store(self, kept: Sequence[KeptRotation]) -> bool:
        """Replace what is stored; return whether it could be written."""
        ...


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
    """The target that it rotates, as its token keeps it."""


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
    """The use cases of rotations by links, and of nodes. `clock` returns the time in UTC, `now`
    seconds that only grow, and `pause` waits for some; `note` records a change of a kind of thing.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        groups: TargetGroups,
        exits: Exits,
        resolvers: Callable[[], Resolvers],
        *,
        store: RotationStore,
        clock: Clock,
        note: Callable[[ChangeRecord, str], None],
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._groups = groups
        self._exits = exits
        self._store = store
        self._clock = clock
        self._note = note
        self._now = now
        self._pause = pause
        self._resolvers = resolvers
        self._rates = Gcra()
        self._kept: dict[str, KeptRotation] = {}
        """By id, the oldest first."""
        self._changing: dict[int, str] = {}
        """Id of a node that is being rotated -> the id of its rotation."""
        self._interrupted: list[KeptRotation] = []
        """Rotations of an earlier run that have not gone on yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Read what an earlier run has left."""
        self._kept = {each.rotation.id: each for each in await self._store.load()}
        self._interrupted = [each for each in self._kept.values() if each.is_running]
        self._changing = {each.node: each.rotation.id for each in self._interrupted}

    def look(self, seen: Status) -> None:
        """Go on with what an earlier run has left, once this box lets clients through: a box that
        another one stands in for asks no page.
        """
        if seen.state != "running" or not seen.is_active_box:
            return
        interrupted, self._interrupted = self._interrupted, []
        for kept in interrupted:
            self._follow(kept, partial(self._go_on, kept))

    def kept_target(self, target: str) -> str:
        """Return the target of a new link as its token keeps it. Raises Invalid."""
        kept = kept_target(self._ledger.state, target)
        if kept is None:
            raise Invalid(fault("scopes", "rotation-of-nothing", target=target[:200]))
        return kept

    async def view(self, link: RotationLink, source: str) -> LinkView:
        """Return what a link means for a caller at the address `source`. Raises Missing."""
        state, target = self._ledger.state, _existing(self._ledger.state, link)
        client = _own_client(state, target, source)
        member = target.name if target.kind == "node" else ""
        if client:
            with suppress(Failed):
                member = await self._member_of(state, target, client)
        return LinkView(target, client, member, self._exits.address_of(member))

    async def begin(self, link: RotationLink, source: str, client: str | None) -> FollowedRotation:
        """Rotate the node of a link; or a client of its group, or `ALL`. Without a `client` that is
        the one at the address `source`, which the request came from. Raises Invalid, Missing,
        Obstructed, TooOften, Failed.
        """
        state = self._ledger.state
        target = _existing(state, link)
        if target.kind == "node":
            if client:
                raise Invalid(fault("client", "rotation-of-whole-node", name=target.name))
            self._charge(link, target.name)
            return await self._begin_node(link.id, _node_named(state, target.name))
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
            target=str(target),
            client=one or "",
            clients=clients,
            member=member,
            exit_before=self._exits.address_of(before),
            exit_after="",
            reason=NONE,
            began_at=self._clock(),
            ended_at="" if member else self._clock(),
        )
        kept = KeptRotation(owner=link.id, rotation=rotation)
        self._keep(kept)
        if member:
            self._follow(kept, partial(self._ask, rotation))
        return rotation

    async def begin_node(self, node_id: int) -> FollowedRotation:
        """Have a node leave by another address. Raises Invalid, Missing, Obstructed."""
        return await self._begin_node(_OPERATOR, self._node(node_id))

    def get_of_node(self, node_id: int, id_: str) -> FollowedRotation:
        """Return a rotation of a node, however it was begun. Raises Missing."""
        kept = self._kept.get(id_)
        if kept is None or kept.node != node_id or node_id not in self._ledger.state.nodes:
            raise Missing(fault("id", "no-such-rotation"))
        return kept.rotation

    def get(self, link: RotationLink, id_: str) -> FollowedRotation:
        """Return a rotation that the link has begun. Raises Missing."""
        kept = self._kept.get(id_)
        if kept is None or kept.owner != link.id:
            raise Missing(fault("id", "no-such-rotation"))
        return kept.rotation

    async def close(self) -> None:
        """End what is under way; the next run goes on with the rotations of nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin_node(self, owner: str, node: Node) -> FollowedRotation:
        if (running := self._changing.get(node.id)) is not None:
            before = self._kept.get(running)
            if before is not None and before.owner == owner:
                return before.rotation
            raise Obstructed(fault("", "node-changes-already", name=node.name))
        self._page_of(node)  # so that it is refused at once if it has none
        self._record(say("node-asked-to-change", name=node.name), "nodes")
        rotation = FollowedRotation(
            id=secrets.token_hex(8),
            state="running",
            target=node.name,
            client="",
            clients=0,
            member="",
            exit_before=self._exits.address_of(node.name),
            exit_after="",
            reason=NONE,
            began_at=self._clock(),
            ended_at="",
        )
        kept = KeptRotation(owner=owner, node=node.id, rotation=rotation)
        self._keep(kept)
        self._changing[node.id] = rotation.id
        # A caller that goes away meanwhile leaves a rotation that has begun.
        self._follow(kept, partial(self._change, kept))
        await self._save()
        return rotation

    def _page_of(self, node: Node) -> FetchPage:
        """Return the request for a node's page. Raises Invalid."""
        if not node.change_ip_url:
            raise Invalid(fault("", "node-without-change", name=node.name))
        via = node.change_ip_via or node.name
        paths = errand_paths(self._ledger.state, via, self._resolvers(), None)
        if not paths:
            raise Invalid(fault("", "via-gone", via=via))
        return FetchPage(paths=tuple(paths), url=node.change_ip_url, read_max=_READ_MAX)

    def _node(self, node_id: int) -> Node:
        """Return a node as it is now: it may be edited while it is rotated. Raises Missing."""
        node = self._ledger.state.nodes.get(node_id)
        if node is None:
            raise Missing(fault("", "no-such-id", thing="node", id=node_id))
        return node

    async def _change(self, kept: KeptRotation) -> FollowedRotation:
        """Ask for another address of a node, and look until it has one. Raises Invalid, Missing."""
        before = (await self._exit_of(kept.node)).ip or kept.rotation.exit_before
        asked = self._page_of(self._node(kept.node))
        rotation = msgspec.structs.replace(kept.rotation, exit_before=before)
        kept = msgspec.structs.replace(kept, is_asked=True, rotation=rotation)
        self._update(kept)
        if not await self._save():
            # After a restart the page would be asked a second time.
            raise Failed("ask the page", "that it was asked cannot be stored; the log says why")
        reason = (await self._netd.fetch_page(asked)).reason
        if not reason:
            return await self._seen(kept, CHANGE_S, is_promised=True)
        ended = await self._seen(kept, UNASKED_S)
        if ended.state == "failed":
            why = say("change-page-failed", reason=reason)
            ended = msgspec.structs.replace(ended, reason=why)
        return ended

    async def _go_on(self, kept: KeptRotation) -> FollowedRotation:
        """Do what an earlier run has not done any more. The answer of a page that it may have asked
        is unknown. Raises Invalid, Missing.
        """
        if kept.is_asked:
            return await self._seen(kept, CHANGE_S)
        if utc_seconds(self._clock()) - utc_seconds(kept.rotation.began_at) > ASKED_LATE_S:
            raise Invalid(fault("", "rotation-too-late"))
        return await self._change(kept)

    async def _exit_of(self, node_id: int) -> AskedExit:
        return await self._exits.ask(self._node(node_id).name)

    async def _seen(
        self, kept: KeptRotation, seconds: float, *, is_promised: bool = False
    ) -> FollowedRotation:
        """Look until a node has another address than before, for some seconds. Without an address
        from before, any is another one if the page's answer `is_promised` to have made it. Raises
        Missing.
        """
        rotation = kept.rotation
        before, until = rotation.exit_before, self._now() + seconds
        while True:
            found = await self._exit_of(kept.node)
            if found.ip and found.ip != before and (before or is_promised):
                return msgspec.structs.replace(rotation, state="done", exit_after=found.ip)
            if self._now() >= until:
                break
            await self._pause(LOOK_S)
        if not found.ip:
            why = found.error
        elif before:
            why = say("exit-unchanged", ip=found.ip, seconds=round(seconds))
        else:
            why = say("exit-before-unknown", ip=found.ip)
        return msgspec.structs.replace(rotation, state="failed", reason=why)

    async def _ask(self, rotation: FollowedRotation) -> FollowedRotation:
        found = await self._exits.ask(rotation.member)
        return msgspec.structs.replace(
            rotation, state="done", exit_after=found.ip, reason=found.error
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
        record = author.record(self._clock(), text)
        self._note(record, subject)

    def _keep(self, kept: KeptRotation) -> None:
        self._kept[kept.rotation.id] = kept
        while len(self._kept) > ROTATIONS_MAX:
            ended = (id_ for id_, each in self._kept.items() if not each.is_running)
            del self._kept[next(ended, next(iter(self._kept)))]

    def _update(self, kept: KeptRotation) -> None:
        """Keep what a rotation has become, unless it is forgotten."""
        if kept.rotation.id in self._kept:
            self._kept[kept.rotation.id] = kept

    async def _save(self) -> bool:
        """Store the rotations of nodes: those that run, and the last ones that have ended. Return
        whether that succeeded.
        """
        of_nodes = [kept for kept in self._kept.values() if kept.node]
        ended = [kept.rotation.id for kept in of_nodes if not kept.is_running]
        old = {*ended[:-STORED_MAX]}
        return await self._store.store([kept for kept in of_nodes if kept.rotation.id not in old])

    def _follow(self, kept: KeptRotation, work: Callable[[], Awaitable[FollowedRotation]]) -> None:
        """Keep what `work` makes of a rotation, once it is done."""

        async def follow() -> None:
            try:
                ended = await work()
            except EgressdError as error:
                reason = error.sentence if isinstance(error, Unfit) else as_sentence(str(error))
                now = self._kept.get(kept.rotation.id, kept).rotation
                ended = msgspec.structs.replace(now, state="failed", reason=reason)
            finally:
                if self._changing.get(kept.node) == kept.rotation.id:
                    del self._changing[kept.node]
            ended = msgspec.structs.replace(ended, ended_at=self._clock())
            self._update(msgspec.structs.replace(kept, rotation=ended))
            if kept.node:
                await self._save()

        task = asyncio.get_running_loop().create_task(follow())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _existing(state: DesiredState, link: RotationLink) -> TargetName:
    target = found_target(state, link.target)
    if target is None:
        raise Missing(fault("", "rotation-gone", target=shown_target(state, link.target)))
    return target


def _node_named(state: DesiredState, name: str) -> Node:
    return state.nodes[state.node_by_name[name]]


def _own_client(state: DesiredState, target: TargetName, source: str) -> str:
    """Return the address of a request's sender if its own rule names the group; else empty."""
    address = source_of(source).address
    return address if target_of_client(state, address) == str(target) else ""
