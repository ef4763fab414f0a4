"""The events of the demonstration, as data: one struct a scene. Shown by `egressd_lab.show`."""

from __future__ import annotations

import msgspec

from egressd_lab.observed import Flow


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` is the duration of the scene; ``ok`` is True if it went as promised."""

    seconds: float = 0.0
    ok: bool = True


class Built(Scene, frozen=True, kw_only=True, tag="built"):
    """The network exists."""

    lab: str
    clients: int
    wans: dict[str, str]
    """WAN name -> the router's address on it."""
    nodes: dict[str, str]
    """Node name -> its address."""


class Control(Scene, frozen=True, kw_only=True, tag="control"):
    """Without egressd the captures see every client leave: they are not blind."""

    seen: int
    clients: int


class Started(Scene, frozen=True, kw_only=True, tag="started"):
    """egressd runs; nodes and rules are in force."""

    rules: int
    nodes: int
    health_seconds: float
    rule_seconds: float
    """The mean seconds of one rule's POST, until it was stored and in force."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """The exit of one client: the addresses that the servers saw, or the reason for no answer."""

    client: str
    address: str
    target: str
    expected: str
    """The address that the servers should see; empty for none."""
    http: str
    udp: str
    dns: str
    error: str
    ok: bool


class Departures(Scene, frozen=True, kw_only=True, tag="departures"):
    """All clients try to get out by HTTP, UDP and DNS."""

    rows: list[Departure]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A download that was in progress. ``trace`` has a letter for each tick: ``#`` if bytes came,
    ``.`` if none came, ``x`` if it had been cut.
    """

    client: str
    target: str
    trace: str
    received: int
    error: str
    longest_pause: float
    is_subject: bool
    """True if the event was about this client."""
    ok: bool


class Event(Scene, frozen=True, kw_only=True):
    """Something happens in the middle of all clients' downloads."""

    client: str
    tick_seconds: float
    event_tick: int
    held: list[Held]


class Change(Event, frozen=True, kw_only=True, tag="change"):
    """One client's rule gets another target."""

    before: str
    after: str
    request_seconds: float
    """Seconds of the PUT, from sending it to its 200."""
    next_seen: str
    """The address seen by the very next request."""


class Outage(Event, frozen=True, kw_only=True, tag="outage"):
    """A node is killed."""

    node: str
    tries: int
    """Number of ways out that its client tried meanwhile."""
    got_out: list[str]
    """The ways out that had an answer: none should have."""
    error_seconds: float
    """Seconds until a new request of its client failed."""
    packets: int
    """Its client's packets anywhere on the internet's side during the outage."""


class Return(Scene, frozen=True, kw_only=True, tag="return"):
    """The node is back."""

    node: str
    client: str
    seen: str
    back_seconds: float
    """Seconds from the node's start until its client's request succeeded."""


class Verdict(Scene, frozen=True, kw_only=True, tag="verdict"):
    """The packets that left by a wrong way."""

    packets: int
    """Packets captured on the internet's side in the whole story."""
    tokens: int
    leaks: list[Flow]


AnyScene = Built | Control | Started | Departures | Change | Outage | Return | Verdict


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All scenes, as ``egressd lab demo --json`` prints them."""

    ok: bool
    seconds: float
    scenes: list[AnyScene]
