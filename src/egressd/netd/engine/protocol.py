"""The messages between netd and an engine worker, in the frames of `egressd.netd.system.framing`.

netd sends numbered requests on a connection to the worker's Unix socket; each is answered once, in
any order.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from egressd.model.delays import Delay
from egressd.model.wording import Sentence

VERSION: Final = 3
"""Version of the protocol. Increased when an older worker could not be understood; such a worker is
replaced."""


STARTS_AT_ONCE: Final = 32
"""Number of instances that a worker starts at the same time. Each start ends with a full garbage
collection (sing-box's ``route/router.go``) that simultaneous ones share: 250 take 2.8 s one by one,
1.4 s four and 0.8 s sixteen at a time; 500 beside 500 that run take 3.4 s sixteen, 2.6 s thirty-two
and 2.7 s sixty-four at a time."""


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Check that the worker responds. Answered with `WorkerDone` regardless of other work."""


class List(msgspec.Struct, frozen=True, tag="list"):
    """List the running instances. Answered with `InstanceList`."""


class AwaitTrouble(msgspec.Struct, frozen=True, tag="await_trouble"):
    """Wait for outbound errors. Answered with `Trouble` once instances could not connect through
    their nodes.
    """


class Start(msgspec.Struct, frozen=True, tag="start", kw_only=True):
    """Start an instance. Answered with `Started` once it listens, or `WorkerRefusal`.

    ``config`` is complete; ``key``, ``digest`` and ``port`` are kept for `InstanceList`.
    """

    key: str
    digest: str
    port: int
    config: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Stop the instance with that number. Answered with `WorkerDone`, also if it has ended."""

    number: int


class WorkerTry(msgspec.Struct, frozen=True, tag="try"):
    """Start and stop an instance. Answered with `WorkerDone` or `WorkerRefusal`."""

    config: str


class ProbeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One outbound to measure. ``config`` is a sing-box document without inbounds."""

    name: str
    config: str
    read_max: int = 0
    """Bytes of the page to return. With 0 only the head is requested."""


class Measure(msgspec.Struct, frozen=True, tag="measure", kw_only=True):
    """Measure delays (trial workers only). Answered with `Measured`."""

    probes: tuple[ProbeDocument, ...]
    url: str
    timeout_ms: int


class OpenWays(msgspec.Struct, frozen=True, tag="open_ways"):
    """Start an instance for each probe (trial workers only). Answered with `WaysOpened`."""

    probes: tuple[ProbeDocument, ...]


class CloseWay(msgspec.Struct, frozen=True, tag="close_way"):
    """Stop the instance of the way with that number. Answered with `WayClosed`."""

    number: int


QuestionBody: TypeAlias = (
    Ping | List | AwaitTrouble | Start | Stop | WorkerTry | Measure | OpenWays | CloseWay
)


class WorkerQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered request from netd."""

    number: int
    body: QuestionBody


class WorkerDone(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """A running instance. ``started`` is in nanoseconds of CLOCK_MONOTONIC."""

    number: int
    key: str
    digest: str
    port: int
    started: int


class InstanceList(msgspec.Struct, frozen=True, tag="listing"):
    """The protocol version of the worker, and the instances it runs."""

    version: int
    instances: tuple[Live, ...]


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """Tags of the outbounds through which connections failed since the last answer to
    `AwaitTrouble`: a node's is its instance's key.
    """

    tags: tuple[str, ...]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The instance listens. `Stop` takes its number; ``started`` is as in `Live`."""

    number: int
    started: int


class WorkerRefusal(msgspec.Struct, frozen=True, tag="refused", kw_only=True):
    """The engine refused. ``port_taken``: another socket has the port it was to listen on."""

    reason: Sentence
    port_taken: bool = False


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """Delays by probe name."""

    delays: dict[str, Delay]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A SOCKS5 listener on 127.0.0.1 whose connections leave by one probe's outbound."""

    number: int
    port: int
    user: str
    password: str


class WaysOpened(msgspec.Struct, frozen=True, tag="ways_opened"):
    """The ways of the probes, in their order."""

    ways: tuple[Way, ...]


class WayClosed(msgspec.Struct, frozen=True, tag="way_closed"):
    """The way is closed. ``error`` is the engine's first one; empty if there was none."""

    error: str


AnswerBody: TypeAlias = (
    WorkerDone
    | InstanceList
    | Trouble
    | Started
    | WorkerRefusal
    | Measured
    | WaysOpened
    | WayClosed
)


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the request with that number."""

    number: int
    body: AnswerBody
