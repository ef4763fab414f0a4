"""Sentences about bounds that were reached. Pure.

Each concerns only the client, or the proxy services' client, that reached it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from egressd.model.desired import DesiredState
from egressd.model.messages import Status
from egressd.model.wording import Sentence, say
from egressd.service.judgement import listed

_OF_A_CLIENT: Final = {
    "connections": "bound-connections",
    "sessions": "bound-sessions",
    "network_connections": "bound-network-connections",
    "network_sessions": "bound-network-sessions",
    "resolver": "bound-resolver",
    "questions": "bound-questions",
}
"""Kind -> the code of its sentence."""
_OF_A_CALLER: Final = {
    "strangers": "bound-strangers",
    "guesses": "bound-guesses",
    "api": "bound-api",
    "calls": "bound-calls",
}
_OF_ALL: Final = {"service": "bound-service", "outside": "bound-outside"}
_ALL: Final = {**_OF_A_CLIENT, **_OF_A_CALLER, **_OF_ALL}


def told(state: DesiredState, seen: Status) -> dict[Sentence, list[str]]:
    """Return a sentence for each bound that was reached -> its sources; none if it covers all of
    them.
    """
    found: dict[Sentence, list[str]] = {}
    for each in seen.reached:
        if (service := _service(state, each.port)) is None:
            continue  # the service was deleted
        bound = say(_ALL[each.kind], n=each.bound, service=service)
        found.setdefault(bound, []).extend(filter(None, [each.source]))
    return found


def sentence(bound: Sentence, sources: Collection[str]) -> Sentence:
    """Return the sentence with the first of the sources that have reached the bound."""
    if bound.code in _OF_ALL.values():
        return bound
    return say("bound-of-source", source=listed(sources), bound=bound)


def reached_by(client: str, seen: Status, *, is_ruled: bool) -> Iterator[tuple[str, Sentence]]:
    """Yield the kind of each bound that a client of nodes, or its network, has reached, and a
    sentence about it. `is_ruled`: True if the client has a rule of its own.
    """
    for each in seen.reached:
        if each.kind in _OF_A_CLIENT and _concerns(each.source, client, is_ruled=is_ruled):
            yield each.kind, say(_OF_A_CLIENT[each.kind], n=each.bound)


def _concerns(source: str, client: str, *, is_ruled: bool) -> bool:
    if "/" not in source:
        return source == client
    return not is_ruled and IPv4Address(client) in IPv4Network(source)


def _service(state: DesiredState, port: int) -> str | None:
    """Return the name of the proxy service at a port; None if there is none, empty without a
    port.
    """
    names = {each.port: each.name for each in state.services.values()}
    return names.get(port) if port else ""
