"""Explanations of the path of traffic, and probes that prove them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final

from egressd.model.delays import Delay
from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.errors import Failed, Invalid
from egressd.model.exits import EXIT_URL
from egressd.model.faults import fault
from egressd.model.messages import PAGE_MAX, Located, Probe
from egressd.model.names import parse_target
from egressd.model.wording import Coded, Coding, Sentence, say
from egressd.planner.compile import group_key
from egressd.planner.probes import target_paths
from egressd.planner.targets import mark_of
from egressd.service import checks
from egressd.service.group_members import member_name
from egressd.service.judge import Judge
from egressd.service.ledger import Ledger
from egressd.service.ports import Netd
from egressd.service.route_explanation import Explanation, Question, covering, explain
from egressd.service.system import seen_by

PROBE_TIMEOUT_MS: Final = 8000
WAYS_MAX: Final = 16
"""Nodes of a group that are tried."""

_ADDRESS: Final = re.compile(rb"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")


class PathAnswer(Coding, frozen=True, kw_only=True):
    """The result of a request by one path: a node, or the target itself.

    ``delay`` is whole milliseconds, or -1 with the reason in ``error``.
    """

    name: str
    exit_ip: str
    delay: int
    error: Sentence
    error_coded: Coded | None = None


class Proof(Coding, frozen=True, kw_only=True):
    """The result of a request on a client's path.

    ``exit_ip``, ``delay`` and ``error`` are those of ``way``. If that is unknown, the delay and the
    error are the fastest path's, and the address is set only if all paths that answer have the
    same.
    """

    target: str
    url: str
    in_force: bool
    """True if the kernel's tables now send this client's address to its rule's target."""
    way: str
    """The name of the path that the client's new connections take; empty if unknown."""
    exit_ip: str
    """The address that the page saw; empty if the page has none, or if it is not certain."""
    delay: int
    error: Sentence
    error_coded: Coded | None = None
    ways: tuple[PathAnswer, ...]
    """All paths that were tried, the fastest first."""


class Why:
    """Answers for single clients and destinations."""

    def __init__(
        self, ledger: Ledger, netd: Netd, resolvers: Callable[[], Resolvers], judge: Judge
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._resolvers = resolvers
        self._judge = judge

    async def explain(self, asked: Question) -> Explanation:
        """Return the explanation of the traffic. Without netd, by the configuration alone."""
        seen = await seen_by(self._netd)
        self._judge.take(seen)
        state = self._ledger.state
        member = ""
        if (target := _group_of(state, asked.client)) in state.numbers:
            with suppress(Failed):
                located = await self._netd.locate(asked.client)
                member = located.members.get(group_key(state, target), "")
        resolvers, since = self._resolvers(), self._judge.since
        return explain(asked, state, resolvers, seen, since=since, member=member)

    async def prove(self, asked: Question, url: str | None) -> Proof:
        """Fetch `url` by the path of the client's traffic to the destination.

        The request is this device's own, made by an engine instance like the target's, with the
        same hops, marks and routes; the client itself differs only in that the kernel assigns its
        address to that target, which is looked up there (``in_force``). Raises Invalid if the
        client is blocked or `url` is invalid, Failed without netd.
        """
        url = EXIT_URL if url is None else url
        checks.refuse(checks.url("url", url))
        state = self._ledger.state
        told = explain(asked, state, self._resolvers(), await seen_by(self._netd))
        paths = target_paths(state, parse_target(told.target), self._resolvers())
        if (told.is_blocked and not told.problem) or not paths:
            reason = told.reason or say("target-blocks")
            raise Invalid(fault("", "no-way-to-try", reason=reason))
        located = await self._netd.locate(asked.client)
        taken = _way_taken(state, told, located) or (next(iter(paths)) if len(paths) == 1 else "")
        names = sorted(paths, key=lambda name: name != taken)[:WAYS_MAX]
        probes = [Probe(name=n, path=paths[n], read_max=PAGE_MAX) for n in names]
        found = await self._netd.delays(probes, url, PROBE_TIMEOUT_MS)
        ways = sorted(
            (_way(probe.name, found[probe.name]) for probe in probes),
            key=lambda way: (way.delay < 0, way.delay),
        )
        way = next((way for way in ways if way.name == taken), None)
        seen = {way.exit_ip for way in ways if way.delay >= 0}
        is_same = len(seen) == 1 and len(ways) == len(paths)
        return Proof(
            target=told.target,
            url=url,
            in_force=located.mark == _expected_mark(state, told),
            way="" if way is None else way.name,
            exit_ip=way.exit_ip if way is not None else seen.pop() if is_same else "",
            delay=(way or ways[0]).delay,
            error=(way or ways[0]).error,
            ways=tuple(ways),
        )


def _group_of(state: DesiredState, client: str) -> str:
    """Return the target of a client's rule if it is a group; else empty."""
    rules = covering(state, client)
    target = rules[0].target_node if rules else ""
    return target if parse_target(target).kind == "group" else ""


def _way(name: str, found: Delay) -> PathAnswer:
    return PathAnswer(
        name=name, exit_ip=_address_in(found.page), delay=found.delay, error=found.error
    )


def _address_in(page: bytes) -> str:
    """Return the first IPv4 address in the text of a page."""
    for match in _ADDRESS.finditer(page):
        try:
            return str(IPv4Address(match[0].decode()))
        except ValueError:
            continue
    return ""


def _way_taken(state: DesiredState, told: Explanation, located: Located) -> str:
    """Return the member that a group sends the client's new connections to, if netd knows it."""
    # Clients without a rule have an engine instance of their own, which chooses by itself; listed
    # traffic may come from an engine, not from the client.
    if told.rule is None or told.target != told.rule.target_node:
        return ""
    if parse_target(told.target).kind != "group":
        return ""
    return member_name(state, located.members.get(group_key(state, told.target), ""))


def _expected_mark(state: DesiredState, told: Explanation) -> int:
    """Return the mark that the client's rule gives it; 0 for a client without one."""
    return 0 if told.rule is None else mark_of(state, told.rule.target_node)
