"""Prometheus metrics of the device, read when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from egressd.api.bounds import CallBounds, CallerShare
from egressd.api.services import Services
from egressd.model.errors import EgressdError
from egressd.model.messages import RuleCount
from egressd.model.times import utc_seconds
from egressd.service.exits import Exit
from egressd.service.overview import Overview

CHANGE_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the buckets of a change's duration, in seconds."""
_DELAY: Final = "Time that the last check of a group's node took"
_OPEN_METRICS: Final = "application/openmetrics-text"
_END: Final = b"# EOF\n"
"""The last line of the OpenMetrics form."""

# The times of counters' first values would double the series, and no query needs them.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Scraped(NamedTuple):
    """All metrics in the text form of this content type."""

    content_type: str
    text: bytes


class DeviceMetrics:
    """Metrics of the configuration, the device's state, and the traffic of each rule's clients."""

    def __init__(self, registry: CollectorRegistry, services: Services, engine: str) -> None:
        """`engine` is the engine's version."""
        self._registry = registry
        self._services = services
        self._up = Gauge(
            "egressd_up", "Whether the stored configuration is in force", registry=registry
        )
        self._connections = Gauge(
            "egressd_connections", "Tracked flows of LAN clients", registry=registry
        )
        self._tracked = Gauge(
            "egressd_connection_table_entries",
            "Entries of the kernel's connection table",
            registry=registry,
        )
        self._workers = Gauge("egressd_engine_workers", "Engine workers", registry=registry)
        self._instances = Gauge(
            "egressd_engine_instances", "Instances of the engine", registry=registry
        )
        started = Gauge(
            "egressd_start_time_seconds", "Unix time of the api's start", registry=registry
        )
        started.set_to_current_time()
        self._memory = Gauge(
            "egressd_memory_bytes", "Resident bytes of egressd's processes", registry=registry
        )
        self._revision = Gauge(
            "egressd_revision", "Revision of the stored configuration", registry=registry
        )
        self._configured = Gauge(
            "egressd_configured", "Things configured, by kind", ("kind",), registry=registry
        )
        self._lines_online = Gauge(
            "egressd_lines_online", "VPN lines that have an address", registry=registry
        )
        self._targets_failing = Gauge(
            "egressd_targets_failing",
            "Targets of rules that are blocked, or whose nodes fail",
            registry=registry,
        )
        self._problems = Gauge(
            "egressd_problems", "Problems that the overview lists", registry=registry
        )
        self._sources_refused = Gauge(
            "egressd_sources_refused", "Addresses that have reached a bound", registry=registry
        )
        self._seen = SeenParts(engine)
        registry.register(self._seen)
        ProcessCollector(registry=registry)

    async def scrape(self, accept: str = "") -> Scraped:
        """Return all metrics, in the form that the caller's header `accept` prefers: that of
        OpenMetrics 1.0, or of Prometheus, version 0.0.4.
        """
        encode, content_type = choose_encoder(accept)
        is_open = content_type.startswith(_OPEN_METRICS)
        of_rules = await self._of_rules(is_open=is_open)
        seen, delays = await self._services.overviews.now_with_delays()
        exits = self._services.exits.now()
        self._seen.show(seen, delays, exits, is_netd_there=of_rules is not None)
        self._revision.set(seen.revision)
        for kind in ("rules", "nodes", "lines", "proxy_services"):
            self._configured.labels(kind).set(getattr(seen.counts, kind))
        self._up.set(seen.status == "running")
        self._connections.set(seen.connections)
        self._tracked.set(seen.tracked)
        self._workers.set(seen.workers)
        self._instances.set(seen.instances)
        self._memory.set(seen.memory)
        self._lines_online.set(seen.counts.online_lines)
        self._targets_failing.set(seen.counts.failing_targets)
        self._problems.set(len(seen.problems))
        self._sources_refused.set(len({each.source for each in seen.reached if each.source}))
        refused = "".join(_refused_samples(seen.refused, is_open=is_open)).encode()
        text = encode(self._registry).removesuffix(_END) + refused + (of_rules or b"")
        return Scraped(content_type, text + _END if is_open else text)

    async def _of_rules(self, *, is_open: bool) -> bytes | None:
        """The samples of rules; None without netd, as of a target that is down."""
        try:
            counted = await self._services.system.counters()
        except EgressdError:
            return None
        return "".join(_rule_samples(counted, is_open=is_open)).encode()


def _counter(name: str, text: str, *, is_open: bool) -> str:
    """Return the lines before a counter's samples. In OpenMetrics only the samples' names end in
    ``_total`` (OpenMetrics 1.0, "Counter").
    """
    family = name.removesuffix("_total") if is_open else name
    return f"# HELP {family} {text}\n# TYPE {family} counter\n"


def _refused_samples(refused: Mapping[str, int], *, is_open: bool) -> Iterator[str]:
    """A counter in text form: netd counts, and begins anew when it does."""
    if refused:
        name = "egressd_refused_total"
        text = "Packets beyond a bound by its kind, and handshakes that were ended"
        yield _counter(name, text, is_open=is_open)
        for kind, packets in sorted(refused.items()):
            yield f'{name}{{kind="{kind}"}} {packets}\n'


def _rule_samples(counted: Mapping[str, RuleCount], *, is_open: bool) -> Iterator[str]:
    """Two counters in text form, four samples a rule.

    Written here because 40,000 samples of 10,000 rules take the library 300 ms. Rule addresses
    hold nothing that needs escaping.
    """
    name = "egressd_rule_bytes_total"
    yield _counter(name, "Bytes of IP packets that a rule's clients exchanged", is_open=is_open)
    for ip, count in counted.items():
        yield f'{name}{{rule="{ip}",direction="upload"}} {count.up_bytes}\n'
        yield f'{name}{{rule="{ip}",direction="download"}} {count.down_bytes}\n'
    name = "egressd_rule_packets_total"
    yield _counter(name, "Packets that a rule's clients exchanged", is_open=is_open)
    for ip, count in counted.items():
        yield f'{name}{{rule="{ip}",direction="upload"}} {count.up_packets}\n'
        yield f'{name}{{rule="{ip}",direction="download"}} {count.down_packets}\n'


class SeenParts(Collector):
    """Series of an overview that come and go: the parts of the device by name, and other figures.

    The library writes these: names are operators' text, and it escapes them.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._families: tuple[Metric, ...] = ()

    def show(
        self,
        seen: Overview,
        delays: Mapping[str, float],
        exits: Sequence[Exit],
        *,
        is_netd_there: bool,
    ) -> None:
        """Take the parts of `seen`, the `delays` of nodes in seconds, and the `exits` of targets in
        use, in place of those before.
        """
        build = GaugeMetricFamily("egressd_build_info", "Always 1", labels=("version", "engine"))
        build.add_metric((seen.version, self._engine), 1)
        checked = _by_name("egressd_node_delay_seconds", _DELAY, "node", delays)
        seen_now = _seen_families(seen, is_netd_there=is_netd_there)
        self._families = (build, checked, *_exit_families(exits), *seen_now)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the overview that was shown last."""
        yield from self._families


def _seen_families(seen: Overview, *, is_netd_there: bool) -> Iterator[Metric]:
    yield GaugeMetricFamily("egressd_netd_up", "Whether netd answers", value=int(is_netd_there))
    yield _by_name("egressd_line_up", "Whether a VPN line is online", "line", _lines_up(seen))
    served = [flow for flow in seen.flows if flow.clients]
    up = {flow.target: int(not flow.problem) for flow in served}
    yield _by_name("egressd_target_up", "Whether a target's clients get through", "target", up)
    clients = {flow.target: flow.clients for flow in served}
    yield _by_name("egressd_target_clients", "Enabled rules of a target", "target", clients)
    exchanged = CounterMetricFamily(
        "egressd_interface_bytes",
        "Bytes that an interface received and sent",
        labels=("interface", "role", "direction"),
    )
    for each in seen.interfaces:
        exchanged.add_metric((each.name, each.role, "received"), each.received)
        exchanged.add_metric((each.name, each.role, "sent"), each.sent)
    yield exchanged
    # These are absent while they are not known: a zero in their place would raise alerts.
    if seen.tracked_max:
        yield GaugeMetricFamily(
            "egressd_connection_table_limit",
            "Entries that the kernel's connection table may have",
            value=seen.tracked_max,
        )
    if (timed := seen.timed_backups) is not None:
        yield GaugeMetricFamily(
            "egressd_timed_backup_failing",
            "Whether timed backups fail, or are not made",
            value=int(bool(timed.problem)),
        )
        yield GaugeMetricFamily(
            "egressd_timed_backup_last_success_timestamp_seconds",
            "Unix time of the last timed backup that was made; 0 for none",
            value=utc_seconds(timed.last_success) if timed.last_success else 0,
        )


def _exit_families(exits: Sequence[Exit]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "egressd_exit_info", "Always 1", labels=("target", "kind", "ip", "country")
    )
    for each in exits:
        if each.ip:
            info.add_metric((each.name, each.kind, each.ip, each.country), 1)
    yield info
    failing = {each.name: int(bool(each.error)) for each in exits if each.ip or each.error}
    text = "Whether the last request for an exit's address had no answer"
    yield _by_name("egressd_exit_failing", text, "target", failing)
    known = [each for each in exits if each.ip]
    shared = {each.name: len(each.shared_with) for each in known}
    text = "Other targets in use that leave by the same address"
    yield _by_name("egressd_exit_shared_with", text, "target", shared)
    changed = {each.name: utc_seconds(each.changed_at) for each in known}
    text = "Unix time since which an exit's address is the same"
    yield _by_name("egressd_exit_changed_timestamp_seconds", text, "target", changed)


def _by_name(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family


def _lines_up(seen: Overview) -> dict[str, int]:
    return {
        name: int(line.is_online)
        for name, line in seen.lines.items()
        if line.state not in ("disabled", "standby")
    }


class Counted(Collector):
    """A counter with one label, for counts that another object keeps."""

    def __init__(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> None:
        """`counts` has every value of the label from the beginning."""
        self._made = (name, text, label)
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield the counter as it is now."""
        name, text, label = self._made
        family = CounterMetricFamily(name, text, labels=(label,))
        for value, count in self._counts.items():
            family.add_metric((value,), count)
        yield family


class ChangeMetrics(Collector):
    """The changes of the configuration that were accepted, and how long they took."""

    def __init__(self) -> None:
        self._seconds = Histogram(
            "egressd_change_duration_seconds",
            "Time from a change's request until it was stored and in force",
            buckets=CHANGE_S,
            registry=None,
        )
        self._number = 0

    def observe(self, seconds: float) -> None:
        """Count a change that took so long."""
        self._number += 1
        self._seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield both metrics as they are now."""
        yield CounterMetricFamily("egressd_changes", "Accepted changes", value=self._number)
        yield from self._seconds.collect()


class HeldConnections(Collector):
    """The connections that there are, by whose they are."""

    def __init__(self, bounds: CallBounds) -> None:
        self._bounds = bounds

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge as it is now."""
        held = GaugeMetricFamily(
            "egressd_http_connections", "Connections to the API and the console", labels=("of",)
        )
        for share in CallerShare:
            held.add_metric((share.name.lower(),), self._bounds.count(share))
        yield held


def of_connections(bounds: CallBounds) -> tuple[Collector, ...]:
    """The connections to the API and the console, and what their bounds did."""
    refused, ended = "Connections refused at a bound", "Connections that made room for another"
    return (
        HeldConnections(bounds),
        Counted("egressd_http_connections_refused", refused, "bound", bounds.refused),
        Counted("egressd_http_connections_ended", ended, "bound", bounds.ended),
    )
