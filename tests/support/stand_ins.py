"""Stand-ins for netd's ports that answer no call. A test gives one the calls that it expects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

from egressd.model.facts import Facts
from egressd.model.messages import LineNews, Status, StatusNews
from egressd.model.plan import Plan
from egressd.model.wording import Sentence
from egressd.planner.bounds import Bounds
from egressd.planner.groups import Choice
from egressd.planner.lines.address import Taken
from egressd.planner.nft import Crowd, Greedy
from egressd.planner.resolvers import Resolver
from egressd.planner.topology import Topology


def _unexpected(*_: Any, **__: Any) -> Any:
    raise AssertionError("no test expects this call")


class UnexpectedKernel:
    """A `KernelPort` with no interface and no table."""

    def __init__(self) -> None:
        self.bounds = Bounds()
        self.facts = Facts()
        self.topology = Topology()
        self.problems: tuple[Sentence, ...] = ()
        self.firewall_problems: tuple[Sentence, ...] = ()
        self.ruled_locals: tuple[str, ...] = ()
        self.choices: Mapping[str, Choice] = {}
        self.peer_dns: Mapping[str, tuple[str, ...]] = {}
        self.silent: Set[Resolver] = frozenset()
        self.outdated: Collection[str] = ()
        self.taken = Taken()
        self.greedy: Collection[Greedy] = ()
        self.crowd = Crowd()

    refresh = route = forward = has_table = load_previous = hold_translation = _unexpected
    load = update = move = prepare = invalidate = restrict_to_lan = is_intact = _unexpected
    host_update = is_about_local_clients = served = egress_problems = why_unserved = _unexpected
    is_open = is_closed = why_unreached = missing_roles = line_addresses = beside = _unexpected
    locate = members = renew_lease = keep_cut = _unexpected

    def lease_ms(self, plan: Plan) -> int | None:
        return 0 if plan.policy.is_leased else None


class UnexpectedLimits:
    """A `LimitsPort`."""

    problems: tuple[Sentence, ...] = ()
    sync = refresh = change = counters = close = _unexpected


class UnexpectedEngine:
    """An `EnginePort`."""

    uid = 0
    rule_sets: Any = None
    start = stop = is_running = running = superseded = workers = pids = problems = _unexpected
    try_configs = delays = close = release = _unexpected


class UnexpectedLines:
    """A `LinesPort`."""

    find = open = close = release = want = apply = outdated = status = resolvers = _unexpected
    servers = reserve = pids = allow = hang_up = _unexpected


class UnexpectedReconciler:
    """A `ReconcilerPort` whose news are empty."""

    @property
    def line_news(self) -> LineNews:
        return LineNews({})

    @property
    def status_news(self) -> StatusNews:
        return StatusNews(Status(state="running", revision=0))

    set_plan = apply = halt = status = counters = try_configs = delays = locate = _unexpected
    renew_lease = rotate = _unexpected
