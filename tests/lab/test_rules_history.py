"""Any history of calls: the API's list, the kernel's state and a plain model agree.

The model knows a rule as (target, enabled, comment) by its address. After every step the list of
rules is read back over HTTP and the maps of the data plane from the kernel, by ``nft``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import clear

pytestmark = pytest.mark.lab

NODES = ("socks5", "ss")
HOSTS = ("10.77.0.11", "10.77.0.12", "10.77.0.13", "10.77.1.5")
NETWORKS = ("10.77.0.0/24", "10.77.0.8/29", "10.77.0.12/31", "10.77.0.0/16")
PROBED = (*HOSTS, "10.77.0.8", "10.77.0.15", "10.77.0.16", "10.77.0.255", "10.77.255.1", "10.9.9.9")
"""Addresses at which maps and model are compared: in, between and beside the rules."""

IPS = st.sampled_from((*HOSTS, *NETWORKS))
SEVERAL = st.lists(IPS, min_size=1, max_size=4, unique=True)
TARGETS = st.sampled_from((*NODES, "DIRECT", "REJECT", "Interface:wan1", "Interface:wan2"))
COMMENTS = st.sampled_from(("", "a phone", "été", "=1+1"))

REJECT, DIRECT = 0x40000000, 0x30000000


class Entry(NamedTuple):
    """A rule, as far as the model knows it."""

    target: str
    is_enabled: bool = True
    comment: str = ""


class History(RuleBasedStateMachine):
    """Calls in any order on one device."""

    lab: ClassVar[Lab]

    @initialize()
    def begin(self) -> None:
        clear(self.lab)
        self.stored: dict[str, Entry] = {}
        self.nodes: set[str] = set()
        self.marks: dict[str, int] = {}
        for name in NODES:
            self.add_or_delete_node(name)

    @rule(name=st.sampled_from(NODES))
    def add_or_delete_node(self, name: str) -> None:
        """Rules of a node that is gone stay, and block."""
        if name in self.nodes:
            listed = self.lab.api.get("/nodes")["data"]
            number = next(node["id"] for node in listed if node["name"] == name)
            self.lab.api.delete(f"/nodes/{number}")
        else:
            self.lab.api.post("/nodes", self.lab.nodes[name].draft())
        self.nodes ^= {name}
        self.marks.pop(name, None)

    @rule(ip=IPS, to=TARGETS, comment=COMMENTS)
    def create(self, ip: str, to: str, comment: str) -> None:
        answer = self.ask("POST", "/rules", {"ip": ip, "target_node": to, "comment": comment})
        if self.accepts(to) and ip not in self.stored:
            assert answer[0] == 200, answer
            self.stored[ip] = Entry(to, comment=comment)
        else:
            assert answer[0] == 400, answer

    @rule(old=IPS, new=IPS, to=TARGETS, is_enabled=st.booleans())
    def edit(self, old: str, new: str, to: str, is_enabled: bool) -> None:
        if old not in self.stored:
            return
        body = {"ip": new, "mac": "", "comment": "edited", "is_enabled": is_enabled}
        body |= {"target_node": to, "upload_limit_kbps": 0, "download_limit_kbps": 0}
        status, answer = self.ask("PUT", f"/rules/{self.number(old)}", body)
        taken = new != old and new in self.stored
        if taken or not (self.accepts(to) or to == self.stored[old].target):
            assert status == 400, answer
            return
        assert status == 200, answer
        del self.stored[old]
        self.stored[new] = Entry(to, is_enabled, "edited")

    @rule(ip=IPS, is_enabled=st.booleans())
    def switch(self, ip: str, is_enabled: bool) -> None:
        if ip in self.stored:
            body = {"is_enabled": is_enabled}
            self.lab.api.patch(f"/rules/{self.number(ip)}/status", body)
            self.stored[ip] = self.stored[ip]._replace(is_enabled=is_enabled)

    @rule(ip=IPS)
    def delete(self, ip: str) -> None:
        if ip in self.stored:
            self.lab.api.delete(f"/rules/{self.number(ip)}")
            del self.stored[ip]

    @rule(ips=SEVERAL)
    def delete_several(self, ips: list[str]) -> None:
        known = [ip for ip in ips if ip in self.stored]
        if known:
            assert self.lab.api.delete("/rules/batch", {"ips": known})["deleted"] == len(known)
        for ip in known:
            del self.stored[ip]

    @rule(ips=SEVERAL, is_enabled=st.booleans())
    def switch_several(self, ips: list[str], is_enabled: bool) -> None:
        known = [ip for ip in ips if ip in self.stored]
        if known:
            self.lab.api.patch("/rules/batch/status", {"ips": known, "is_enabled": is_enabled})
        for ip in known:
            self.stored[ip] = self.stored[ip]._replace(is_enabled=is_enabled)

    @rule(ips=SEVERAL, to=TARGETS)
    def send_several(self, ips: list[str], to: str) -> None:
        known = [ip for ip in ips if ip in self.stored]
        if known and self.accepts(to):
            body = {"ips": known, "update_target": True, "target_node": to}
            body |= {"update_upload": False, "update_download": False}
            self.lab.api.patch("/rules/batch", body)
            for ip in known:
                self.stored[ip] = self.stored[ip]._replace(target=to)

    @rule(
        rows=st.dictionaries(IPS, st.tuples(TARGETS, COMMENTS), max_size=5), replace=st.booleans()
    )
    def load(self, rows: dict[str, tuple[str, str]], replace: bool) -> None:
        before = {} if replace else self.stored
        good = {
            ip: Entry(to, comment=comment)
            for ip, (to, comment) in rows.items()
            if self.accepts(to) and ip not in before
        }
        lines = [f"{ip},{to},{comment}" for ip, (to, comment) in rows.items()]
        text = "\n".join([*lines, "10.77.0.300,DIRECT,bad"])
        answer = self.lab.api.post("/rules/import", {"text": text, "replace": replace})
        assert (answer["imported"], answer["skipped"]) == (len(good), len(rows) + 1 - len(good))
        if good:  # a replacement with bad rows only replaces nothing
            self.stored = before | good

    @invariant()
    def the_api_lists_the_model(self) -> None:
        if not hasattr(self, "stored"):
            return
        listed = {
            row["ip"]: Entry(row["target_node"], row["is_enabled"], row["comment"])
            for row in self.lab.api.get("/rules")["data"]
        }
        assert listed == self.stored

    @invariant()
    def the_kernel_holds_the_model(self) -> None:
        if not hasattr(self, "stored"):
            return
        hosts, nets = self.read("hosts"), ranges(self.read("nets"))
        enabled = {ip for ip, entry in self.stored.items() if entry.is_enabled}
        assert set(hosts) == {ip for ip in enabled if "/" not in ip}
        for address in PROBED:
            found = hosts.get(address, held(nets, IPv4Address(address)))
            covering = [ip for ip in enabled if IPv4Address(address) in IPv4Network(ip)]
            if not covering:
                assert found is None, address
                continue
            ruling = max(covering, key=lambda ip: IPv4Network(ip).prefixlen)
            assert found == self.mark(self.stored[ruling].target, found), (address, ruling)
        known = list(self.marks.values())
        assert len(set(known)) == len(known), "each target has a mark of its own"

    def mark(self, target: str, found: int | None) -> int | None:
        """Return the expected mark. The number of a node or WAN is learned when first seen."""
        if target == "DIRECT":
            return DIRECT
        if target == "REJECT" or not self.accepts(target):
            return REJECT
        kind = 2 if target.startswith("Interface:") else 1
        assert found is not None
        assert found >> 28 == kind, target
        return self.marks.setdefault(target, found)

    def accepts(self, target: str) -> bool:
        return target not in NODES or target in self.nodes

    def number(self, ip: str) -> int:
        return next(int(r["id"]) for r in self.lab.api.get("/rules")["data"] if r["ip"] == ip)

    def ask(self, method: str, path: str, body: Mapping[str, object]) -> tuple[int, Any]:
        answer = self.lab.api.ask(method, f"/svc/api/v1{path}", body)
        return answer.status, answer.body

    def read(self, name: str) -> dict[str, int]:
        """Return a map of the device's table: key as text -> mark."""
        text = self.lab.router.run("nft", "-j", "list", "map", "inet", "egressd", name).stdout
        content = next(item["map"] for item in json.loads(text)["nftables"] if "map" in item)
        return {written(key): mark for key, mark in content.get("elem", [])}


def written(key: Any) -> str:
    """Return an element's key, as in JSON, as first and last address."""
    if isinstance(key, str):
        return key
    if "prefix" in key:
        network = IPv4Network((key["prefix"]["addr"], key["prefix"]["len"]))
        return f"{network[0]}-{network[-1]}"
    return "-".join(key["range"])


def ranges(elements: Mapping[str, int]) -> dict[tuple[IPv4Address, IPv4Address], int]:
    found = {}
    for key, mark in elements.items():
        first, _, last = key.partition("-")
        found[IPv4Address(first), IPv4Address(last or first)] = mark
    return found


def held(nets: Mapping[tuple[IPv4Address, IPv4Address], int], ip: IPv4Address) -> int | None:
    marks = [mark for (first, last), mark in nets.items() if first <= ip <= last]
    assert len(marks) <= 1, "ranges overlap"
    return marks[0] if marks else None


def test_any_history_of_calls_is_the_same_in_the_kernel_and_in_the_list(namespaces: None) -> None:
    with Lab(LabSpec(nodes=NODES)) as History.lab:
        History.lab.start_egressd()
        run_state_machine_as_test(
            History,
            settings=settings(
                max_examples=15,
                stateful_step_count=25,
                deadline=None,
                # Each step runs on a real device, so failures are not shrunk.
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
