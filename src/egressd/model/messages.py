"""What api and netd say to each other over netd's socket.

A frame is a 4-byte big-endian length and a msgpack document. The api sends a `Request`
with a number of its choosing; netd answers with one `Reply` of the same number, and sends
`Event` frames on its own once a connection has asked for them (`Watch`).
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.bounds import DELAY_TIMEOUT_MAX_MS
from egressd.model.forms import Address, Text, Url
from egressd.model.instances import KernelPath, NodePath
from egressd.model.plan import Change, Plan

FRAME_MAX = 64 * 1024 * 1024
"""Bytes in a frame that netd or a worker sends."""
REQUEST_MAX: Final = 16 * 1024 * 1024
"""Bytes in a request: a plan of 50,000 rules and 2,000 nodes takes a quarter of it."""
PROBES_MAX: Final = 1 << 14
"""Nodes that one request measures."""
TRIES_MAX: Final = 16
"""Nodes that one request tries."""
PAGE_MAX: Final = 4096
"""Bytes of a page that are handed back."""
MEASURED_EACH_S = 0.05
"""What measuring one more node takes at most besides its answer, in seconds."""


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question from the api."""


class SetPlan(_Asked, frozen=True, tag="set_plan"):
    """Put a whole plan in force, whatever is in force now. Answered when it is."""

    plan: Plan


class ApplyChange(_Asked, frozen=True, tag="apply_change"):
    """Put a change in force. Refused with ``conflict`` unless its base is in force."""

    change: Change


class Halt(_Asked, frozen=True, tag="halt"):
    """Block every client until the next `SetPlan`: what is wanted is not known any more."""

    reason: Text


class GetStatus(_Asked, frozen=True, tag="get_status"):
    """Ask for a `Status`."""


class Try(_Asked, frozen=True, tag="try"):
    """Start and stop an instance for each path; nothing stays behind. Answered with a `Trial`."""

    paths: Annotated[tuple[NodePath, ...], Meta(max_length=TRIES_MAX)]


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path to measure."""

    name: Text
    path: NodePath | KernelPath
    read_max: Annotated[int, Meta(ge=0, le=PAGE_MAX)] = 0
    """Bytes of the page that are handed back. With 0 only the head is asked for."""


class MeasureDelay(_Asked, frozen=True, tag="measure_delay", kw_only=True):
    """Fetch `url` by each probe's path. Answered with `Delays`."""

    probes: Annotated[tuple[Probe, ...], Meta(max_length=PROBES_MAX)]
    url: Url
    timeout_ms: Annotated[int, Meta(ge=1, le=DELAY_TIMEOUT_MAX_MS)]


class Locate(_Asked, frozen=True, tag="locate"):
    """Ask the kernel where it sends a client now. Answered with `Located`."""

    client: Address


class GetCounters(_Asked, frozen=True, tag="get_counters"):
    """Ask for `Counters`."""


class Watch(_Asked, frozen=True, tag="watch"):
    """Ask for `Event`, `LineNews` and `StatusNews` frames on this connection."""


RequestBody: TypeAlias = (
    SetPlan | ApplyChange | Halt | GetStatus | Try | MeasureDelay | Locate | GetCounters | Watch
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered question from the api."""

    number: int
    body: RequestBody


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is so."""


class Refused(msgspec.Struct, frozen=True, tag="refused", kw_only=True):
    """It could not be done; the state is what it was before.

    ``kind``: ``invalid`` (the request is wrong), ``conflict`` (another revision is in
    force) or ``failed`` (the machine would not).
    """

    kind: str
    action: str
    cause: str


class Trial(msgspec.Struct, frozen=True, tag="trial"):
    """For each path tried, the engine's reason for refusing it, or an empty string."""

    problems: tuple[str, ...]


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """``delay`` in whole milliseconds, or -1 with the reason in ``error``."""

    delay: int
    error: str = ""
    page: bytes = b""
    """What the site sent, as far as the probe wanted it."""


class Delays(msgspec.Struct, frozen=True, tag="delays"):
    """Results by probe name."""

    results: dict[str, Delay]


class Located(msgspec.Struct, frozen=True, tag="located"):
    """The mark that the kernel's tables give a client of a rule; 0 for one without."""

    mark: int
    members: dict[str, str] = {}
    """Group key -> the instance that new flows of this client are sent to, where that is known."""


class RuleCount(msgspec.Struct, frozen=True, array_like=True):
    """The traffic of a rule's clients, in bytes of IP packets and in packets.

    Of limited rules what got through is counted; of others, packets that the network card
    or the kernel had joined to one (GRO) count as one.
    """

    up_bytes: int
    up_packets: int
    down_bytes: int
    down_packets: int


class Counters(msgspec.Struct, frozen=True, tag="counters"):
    """The traffic of each enabled rule by its id, at most a second ago.

    Counted from when the rule was enabled, or the kernel last began anew.
    """

    rules: dict[int, RuleCount]


class InterfaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An interface as an operator sees it. ``ip`` is its first IPv4 address, or empty."""

    name: str
    ip: str
    is_up: bool
    role: str
    """``lan``, ``wan``, ``both`` (one-arm), ``local``, ``line`` or empty."""
    received: int = 0
    sent: int = 0
    """Bytes since the interface was made."""


class LineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a line is doing. ``reason`` says why it is not online, in plain words."""

    is_online: bool
    ip: str = ""
    state: str = "unknown"
    """``online``, or what it is doing or waiting for (``docs/lines.md`` has the list)."""
    reason: str = ""
    next_attempt: str = ""


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An engine instance: the worker that runs it and its port, or why it does not run."""

    worker: int = 0
    port: int = 0
    problem: str = ""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A bound that somebody has reached: what is beyond it is refused, or waits."""

    kind: str
    """Of a LAN client through the engine: ``connections``, ``sessions`` (UDP), ``resolver``
    (connections to one), ``questions`` (for names); of all addresses of a network that have no rule
    of their own: ``network_connections``, ``network_sessions``; of callers of proxy services:
    ``strangers`` (they do not sign in), ``guesses`` (of passwords), ``calls``, ``service`` (many
    that do not sign in), ``outside``; ``api`` (new connections to the API)."""
    source: str = ""
    """Whose it is, an IP address, or a /24 for ``network_sessions``; empty where it is many's."""
    port: int = 0
    """The proxy service's, where it is of one."""
    bound: int = 0
    """How many there may be, where that is one figure."""


class Status(msgspec.Struct, frozen=True, tag="status", kw_only=True):
    """netd's view of the device."""

    state: str
    """``restoring``, ``running`` or ``stopped``."""
    revision: int
    interfaces: tuple[InterfaceStatus, ...] = ()
    lines: dict[str, LineStatus] = {}
    instances: dict[str, InstanceStatus] = {}
    failing: dict[str, str] = {}
    """Key of a node's instance -> why the node failed when it was asked last. Those that serve
    groups are asked all the time, others once connections through them fail."""
    exits: dict[str, str] = {}
    """WAN, interface of the plan or ``DIRECT`` -> why nothing leaves by it; empty while something
    may. VPN lines are in `lines`."""
    dead_ends: dict[str, str] = {}
    """The same, and VPN lines -> why what is open leads nowhere: nothing that is asked answers."""
    nameless: dict[str, str] = {}
    """The same -> why no names are resolved there, though it leads somewhere."""
    unserved: str = ""
    """Why clients are not handed to the engine, which serves nodes and groups; else empty."""
    full: str = ""
    """Why no new connection gets through, whoever opens it; else empty."""
    doubts: tuple[str, ...] = ()
    """Those of the `problems` for which any client may be blocked."""
    reached: tuple[Reached, ...] = ()
    """The bounds that somebody has reached within the last seconds."""
    refused: dict[str, int] = {}
    """Kind of such a bound -> packets beyond it, and ``handshakes`` that were ended, since netd
    began."""
    wans: tuple[str, ...] = ()
    networks: tuple[str, ...] | None = None
    """Networks that clients are taken from; None while that is not known."""
    strangers: int = 0
    """Neighbours in LANs that no rule covers."""
    connections: int = 0
    """Tracked flows of LAN clients."""
    memory: int = 0
    """Resident bytes of netd, the engine workers and the daemons it runs."""
    problems: tuple[str, ...] = ()
    """What netd could not put in force at the moment, in plain words."""


def without_netd(why: str) -> Status:
    """What is known of the device while netd is away."""
    return Status(state="restoring", revision=0, problems=(why,))


class LineNews(msgspec.Struct, frozen=True, tag="line_news"):
    """How each line of the plan is doing, by name: sent after `Watch`, and whenever it changes."""

    lines: dict[str, LineStatus]


class StatusNews(msgspec.Struct, frozen=True, tag="status_news"):
    """The device as it is: sent after `Watch`, and soon after something in it has changed.

    What changes all the time is not in it: usage, and bytes of interfaces.
    """

    status: Status


ReplyBody: TypeAlias = Done | Refused | Trial | Delays | Located | Counters | Status


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The answer to the request of that number."""

    number: int
    body: ReplyBody


class Event(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """Something happened: ``topic`` names what kind, ``subject`` on what, ``text`` says it."""

    topic: str
    subject: str = ""
    text: str = ""


News: TypeAlias = Event | LineNews | StatusNews
"""What netd sends on its own."""
