"""The part of a sing-box document that selects resolvers and adapts answers for clients.

Clients have no egress for IPv6: an IPv6 address would only make them wait. A question for one is
answered as for a name that has only IPv4 addresses (RFC 2308, 2.2), but only if the name has IPv6
addresses. Other negative answers come from the resolver, with the SOA record that makes them
cacheable. Answers to clients that validate signatures are left complete (RFC 3225).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_PATIENCE_MS: Final = 3000
"""Milliseconds until the last resolver is asked. Clients wait 5 s for an answer
(resolv.conf(5))."""

_NEGATIVE_TTL_S: Final = 300
"""Seconds for which a client may cache that a name has no IPv6 address."""

ASKING: Final = {
    # The engine does not repeat a lost question, and later clients that ask for the same name wait
    # for that answer: the engine's 10 s would outlast both questions of resolv.conf(5).
    "timeout": "4s",
    # An expired answer is served until it is refreshed (RFC 8767).
    "optimistic": {"enabled": True, "timeout": "30s"},
}
"""DNS options of every instance."""

_NO_IPV6: Final = {
    "type": "logical",
    "mode": "and",
    "rules": [
        {"query_type": ["AAAA"], "match_response": True, "ip_accept_any": True},
        {"query_dnssec": True, "invert": True},
    ],
    "action": "predefined",
    # The engine replaces the asterisk with the name in the question.
    "ns": [f"*. {_NEGATIVE_TTL_S} IN SOA . . 1 3600 600 86400 {_NEGATIVE_TTL_S}"],
}
"""The rule that withholds IPv6 addresses that have been found."""


def resolver(tag: str, server: str, mark: int) -> dict[str, Any]:
    """Return a resolver that is asked by the egress of `mark`."""
    return {"tag": tag, "type": "udp", "server": server, "routing_mark": mark}


def dialled_by(tag: str, strategy: str = "ipv4_only") -> dict[str, Any]:
    """Return the resolver for names that the engine dials itself, and the kinds of address
    wanted.
    """
    return {"server": tag, "strategy": strategy}


def one(tag: str, **those: Any) -> Iterator[dict[str, Any]]:
    """Yield the rules that ask the document's last resolver the questions matching `those`."""
    asked = {**those, "query_type": ["AAAA"]}
    yield {**asked, "action": "evaluate", "server": tag}
    yield _NO_IPV6
    yield {**asked, "action": "respond"}


def in_turn(tags: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rules that ask resolvers in turn, going on if one has no answer, as the rest of
    resolv.conf(5) is used then, too. The last resolver is the document's final one."""
    *first, last = tags
    for tag in first:
        yield {"action": "evaluate", "server": tag, "timeout": f"{_PATIENCE_MS // len(first)}ms"}
        yield _NO_IPV6
        for code in ("NOERROR", "NXDOMAIN"):
            yield {"match_response": True, "response_rcode": code, "action": "respond"}
    yield from one(last)
