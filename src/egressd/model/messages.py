"""The messages between api and netd over netd's socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.bounds import DELAY_TIMEOUT_MAX_MS, PAGE_READ_MAX
from egressd.model.connections import TrackedConnection
from egressd.model.delays import Delay
from egressd.model.findings import MachineFinding
from egressd.model.forms import (
    Address,
    AlertUrl,
    FieldName,
    FieldText,
    Number,
    PageUrl,
    Text,
    Url,
)
from egressd.model.instances import KernelPath, NodePath
from egressd.model.pair import PairRole
from egressd.model.plan import Change, Plan
from egressd.model.wording import NONE, Sentence

REQUEST_MAX: Final = 16 * 1024 * 1024
"""Bytes in a request: a plan of 50,000 rules and 2,000 nodes takes a quarter of it."""
PROBES_MAX: Final = 1 << 14
"""Nodes that one request measures."""
TRIES_MAX: Final = 16
"""Nodes that one request tries."""
WAYS_MAX: Final = 4
"""Paths of one message: nodes of a group, of which the first that leads there is taken."""
ALERT_BODY_MAX: Final = 8000
"""Characters of a message."""
HEADERS_MAX: Final = 32
"""Fields of the head of a page's request, and of its response."""
GroupKey: TypeAlias = Annotated[str, Meta(max_length=16, pattern=r"\Agroup:[0-9]{1,10}\Z")]
PAGE_MAX: Final = 4096
"""Bytes of a page that are handed back."""
MEASURED_EACH_S = 0.05
"""Seconds that measuring one more node takes at most, its answer excluded."""


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request body from the api."""


class SetPlan(_Asked, frozen=True, tag="set_plan"):
    """Put a whole plan in force, regardless of the plan in force now. Answered when it is in
    force.
    """

    plan: Plan


class ApplyChange(_Asked, frozen=True, tag="apply_change"):
    """Put a change in force. Refused with ``conflict`` unless its base is in force."""

    change: Change
    is_strict: bool = True
    """True if an instance that will not start fails the change; else only its own clients are
    blocked."""


class Halt(_Asked, frozen=True, tag="halt"):
    """Block every client until the next `SetPlan`: the desired state is unknown."""

    reason: Text


class RenewLease(_Asked, frozen=True, tag="renew_lease"):
    """Let clients through until `until_ms`, in milliseconds of CLOCK_BOOTTIME, if the plan in force
    is leased. It must be to come, and at most ten seconds ahead.
    """

    until_ms: Number


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
    """Bytes of the page that are handed back. With 0 only the head is requested."""


class MeasureDelay(_Asked, frozen=True, tag="measure_delay", kw_only=True):
    """Fetch `url` by each probe's path. Answered with `Delays`."""

    probes: Annotated[tuple[Probe, ...], Meta(max_length=PROBES_MAX)]
    url: Url
    timeout_ms: Annotated[int, Meta(ge=1, le=DELAY_TIMEOUT_MAX_MS)]


class SendAlert(_Asked, frozen=True, tag="send_alert", kw_only=True):
    """Send a message to the service of `url`, by the first of `paths` that leads there. Answered
    with `AlertEnded`.
    """

    paths: Annotated[tuple[NodePath | KernelPath, ...], Meta(min_length=1, max_length=WAYS_MAX)]
    url: AlertUrl
    title: Text
    body: Annotated[str, Meta(max_length=ALERT_BODY_MAX)]

    def __repr__(self) -> str:
        """Return a text without the URL, which is a secret."""
        return f"SendAlert(title={self.title!r})"


class FetchPage(_Asked, frozen=True, tag="fetch_page", kw_only=True):
    """Fetch a page by the first of `paths` that leads there. Answered with `PageFetched`."""

    paths: Annotated[tuple[NodePath | KernelPath, ...], Meta(min_length=1, max_length=WAYS_MAX)]
    url: PageUrl
    headers: Annotated[dict[FieldName, FieldText], Meta(max_length=HEADERS_MAX)] = {}
    """Fields of the request's head, which go to the host of `url` alone."""
    fields: Annotated[tuple[FieldName, ...], Meta(max_length=HEADERS_MAX)] = ()
    """Names of the fields of the response's head to return, in lower case."""
    read_max: Annotated[int, Meta(ge=1, le=PAGE_READ_MAX)]

    def __repr__(self) -> str:
        """Return a text without the URL and the fields, which are secrets."""
        return f"FetchPage(paths={len(self.paths)})"


class Locate(_Asked, frozen=True, tag="locate"):
    """Ask the kernel for the current path of a client. Answered with `Located`."""

    client: Address


class Rotate(_Asked, frozen=True, tag="rotate", kw_only=True):
    """Give a client of a group another member, or all of its clients. Answered with `Rotated`."""

    group: GroupKey
    client: Address | None = None


class ListConnections(_Asked, frozen=True, tag="list_connections"):
    """Ask for the live connections of a client. Answered with `ConnectionsListed`."""

    client: Address


class CloseConnections(_Asked, frozen=True, tag="close_connections"):
    """Close a client's connection of that number, or all of them. Answered with
    `ConnectionsClosed`.
    """

    client: Address
    wanted: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] | None = None


class GetCounters(_Asked, frozen=True, tag="get_counters"):
    """Ask for `Counters`."""


class CheckSystem(_Asked, frozen=True, tag="check_system"):
    """Look for what kernel and system lack. Answered with `SystemChecked`."""


class Watch(_Asked, frozen=True, tag="watch"):
    """Ask for `Event`, `LineNews` and `StatusNews` frames on this connection."""


class WatchDevices(_Asked, frozen=True, tag="watch_devices"):
    """Ask for `DeviceNews` frames on this connection."""


RequestBody: TypeAlias = (
    SetPlan
    | ApplyChange
    | Halt
    | RenewLease
    | GetStatus
    | Try
    | MeasureDelay
    | SendAlert
    | FetchPage
    | Locate
    | Rotate
    | ListConnections
    | CloseConnections
    | GetCounters
    | CheckSystem
    | Watch
    | WatchDevices
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered request from the api."""

    number: int
    body: RequestBody


class Done(msgspec.Struct, frozen=True, tag="done", kw_only=True, omit_defaults=True):
    """The request was carried out.

    ``epoch`` is the one that the whitelist of a `SetPlan` was given; 0 in other answers.
    """

    epoch: int = 0


class Rotated(msgspec.Struct, frozen=True, tag="rotated"):
    """New connections of clients go by other members of their group."""

    clients: int
    """Clients with a rule of their own that have another member."""
    member: str
    """The key of the new member of one client; empty if it was not about one, or if it has none."""


class Refused(msgspec.Struct, frozen=True, tag="refused", kw_only=True):
    """The request could not be carried out; the state is what it was before.

    ``kind``: ``invalid`` (the request is wrong), ``conflict`` (another revision is in force) or
    ``failed`` (the machine refused).
    """

    kind: str
    action: str
    cause: str


class Trial(msgspec.Struct, frozen=True, tag="trial"):
    """For each path tried, the engine's reason for refusing it, or an empty string."""

    problems: tuple[Sentence, ...]


class Delays(msgspec.Struct, frozen=True, tag="delays"):
    """Results by probe name."""

    results: dict[str, Delay]


class AlertEnded(msgspec.Struct, frozen=True, tag="alert_ended"):
    """The end of a message; `problem` is the reason why it was not sent, empty if it was."""

    problem: Sentence = NONE


class PageFetched(msgspec.Struct, frozen=True, tag="page_fetched", kw_only=True):
    """A page, and the fields that its response had; or the reason why it was not fetched."""

    reason: Sentence = NONE
    fields: dict[str, str] = {}
    content: bytes = b""


class Located(msgspec.Struct, frozen=True, tag="located"):
    """The mark that the kernel's tables give a client of a rule; 0 for a client without one."""

    mark: int
    members: dict[str, str] = {}
    """Group key -> the instance that new flows of this client are sent to, if known."""


class ConnectionsListed(msgspec.Struct, frozen=True, tag="connections_listed"):
    """The live connections of a client: their number, and the first of them."""

    total: int
    first: tuple[TrackedConnection, ...]


class ConnectionsClosed(msgspec.Struct, frozen=True, tag="connections_closed"):
    """The number of connections that were closed, and of those that were too many for one call."""

    closed: int
    left: int


class RuleCount(msgspec.Struct, frozen=True, array_like=True):
    """The traffic of a rule's clients, in bytes of IP packets and in packets.

    For rules with limits, packets that passed the limit are counted. For other rules, packets that
    the network card or the kernel had joined to one (GRO) count as one.
    """

    up_bytes: int
    up_packets: int
    down_bytes: int
    down_packets: int


class Counters(msgspec.Struct, frozen=True, tag="counters"):
    """The traffic of each enabled rule by its id, at most a second old.

    Counting begins when the rule is enabled, and again when the kernel's tables are rebuilt.
    """

    rules: dict[int, RuleCount]


class SystemChecked(msgspec.Struct, frozen=True, tag="system_checked"):
    """The findings about kernel and system, in no order."""

    findings: tuple[MachineFinding, ...]


class InterfaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An interface as shown to an operator. ``ip`` is its first IPv4 address, or empty."""

    name: str
    ip: str
    is_up: bool
    role: str
    """The role: ``lan``, ``wan``, ``both`` (one-arm), ``local``, ``line`` or empty."""
    received: int = 0
    sent: int = 0
    """Bytes since the interface was created; `received` likewise."""


class LineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a line. ``reason`` says in plain words why it is not online."""

    is_online: bool
    ip: str = ""
    state: str = "unknown"
    """``online``, or the line's current step or wait (``docs/lines.md`` has the list)."""
    reason: Sentence = NONE
    next_attempt: str = ""
    encryption: Sentence = NONE
    """The encryption of a line that is online, with its weak parts; empty for L2TP without secret.
    """


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An engine instance: the worker that runs it and its port, or why it does not run."""

    worker: int = 0
    port: int = 0
    problem: Sentence = NONE


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A bound that was reached: traffic beyond it is refused, or waits."""

    kind: str
    """The bound's kind. Of a LAN client through the engine: ``connections``, ``sessions`` (UDP),
    ``resolver`` (connections to one), ``questions`` (for names). Of all addresses of a network that
    have no rule of their own: ``network_connections``, ``network_sessions``. Of clients of proxy
    services: ``strangers`` (connections without a login), ``guesses`` (of passwords), ``calls``,
    ``service`` (many connections without a login), ``outside``. Of the API: ``api`` (new
    connections)."""
    source: str = ""
    """The IP address that reached it, or a /24 for ``network_sessions``; empty if many did."""
    port: int = 0
    """The port of the proxy service that the bound belongs to, if any."""
    bound: int = 0
    """The bound, if it is a single figure."""


class Status(msgspec.Struct, frozen=True, tag="status", kw_only=True):
    """netd's view of the device."""

    state: str
    """The phase: ``restoring``, ``running`` or ``stopped``."""
    revision: int
    interfaces: tuple[InterfaceStatus, ...] = ()
    lines: dict[str, LineStatus] = {}
    instances: dict[str, InstanceStatus] = {}
    silent_members: tuple[str, ...] = ()
    """Members of groups, other than nodes, whose last check failed, as rules name them."""
    failing: dict[str, Sentence] = {}
    """Key of a node's instance -> why the node failed at its last check. Nodes that serve groups
    are checked all the time, others once connections through them fail."""
    delays: dict[str, int] = {}
    """Key of the instance of a group's node -> milliseconds that its last check took; none of a
    node that failed."""
    elected: dict[str, str] = {}
    """Key of a group -> the key of the instance that all its clients are sent to; empty if each
    client has its own."""
    egress_problems: dict[str, Sentence] = {}
    """WAN, interface of the plan or ``DIRECT`` -> why no traffic leaves by it; empty while traffic
    may leave. VPN lines are in `lines`."""
    dead_ends: dict[str, Sentence] = {}
    """WAN, interface of the plan, VPN line or ``DIRECT`` -> why it is open but leads nowhere: no
    server that is asked through it answers."""
    nameless: dict[str, Sentence] = {}
    """The same keys -> why no names are resolved there, though servers answer."""
    unserved: Sentence = NONE
    """The reason why clients are not handed to the engine, which serves nodes and groups; or
    empty."""
    lease_ms: int | None = None
    """Milliseconds for which clients are still let through, 0 once they are blocked; None if they
    need no lease. In `StatusNews` it is None while a lease runs, too."""
    pair_role: PairRole | None = None
    """The role of this box in its pair; None if it is in none."""
    full: Sentence = NONE
    """The reason why no client's new connection gets through; else empty."""
    doubts: tuple[Sentence, ...] = ()
    """The `problems` that may block any client."""
    reached: tuple[Reached, ...] = ()
    """The bounds that were reached within the last seconds."""
    refused: dict[str, int] = {}
    """Kind of such a bound -> packets beyond it, and ``handshakes`` that were ended, since netd
    began."""
    wans: tuple[str, ...] = ()
    networks: tuple[str, ...] | None = None
    """Networks that clients are accepted from; None while they are unknown."""
    strangers: int = 0
    """Neighbours in LANs that no rule covers."""
    connections: int = 0
    """Tracked flows of LAN clients."""
    tracked: int = 0
    """All entries of the kernel's connection table."""
    tracked_max: int = 0
    """The most entries that it may have; 0 if unknown."""
    workers: int = 0
    """Engine workers that live, the one of proxy services included."""
    memory: int = 0
    """Resident bytes of netd, the engine workers and the daemons that netd runs."""
    problems: tuple[Sentence, ...] = ()
    """Parts of the plan that netd could not put in force, in plain words."""

    @property
    def is_active_box(self) -> bool:
        """True unless another box of its pair is the active one."""
        return self.pair_role in (None, "active")


def without_netd(why: Sentence) -> Status:
    """Return the status that is reported while netd is away."""
    return Status(state="restoring", revision=0, problems=(why,))


class LineNews(msgspec.Struct, frozen=True, tag="line_news"):
    """The state of each line of the plan, by name: sent after `Watch`, and whenever it changes."""

    lines: dict[str, LineStatus]


class StatusNews(msgspec.Struct, frozen=True, tag="status_news"):
    """The current status: sent after `Watch`, and soon after a change of it.

    Values that change all the time are left out: usage, and bytes of interfaces.
    """

    status: Status


ReplyBody: TypeAlias = (
    Done
    | Refused
    | Trial
    | Delays
    | AlertEnded
    | PageFetched
    | Located
    | Rotated
    | ConnectionsListed
    | ConnectionsClosed
    | Counters
    | SystemChecked
    | Status
)


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The answer to the request of that number."""

    number: int
    body: ReplyBody


class Event(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """An event: ``topic`` names its kind, ``subject`` its object, ``text`` describes it.

    ``code`` and ``values`` have the content of ``text`` for programs. A value may be a sentence; if
    a socket carried it, it is an object.
    """

    topic: str
    subject: str = ""
    text: str = ""
    code: str = ""
    values: Mapping[str, Any] = {}


class SeenNeighbour(msgspec.Struct, frozen=True, array_like=True):
    """A host of a LAN in the kernel's neighbour table."""

    interface: str
    ip: str
    mac: str
    """Six bytes in lower case, with colons."""
    age_s: int
    """Seconds since its last sign of life."""


class DhcpFrame(msgspec.Struct, frozen=True, array_like=True):
    """A DHCP request as a host of a LAN has sent it; netd has read nothing of it."""

    interface: str
    mac: str
    """The hardware address of the frame's sender."""
    packet: bytes
    """The first 1,500 bytes of the IPv4 packet."""


class TriedDestination(msgspec.Struct, frozen=True, array_like=True):
    """A destination that a client without a rule was refused."""

    client: str
    """The client's IPv4 address."""
    protocol: str
    """``tcp`` or ``udp``."""
    ip: str
    port: int
    packets: int
    """Refused packets since the first one; an hour without any ends the count."""


class Impostor(msgspec.Struct, frozen=True, array_like=True):
    """An address that belongs to one device, and another device that used it."""

    ip: str
    mac: str
    packets: int
    """Dropped packets since the first one; an hour without any ends the count."""


class DeviceNews(msgspec.Struct, frozen=True, tag="device_news"):
    """Signs of devices in LANs, in parts. Sent after `WatchDevices`, every two seconds while there
    are new ones, and each minute for those that live.
    """

    neighbours: tuple[SeenNeighbour, ...] = ()
    frames: tuple[DhcpFrame, ...] = ()
    tried: tuple[TriedDestination, ...] | None = None
    """All destinations that were refused within the last hour; None if this part has none of
    them."""
    impostors: tuple[Impostor, ...] | None = None
    """All impostors of the last hour; None if this part has none of them."""


News: TypeAlias = Event | LineNews | StatusNews | DeviceNews
"""The frames that netd sends without a request."""
