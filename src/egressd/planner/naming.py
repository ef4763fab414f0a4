"""The part of a sing-box document that says who is asked for names, and what clients are told.

Clients have no way out over IPv6: an IPv6 address would only make them wait. A question for one is
answered as for a name that has IPv4 addresses alone (RFC 2308, 2.2), and only then: that a name
does not exist, or has neither, is said by whoever knows, with the SOA record that lets it be
remembered. Nothing is taken from what a client that checks signatures asks for (RFC 3225).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_PATIENCE_MS: Final = 3000
"""Until the last of them is asked. Clients wait 5 s for an answer (resolv.conf(5))."""

_NEGATIVE_TTL_S: Final = 300
"""How long a client may remember that a name has no IPv6 address."""

ASKING: Final = {
    # Nothing is asked again where a packet is lost, and who asks for the same name meanwhile waits
    # for that answer: the engine's 10 s would outlast both questions of resolv.conf(5).
    "timeout": "4s",
    # What has just run out does until it is known anew (RFC 8767).
    "optimistic": {"enabled": True, "timeout": "30s"},
}
"""How every instance asks for names."""

_NO_IPV6: Final = {
    "type": "logical",
    "mode": "and",
    "rules": [
        {"query_type": ["AAAA"], "match_response": True, "ip_accept_any": True},
        {"query_dnssec": True, "invert": True},
    ],
    "action": "predefined",
    # The engine puts the name that was asked for in place of the asterisk.
    "ns": [f"*. {_NEGATIVE_TTL_S} IN SOA . . 1 3600 600 86400 {_NEGATIVE_TTL_S}"],
}
"""The rule that withholds IPv6 addresses that have been found."""


def resolver(tag: str, server: str, mark: int) -> dict[str, Any]:
    """A resolver that is asked by the way of `mark`."""
    return {"tag": tag, "type": "udp", "server": server, "routing_mark": mark}


def dialled_by(tag: str, strategy: str = "ipv4_only") -> dict[str, Any]:
    """The resolver of what the engine dials itself, and which addresses it is asked for."""
    return {"server": tag, "strategy": strategy}


def one(tag: str, **those: Any) -> Iterator[dict[str, Any]]:
    """The rules that have the last resolver asked, of `those` questions, where it is what the
    document ends with."""
    asked = {**those, "query_type": ["AAAA"]}
    yield {**asked, "action": "evaluate", "server": tag}
    yield _NO_IPV6
    yield {**asked, "action": "respond"}


def in_turn(tags: list[str]) -> Iterator[dict[str, Any]]:
    """The rules that ask the first of resolvers and go on where it has nothing to say: the rest
    of resolv.conf(5) is asked then, too. The last one is what the document ends with."""
    *first, last = tags
    for tag in first:
        yield {"action": "evaluate", "server": tag, "timeout": f"{_PATIENCE_MS // len(first)}ms"}
        yield _NO_IPV6
        for code in ("NOERROR", "NXDOMAIN"):
            yield {"match_response": True, "response_rcode": code, "action": "respond"}
    yield from one(last)
