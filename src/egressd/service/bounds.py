"""Sentences about bounds that were reached. Pure.

Each concerns only the client, or the proxy services' client, that reached it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from egressd.model.desired import DesiredState
from egressd.model.messages import Status
from egressd.service.judgement import listed

_WHO: Final = "{who}: "
_OF_A_CLIENT: Final[dict[str, str]] = {
    "connections": (
        "{who}: the bound of {n} connections through nodes is reached: further ones are refused"
    ),
    "sessions": (
        "{who}: the bound of {n} UDP sessions through nodes is reached: further ones are refused"
    ),
    "network_connections": (
        "{who}: the bound of {n} connections through nodes for all addresses of a network without a"
        " rule of their own is reached: further ones are refused"
    ),
    "network_sessions": (
        "{who}: the bound of {n} UDP sessions through nodes for all addresses of a network without"
        " a rule of their own is reached: further ones are refused"
    ),
    "resolver": (
        "{who}: the bound of {n} connections to resolvers is reached: further ones are refused"
    ),
    "questions": "{who}: more than {n} names a second are asked for: the rest gets no answer",
}
"""Kind -> the sentence."""
_OF_A_CALLER: Final[dict[str, str]] = {
    "strangers": (
        "{who}: connections to the proxy service {service} do not sign in: further ones are refused"
    ),
    "guesses": "{who}: too many wrong passwords for proxy services: it has to wait for a minute",
    "api": "{who}: more than {n} new connections a second to the API: the rest has to wait",
    "calls": (
        "{who}: the bound of {n} connections to proxy services is reached: further ones are refused"
    ),
}
_OF_ALL: Final[dict[str, str]] = {
    "service": (
        "many callers of the proxy service {service} do not sign in: from outside, who has not"
        " signed in within ten minutes is refused"
    ),
    "outside": (
        "the bound of {n} connections to proxy services from outside is reached: further ones are"
        " refused"
    ),
}
_PLACE: Final = "{who}"
_ALL: Final = {**_OF_A_CLIENT, **_OF_A_CALLER, **_OF_ALL}

Text = str
"""A sentence with a placeholder for the sources that it is about."""


def told(state: DesiredState, seen: Status) -> dict[Text, list[str]]:
    """Return a sentence for each bound that was reached -> its sources; none if it covers all of
    them.
    """
    found: dict[Text, list[str]] = {}
    for each in seen.reached:
        if (service := _service(state, each.port)) is None:
            continue  # the service was deleted
        text = _ALL[each.kind].format(who=_PLACE, n=each.bound, service=service)
        found.setdefault(text, []).extend(filter(None, [each.source]))
    return found


def sentence(text: Text, sources: Collection[str]) -> str:
    """Return the sentence with the first of the sources that have reached the bound."""
    return text.replace(_PLACE, listed(sources))


def reached_by(client: str, seen: Status, *, is_ruled: bool) -> Iterator[tuple[str, str]]:
    """Yield the kind of each bound that a client of nodes, or its network, has reached, and a
    sentence about it. `is_ruled`: True if the client has a rule of its own.
    """
    for each in seen.reached:
        if each.kind in _OF_A_CLIENT and _concerns(each.source, client, is_ruled=is_ruled):
            text = _OF_A_CLIENT[each.kind].removeprefix(_WHO)
            yield each.kind, text.format(n=each.bound)


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
