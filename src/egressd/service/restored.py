"""The checks of a backup: only content that the API would have accepted, by row and as a whole.

The file may be of any origin. So each field passes the API's check of it, constraints between rows
are checked too, and no counter may be so high that the device would run out of ids. Later states
that the API allows are valid: a rule whose node was deleted, a relay that is gone. So is a row that
the device already has unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from egressd.model.bounds import ID_MAX
from egressd.model.desired import ROW_TABLES, WHITELIST, DesiredState, highest_ids, prefix_of
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX, NODE_NAME_MAX, parse_target
from egressd.model.nouns import AlertChannel, Node, ProxyService, Rule, Subscription, TargetGroup
from egressd.model.times import is_utc_text
from egressd.model.wording import Sentence, as_sentence, say
from egressd.planner.registry import ENGINE_NUMBER_MAX, PLANNED_EGRESS_MAX
from egressd.service import (
    alert_checks,
    checks,
    group_checks,
    lines,
    node_problems,
    proxy_services,
    rules,
    settings,
    subscription_checks,
    whitelist,
)
from egressd.service.dial_chains import circles
from egressd.service.group_checks import GroupDraft
from egressd.service.looks import Looks
from egressd.service.number_allocation import unnumbered
from egressd.service.servers import Around
from egressd.service.versions import revised

_HIGHEST: Final = {
    "nodes": ENGINE_NUMBER_MAX,
    "rules": ID_MAX,
    "lines": ID_MAX,
    "services": 10**10 - 1,  # netd takes keys of ten digits
    "alert_channels": ID_MAX,
    "groups": ID_MAX,
    "subscriptions": ID_MAX,
    GROUP_PREFIX: ENGINE_NUMBER_MAX,
    INTERFACE_PREFIX: PLANNED_EGRESS_MAX,
    WHITELIST: ID_MAX,
}
"""The highest id of each table, the highest number of each prefix of ``numbers``, and the highest
count of whitelists."""
_SHOWN: Final = 300
"""Characters of a problem that are reported: some repeat the file's content."""
_THINGS: Final = {
    "nodes": "node",
    "rules": "rule",
    "lines": "VPN line",
    "services": "proxy service",
    "alert_channels": "alert channel",
    "groups": "group",
    "subscriptions": "subscription",
}


class RestoreChecks:
    """The checks of a state that is to replace the device's.

    `own_ports` are the ports that egressd listens on, each with its purpose; `listening` returns
    the TCP ports with a listener at the moment, and `around` the surroundings of the device.
    """

    def __init__(
        self,
        own_ports: Mapping[int, str],
        *,
        listening: Callable[[], Collection[int]],
        around: Around,
    ) -> None:
        self._own_ports = own_ports
        self._listening = listening
        self._around = around

    def refuse(self, wanted: DesiredState, state: DesiredState, *, older: bool) -> None:
        """Raise Invalid with all `problems`, if there are any."""
        if found := [_short(each) for each in self.problems(wanted, state, older=older)]:
            first, *others = found
            raise Invalid(
                fault("", "backup-unfit", problem=first),
                *(fault("", "backup-also-unfit", problem=other) for other in others),
            )

    def problems(
        self, wanted: DesiredState, state: DesiredState, *, older: bool
    ) -> Iterator[Sentence]:
        """Yield every fault of `wanted`, which is to replace `state`.

        With `older`, names and configurations of nodes may have the form that an older egressd
        accepted.
        """
        before = {name: getattr(state, name) for name in ROW_TABLES}
        for name, problems in self._row_checks(older=older).items():
            for key, row in getattr(wanted, name).items():
                if before[name].get(key) != row:
                    yield from (_of(name, key, each) for each in problems(row))
        yield from _shared_problems(wanted)
        if not older:
            yield from name_problems(wanted, state)
        yield from self._port_problems(wanted, state)
        yield from _single_problems(wanted)
        yield from _number_problems(wanted, state)

    def _row_checks(self, *, older: bool) -> dict[str, Callable[[Any], Iterator[Fault]]]:
        around = self._around()
        config_problems = (
            node_problems.led_here_problems if older else node_problems.config_problems
        )

        def check_node(node: Node) -> Iterator[Fault]:
            yield from node_problems.label_problems(node)
            yield from _time("created_at", node.created_at)
            yield from checks.whole("subscription", node.subscription, 0, ID_MAX)
            yield from checks.text("name_there", node.name_there, NODE_NAME_MAX)
            if node.gone_at:
                yield from _time("gone_at", node.gone_at)
            yield from config_problems(node, around)
            yield from node_problems.stored_change_ip_problems(node, around)

        def check_service(service: ProxyService) -> Iterator[Fault]:
            yield from proxy_services.field_problems(service, self._own_ports)
            yield from _time("created_at", service.created_at)

        def check_channel(channel: AlertChannel) -> Iterator[Fault]:
            yield from alert_checks.stored_problems(channel)
            yield from _time("created_at", channel.created_at)

        return {
            "nodes": check_node,
            "rules": _rule_problems,
            "lines": lines.stored_problems,
            "services": check_service,
            "alert_channels": check_channel,
            "groups": _group_problems,
            "subscriptions": _subscription_problems,
        }

    def _port_problems(self, wanted: DesiredState, state: DesiredState) -> Iterator[Sentence]:
        """Yield ports with two services, or with another program's listener."""
        ports = Counter(service.port for service in wanted.services.values())
        ours = {service.port for service in state.services.values() if service.is_enabled}
        foreign = set(self._listening()) - ours
        for key, service in wanted.services.items():
            if ports[service.port] > 1:
                yield _of("services", key, fault("port", "not-unique", value=service.port))
            if service.is_enabled and service.port in foreign:
                taken = fault("port", "port-in-use", user=say("another-program"), port=service.port)
                yield _of("services", key, taken)


def _short(problem: Sentence) -> Sentence:
    return problem if len(problem) <= _SHOWN else as_sentence(problem[:_SHOWN])


def _of(table: str, key: int, problem: Fault) -> Sentence:
    """Return the fault of a row as a sentence."""
    return say("of-thing", thing=_THINGS[table], id=str(key), problem=problem.sentence)


def _rule_problems(rule: Rule) -> Iterator[Fault]:
    normal = checks.normal_network(rule.ip)
    target_problems = checks.stored_target("target_node", rule.target_node)
    yield from rules.field_problems(rule, normal if normal == rule.ip else None, target_problems)
    yield from _time("created_at", rule.created_at)
    yield from _time("updated_at", rule.updated_at)


def _group_problems(group: TargetGroup) -> Iterator[Fault]:
    yield from group_checks.stored_name_problems(group.name)
    yield from group_checks.field_problems(revised(GroupDraft, group, {}))
    yield from _time("created_at", group.created_at)


def _subscription_problems(subscription: Subscription) -> Iterator[Fault]:
    yield from subscription_checks.field_problems(subscription)
    yield from _time("created_at", subscription.created_at)


def _time(field: str, value: str) -> Iterator[Fault]:
    if not is_utc_text(value):
        yield fault(field, "time")


def _shared_problems(wanted: DesiredState) -> Iterator[Sentence]:
    """Yield faults of rows together: values that have to be unique, and chains that lead in
    circles.
    """
    unique: dict[tuple[str, str], Iterable[str]] = {
        ("nodes", "name"): (node.name for node in wanted.nodes.values()),
        ("rules", "ip"): (rule.ip for rule in wanted.rules.values()),
        ("rules", "bound_mac"): (
            rule.bound_mac for rule in wanted.rules.values() if rule.bound_mac
        ),
        ("lines", "name"): (line.name for line in wanted.lines.values()),
        ("services", "name"): (service.name for service in wanted.services.values()),
        ("alert_channels", "name"): (each.name for each in wanted.alert_channels.values()),
        ("groups", "name"): (group.name for group in wanted.groups.values()),
        ("subscriptions", "name"): (each.name for each in wanted.subscriptions.values()),
    }
    for (table, field), values in unique.items():
        for value, number in Counter(values).items():
            if number > 1:
                problem = fault(field, "not-unique", value=repr(value[:100]))
                yield say("of-things", things=f"{_THINGS[table]}s", problem=problem.sentence)
    yield from circles(wanted)
    for each in (
        *group_checks.structure_problems(wanted),
        *group_checks.use_problems(wanted),
    ):
        yield say("of-things", things="groups", problem=each.sentence)


def name_problems(wanted: DesiredState, state: DesiredState) -> Iterator[Sentence]:
    """Yield names that users could confuse, unless the device already has them; a name that is too
    long is a fault of its row.
    """
    kinds: dict[str, tuple[Iterable[str], Collection[str]]] = {
        "node": (wanted.node_by_name, state.node_by_name),
        "group": (
            {*wanted.group_sizes, *wanted.group_by_name},
            {*state.group_sizes, *state.group_by_name},
        ),
        "line": (wanted.line_by_name, state.line_by_name),
        "proxy service": (wanted.service_by_name, state.service_by_name),
        "alert channel": (wanted.alert_channel_by_name, state.alert_channel_by_name),
        "subscription": (wanted.subscription_by_name, state.subscription_by_name),
    }
    for kind, (names, known) in kinds.items():
        fresh = sorted(n for n in names if n not in known and len(n) <= NODE_NAME_MAX)
        looks = Looks(kind, known, is_target=kind in ("node", "group"))
        for name in fresh:
            yield from (
                say("of-thing", thing=kind, id=repr(name[:100]), problem=each.sentence)
                for each in looks.problems(name)
            )
            looks.add(name)


def _single_problems(wanted: DesiredState) -> Iterator[Sentence]:
    """Yield the faults of the whitelist and the settings."""
    listed = wanted.whitelist
    problems = [*whitelist.entry_problems(listed)]
    if parse_target(listed.node).kind in ("reject", "interface"):
        problems.append(fault("node", "whitelist-target"))
    problems += checks.stored_target("node", listed.node)
    yield from (say("of-whitelist", problem=each.sentence) for each in problems)
    target_problems = checks.stored_target("unmanaged", wanted.settings.unmanaged)
    for problem in (
        *settings.field_problems(wanted.settings, target_problems),
        *alert_checks.policy_problems(wanted.settings.alerts),
    ):
        yield say("of-settings", problem=problem.sentence)


def _number_problems(wanted: DesiredState, state: DesiredState) -> Iterator[Sentence]:
    """Yield invalid ids and numbers, and those that would leave the device too few: up to half of
    the range is allowed, because an id is never reused, except for nodes' (`fresh_node_ids`).
    """
    for table in ROW_TABLES:
        for key in getattr(wanted, table):
            if key < 1:
                yield _of(table, key, fault("id", "from-1"))
    if wanted.revision < 0:
        yield say("revision-negative", number=wanted.revision)
    yield from _numbered_problems(wanted)
    highest = dict(wanted.last_ids)
    after = state.with_edits([*state.numbers_to(wanted), *state.edits_to(wanted)], state.revision)
    try:
        given = highest_ids(unnumbered(after))
    except Invalid as invalid:
        yield from (each.sentence for each in invalid.faults)
    else:
        for name, value in given.items():
            highest[name] = max(value, highest.get(name, 0))
    for name, value in highest.items():
        highest_id = _HIGHEST.get(name, 0)
        half = highest_id if name == "nodes" else highest_id // 2
        room = max(half, state.last_ids.get(name, 0))
        if not 0 <= value <= room:
            yield say("counter-out-of-range", name=name[:60], most=room, number=value)


def _numbered_problems(wanted: DesiredState) -> Iterator[Sentence]:
    """Yield invalid names in ``numbers``, and numbers that two names have: each makes a mark."""
    taken: dict[tuple[str, int], str] = {}
    for name, number in wanted.numbers.items():
        if parse_target(name).kind not in ("group", "interface"):
            yield say("number-of-no-target", name=name[:100])
            continue
        yield from (each.sentence for each in checks.stored_target("numbers: name", name))
        if number < 1:
            yield say("number-too-low", name=name[:100], number=number)
        other = taken.setdefault((prefix_of(name), number), name)
        if other != name:
            yield say("number-not-unique", name=name[:100], other=other[:100])
