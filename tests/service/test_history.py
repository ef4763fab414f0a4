"""Any history of changes: memory, database and netd agree, and match a plain model.

The model is dictionaries by name, and has the rules of acceptance in their simplest form. Some
steps meet a netd that refuses or goes away, a disk that is full, or a restart.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from egressd.model.drafts import NodeBatch
from egressd.model.errors import Failed, Invalid
from egressd.model.nouns import Settings

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.netd_double import NetdDouble
    from tests.support.use_cases import Bench, OpenBench

pytestmark = pytest.mark.slow

T = TypeVar("T")

NODES = st.sampled_from(["a", "b", "c"])
GROUPS = st.sampled_from(["", "g", "h"])
WANS = st.sampled_from(["wan1", "wan2"])
LINES = st.sampled_from(["l2tp_1", "l2tp_2", "pptp_1"])
IPS = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.0/24", "10.0.0.0/30", "10.1.0.0/16"])
EGRESS = st.one_of(
    st.just(("", "")), st.tuples(WANS | LINES, st.just("")), st.tuples(st.just(""), NODES)
)
"""A node's interface and its relay."""
TARGETS = st.one_of(
    NODES,
    NODES,
    st.just("DIRECT"),
    st.just("REJECT"),
    st.sampled_from(["g", "h"]).map("Group_{}".format),
    (WANS | LINES).map("Interface:{}".format),
)
TROUBLE = st.sampled_from([""] * 12 + ["refuse", "break", "lose", "begin", "commit"])


class Model:
    """The expected state."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[str, str, str]] = {}  # name: group, interface, relay
        self.rules: dict[str, tuple[str, bool, int]] = {}  # ip: target, enabled, upload
        self.lines: dict[str, tuple[str, bool]] = {}  # name: carrier, enabled
        self.services: dict[str, tuple[str, int]] = {}  # name: interface, port
        self.whitelisted = "DIRECT"
        self.unmanaged = "REJECT"

    def copy(self) -> Model:
        fresh = Model()
        for name, value in vars(self).items():
            setattr(fresh, name, dict(value) if isinstance(value, dict) else value)
        return fresh

    def takes_target(self, target: str) -> bool:
        if target.startswith("Group_"):
            return any(
                group == target.removeprefix("Group_") for group, _, _ in self.nodes.values()
            )
        return target in self.nodes or target.startswith(("DIRECT", "REJECT", "Interface:"))

    def relay_works(self, name: str) -> bool:
        """True if the node's relay exists, and its chain does not come back to it."""
        relay = self.nodes[name][2]
        if not relay:
            return True
        if relay not in self.nodes:
            return False
        seen = [name]
        while relay in self.nodes and relay not in seen:
            seen.append(relay)
            relay = self.nodes[relay][2]
        return relay != name

    def carrier_works(self, name: str) -> bool:
        seen, carrier = [name], self.lines[name][0]
        while carrier in self.lines and carrier not in seen:
            seen.append(carrier)
            carrier = self.lines[carrier][0]
        return carrier != name

    def numbered_names(self) -> set[str]:
        """Return the groups and interfaces that are named anywhere."""
        targets = {target for target, _, _ in self.rules.values()}
        targets |= {self.whitelisted, self.unmanaged}
        targets |= {f"Group_{group}" for group, _, _ in self.nodes.values() if group}
        interfaces = {interface for _, interface, _ in self.nodes.values()}
        interfaces |= {interface for interface, _ in self.services.values()}
        interfaces |= {carrier for carrier, _ in self.lines.values()} - {"auto"}
        targets |= {f"Interface:{interface}" for interface in interfaces if interface}
        return {target for target in targets if target.startswith(("Group_", "Interface:"))}

    def rename_target(self, old: str, new: str) -> None:
        for ip, (target, *rest) in self.rules.items():
            if target == old:
                self.rules[ip] = (new, *rest)  # type: ignore[assignment]
        if self.unmanaged == old:
            self.unmanaged = new

    def rename_node(self, old: str, new: str) -> None:
        self.rename_target(old, new)
        if self.whitelisted == old:
            self.whitelisted = new
        for name, (group, interface, relay) in self.nodes.items():
            if relay == old:
                self.nodes[name] = (group, interface, new)

    def rename_line(self, old: str, new: str) -> None:
        self.rename_target(f"Interface:{old}", f"Interface:{new}")
        for name, (group, interface, relay) in self.nodes.items():
            if interface == old:
                self.nodes[name] = (group, new, relay)
        for name, (interface, port) in self.services.items():
            if interface == old:
                self.services[name] = (new, port)
        for name, (carrier, is_enabled) in self.lines.items():
            if carrier == old:
                self.lines[name] = (new, is_enabled)


def seen(bench: Bench) -> dict[str, Any]:
    """Return the actual state, in the model's terms."""
    state = bench.state
    nodes = {}
    for node in state.nodes.values():
        config = json.loads(node.config_json)
        egress = (config.get("interface-name", ""), config.get("dialer-proxy", ""))
        nodes[node.name] = (node.group, *egress)
    return {
        "nodes": nodes,
        "rules": {
            r.host: (r.target_node, r.is_enabled, r.upload_limit_kbps) for r in state.rules.values()
        },
        "lines": {n.name: (n.interface, n.is_enabled) for n in state.lines.values()},
        "services": {s.name: (s.outbound_interface, s.port) for s in state.services.values()},
        "whitelisted": state.whitelist.node,
        "unmanaged": state.settings.unmanaged,
    }


class History(RuleBasedStateMachine):
    open_bench: ClassVar[OpenBench]
    make: ClassVar[Make]
    place: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=self.place))
        self.runner = asyncio.Runner()
        self.model = Model()
        self.ids: dict[str, set[int]] = {}
        self.numbers: dict[str, int] = {}
        self.open(None)

    def open(self, netd: NetdDouble | None) -> None:
        self.context = self.open_bench(self.directory, netd)
        self.bench: Bench = self.run(self.context.__aenter__())
        self.run(self.bench.start())

    def run(self, awaitable: Awaitable[T]) -> T:
        async def main() -> T:
            return await awaitable

        return self.runner.run(main())

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.run(self.context.__aexit__(None, None, None))
            self.runner.close()
            shutil.rmtree(self.directory)

    def attempt(
        self,
        call: Callable[[], Awaitable[object]],
        wanted: Model,
        *,
        is_fine: bool = True,
        trouble: str = "",
    ) -> None:
        """Make a change that leads to `wanted`; refused unless `is_fine`, failed by `trouble`."""
        if trouble in ("begin", "commit"):
            self.bench.store.failing = [trouble]
        elif trouble:
            self.bench.netd.behaviour = [trouble]
        try:
            self.run(call())
        except Invalid:
            assert not is_fine
        except Failed:
            assert trouble
        else:
            assert is_fine
            self.model = wanted
        finally:
            self.bench.store.failing = []
            self.bench.netd.behaviour = []
            if self.bench.netd.is_away:
                self.bench.netd.return_after_restart()
                self.run(self.bench.ledger.resync())

    def node_draft(self, name: str, group: str, egress: tuple[str, str]) -> Any:
        keys = zip(("interface-name", "dialer-proxy"), egress, strict=True)
        return self.make.node(name, group=group, **{key: value for key, value in keys if value})

    def node_id(self, name: str) -> int:
        return self.bench.state.node_by_name.get(name, 0)

    def rule_id(self, ip: str) -> int:
        ip = ip if "/" in ip else f"{ip}/32"
        return self.bench.state.rule_by_ip.get(ip, 0)

    # --- Nodes. ---------------------------------------------------------------------------

    @rule(name=NODES, group=GROUPS, egress=EGRESS, trouble=TROUBLE)
    def create_node(self, name: str, group: str, egress: tuple[str, str], trouble: str) -> None:
        wanted = self.model.copy()
        wanted.nodes[name] = (group, *egress)
        draft = self.node_draft(name, group, egress)
        is_fine = name not in self.model.nodes and wanted.relay_works(name)
        self.attempt(
            lambda: self.bench.nodes.create(draft), wanted, is_fine=is_fine, trouble=trouble
        )

    @rule(old=NODES, name=NODES, group=GROUPS, egress=EGRESS, trouble=TROUBLE)
    def edit_node(
        self, old: str, name: str, group: str, egress: tuple[str, str], trouble: str
    ) -> None:
        if old not in self.model.nodes:
            return
        wanted = self.model.copy()
        is_free = name == old or name not in wanted.nodes
        del wanted.nodes[old]
        if name != old:
            wanted.rename_node(old, name)
        wanted.nodes[name] = (group, *egress)
        draft = self.node_draft(name, group, egress)
        self.attempt(
            lambda: self.bench.nodes.replace(self.node_id(old), draft),
            wanted,
            is_fine=is_free and wanted.relay_works(name),
            trouble=trouble,
        )

    @rule(names=st.lists(NODES, max_size=3), trouble=TROUBLE)
    def delete_nodes(self, names: list[str], trouble: str) -> None:
        wanted = self.model.copy()
        for name in names:
            wanted.nodes.pop(name, None)
        ids = [self.node_id(name) for name in names]
        self.attempt(lambda: self.bench.nodes.delete_many(ids), wanted, trouble=trouble)

    @rule(names=st.lists(NODES, max_size=3), group=GROUPS | st.none(), egress=EGRESS | st.none())
    def change_nodes(
        self, names: list[str], group: str | None, egress: tuple[str, str] | None
    ) -> None:
        wanted = self.model.copy()
        touched = [name for name in dict.fromkeys(names) if name in wanted.nodes]
        for name in touched:
            old_group, *old_egress = wanted.nodes[name]
            new_egress = old_egress if egress is None else egress
            wanted.nodes[name] = (old_group if group is None else group, *new_egress)
        given = (None, None) if egress is None else egress
        batch = NodeBatch(
            ids=tuple(self.node_id(name) for name in names),
            group=group,
            interface_name=given[0],
            dialer_proxy=given[1],
        )
        relay = given[1]
        works = not relay or (
            relay in wanted.nodes and all(wanted.relay_works(name) for name in touched)
        )
        self.attempt(lambda: self.bench.nodes.update_many(batch), wanted, is_fine=works)

    @rule(names=st.lists(NODES, max_size=4), group=GROUPS, replace=st.booleans(), trouble=TROUBLE)
    def import_nodes(self, names: list[str], group: str, replace: bool, trouble: str) -> None:
        wanted = self.model.copy()
        if replace:
            wanted.nodes = {}
        given: list[str] = []
        for name in names:
            used = (name, *(f"{name} {at}" for at in range(2, 10)))
            given.append(next(one for one in used if one not in given))
            wanted.nodes.setdefault(given[-1], (group, "", ""))
        text = "\n".join(f"198.51.100.7,1080,,,{name}" for name in names)
        self.attempt(
            lambda: self.bench.nodes.import_rows(
                "socks5", text, replace=replace, group=group, auto_name=False, start_index=1
            ),
            wanted,
            trouble=trouble,
        )

    # --- Rules. ---------------------------------------------------------------------------

    @rule(ip=IPS, to=TARGETS, is_enabled=st.booleans(), limit=st.integers(0, 2), trouble=TROUBLE)
    def create_rule(self, ip: str, to: str, is_enabled: bool, limit: int, trouble: str) -> None:
        wanted = self.model.copy()
        wanted.rules[ip] = (to, is_enabled, limit)
        draft = self.make.rule(ip, to, is_enabled=is_enabled, upload_limit_kbps=limit)
        is_fine = ip not in self.model.rules and wanted.takes_target(to)
        self.attempt(
            lambda: self.bench.rules.create(draft), wanted, is_fine=is_fine, trouble=trouble
        )

    @rule(old=IPS, ip=IPS, to=TARGETS, trouble=TROUBLE)
    def edit_rule(self, old: str, ip: str, to: str, trouble: str) -> None:
        if old not in self.model.rules:
            return
        wanted = self.model.copy()
        is_free = ip == old or ip not in wanted.rules
        del wanted.rules[old]
        wanted.rules[ip] = (to, True, 0)
        draft = self.make.rule(ip, to)
        self.attempt(
            lambda: self.bench.rules.replace(self.rule_id(old), draft),
            wanted,
            is_fine=is_free and wanted.takes_target(to),
            trouble=trouble,
        )

    @rule(ips=st.lists(IPS, max_size=3), is_enabled=st.booleans(), trouble=TROUBLE)
    def switch_rules(self, ips: list[str], is_enabled: bool, trouble: str) -> None:
        wanted = self.model.copy()
        for ip in ips:
            if ip in wanted.rules:
                wanted.rules[ip] = (wanted.rules[ip][0], is_enabled, wanted.rules[ip][2])
        self.attempt(
            lambda: self.bench.rules.set_enabled_many(ips, is_enabled), wanted, trouble=trouble
        )

    @rule(ips=st.lists(IPS, max_size=3), trouble=TROUBLE)
    def delete_rules(self, ips: list[str], trouble: str) -> None:
        wanted = self.model.copy()
        for ip in ips:
            wanted.rules.pop(ip, None)
        self.attempt(lambda: self.bench.rules.delete_many(ips), wanted, trouble=trouble)

    @rule(
        rows=st.lists(st.tuples(IPS, TARGETS), max_size=4), replace=st.booleans(), trouble=TROUBLE
    )
    def import_rules(self, rows: Sequence[tuple[str, str]], replace: bool, trouble: str) -> None:
        wanted = self.model.copy()
        usable = [(ip, target) for ip, target in rows if wanted.takes_target(target)]
        if replace and (usable or not rows):
            wanted.rules = {}
        for ip, target in usable:
            wanted.rules.setdefault(ip, (target, True, 0))
        text = "\n".join(f"{ip},{target}" for ip, target in rows)
        self.attempt(
            lambda: self.bench.rules.import_rows(text, replace=replace), wanted, trouble=trouble
        )

    # --- Lines, services, the device. -----------------------------------------------------

    @rule(name=LINES, carrier=st.just("auto") | WANS | LINES, trouble=TROUBLE)
    def create_line(self, name: str, carrier: str, trouble: str) -> None:
        wanted = self.model.copy()
        wanted.lines[name] = (carrier, True)
        draft = self.make.line(name, interface=carrier)
        is_fine = name not in self.model.lines and wanted.carrier_works(name)
        self.attempt(
            lambda: self.bench.lines.create(draft), wanted, is_fine=is_fine, trouble=trouble
        )

    @rule(old=LINES, name=LINES, carrier=st.just("auto") | WANS | LINES, trouble=TROUBLE)
    def edit_line(self, old: str, name: str, carrier: str, trouble: str) -> None:
        if old not in self.model.lines:
            return
        kind = old.partition("_")[0]
        wanted = self.model.copy()
        is_free = name == old or name not in wanted.lines
        del wanted.lines[old]
        if name != old:
            wanted.rename_line(old, name)
        wanted.lines[name] = (carrier, True)
        draft = self.make.line(name, interface=carrier)
        self.attempt(
            lambda: self.bench.lines.replace(kind, old, draft),
            wanted,
            is_fine=is_free and name.startswith(kind) and wanted.carrier_works(name),
            trouble=trouble,
        )

    @rule(names=st.lists(LINES, max_size=2), is_enabled=st.booleans() | st.none())
    def switch_or_delete_lines(self, names: list[str], is_enabled: bool | None) -> None:
        wanted = self.model.copy()
        items = [(name.partition("_")[0], name) for name in names]
        for name in set(names) & set(wanted.lines):
            if is_enabled is None:
                del wanted.lines[name]
            else:
                wanted.lines[name] = (wanted.lines[name][0], is_enabled)
        if is_enabled is None:
            self.attempt(lambda: self.bench.lines.delete_many(items), wanted)
        else:
            self.attempt(lambda: self.bench.lines.set_enabled_many(items, is_enabled), wanted)

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from("xyz"), WANS | LINES, st.integers(1, 4)), max_size=3
        ),
        replace=st.booleans(),
        trouble=TROUBLE,
    )
    def import_services(
        self, rows: list[tuple[str, str, int]], replace: bool, trouble: str
    ) -> None:
        wanted = self.model.copy()
        if replace:
            wanted.services = {}
        for name, interface, port in rows:
            taken = {taken for _, taken in wanted.services.values()}
            if name not in wanted.services and 8000 + port not in taken:
                wanted.services[name] = (interface, 8000 + port)
        text = "\n".join(f"{name},{interface},{8000 + port},u,p" for name, interface, port in rows)
        self.attempt(
            lambda: self.bench.services.import_rows(text, replace=replace), wanted, trouble=trouble
        )

    @rule(to=TARGETS, trouble=TROUBLE)
    def list_destinations(self, to: str, trouble: str) -> None:
        wanted = self.model.copy()
        wanted.whitelisted = to
        is_fine = wanted.takes_target(to) and not to.startswith(("REJECT", "Interface:"))
        self.attempt(
            lambda: self.bench.whitelist.put("example.com", "192.0.2.0/24", to),
            wanted,
            is_fine=is_fine,
            trouble=trouble,
        )

    @rule(to=TARGETS, trouble=TROUBLE)
    def set_unmanaged(self, to: str, trouble: str) -> None:
        wanted = self.model.copy()
        wanted.unmanaged = to
        self.attempt(
            lambda: self.bench.settings.put(Settings(unmanaged=to)),
            wanted,
            is_fine=wanted.takes_target(to),
            trouble=trouble,
        )

    @rule()
    def restart(self) -> None:
        netd = self.bench.netd
        self.run(self.context.__aexit__(None, None, None))
        self.open(netd)

    @invariant()
    def all_agree(self) -> None:
        if hasattr(self, "bench"):
            assert seen(self.bench) == vars(self.model)
            self.run(self.bench.agree())

    @invariant()
    def what_is_named_has_a_number_that_stays(self) -> None:
        if hasattr(self, "bench"):
            numbers = dict(self.bench.state.numbers)
            assert self.numbers.items() <= numbers.items()
            assert self.model.numbered_names() <= numbers.keys()
            for prefix in ("Group_", "Interface:"):
                given = [n for name, n in numbers.items() if name.startswith(prefix)]
                assert len(set(given)) == len(given)
            self.numbers = numbers


def test_any_history_of_changes_matches_the_model(
    open_bench: OpenBench, make: Make, tmp_path: Path
) -> None:
    History.open_bench = staticmethod(open_bench)
    History.make = make
    History.place = tmp_path
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
