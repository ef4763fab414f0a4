"""egressd's nftables table in the kernel, compared with the planner's text.

What ``nft -j list table`` prints and what the planner wrote are brought to one form: sets and maps
with their types, comments and elements, chains with their hooks and comments, and of each rule the
sets that it names and its verdict. Releases of nftables print the expressions of a rule
differently; `tests.lab.ruleset` compares their bytecode, so they are left out here.

Elements of sets with ``flags dynamic`` come from packets and are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any, Final, NamedTuple

import pytest

from egressd.netd.kernel.nft import HOLD_CHAINS, HOLD_COMMENT, Nft
from egressd.planner import nft, shaping
from egressd.planner.registry import NFT_HOLD_TABLE, NFT_TABLE
from egressd.planner.shaping import Hook
from tests.support.configurations import CONFIGURATIONS, LAN, LEASED
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_PRIORITIES: Final = {"raw": -300, "dstnat": -100, "filter": 0, "srcnat": 100}
"""Names of priorities (nft(8)), at the hooks where the planner uses them."""
_TYPES: Final = {"@ih,64,16": "integer", "meta skuid": "uid", "meta mark": "mark"}
"""Types that are given by an expression (``typeof``)."""
_FILLED_BY_RULES: Final = "@relay_ports"
"""A map that rules fill: nftables 1.0.6 leaves such a statement out of its JSON."""
_VERDICTS: Final = (
    "accept", "drop", "return", "goto", "jump", "reject", "masquerade", "dnat", "snat", "tproxy",
    "fwd",
)  # fmt: skip
_NAMED: Final = re.compile(r"@(?!ih\b|th\b|nh\b)\w+")
_VERDICT: Final = re.compile(rf"\b({'|'.join(_VERDICTS)})\b(?: (\w+))?")


class Table(NamedTuple):
    """A table in the form that is compared."""

    comment: str
    sets: dict[str, dict[str, Any]]
    chains: dict[str, dict[str, Any]]
    rules: dict[str, list[tuple[list[str], list[str]]]]
    """Chain -> for each rule the sets and maps that it names, and its verdicts."""


# --- The planner's text. ---------------------------------------------------------------------


def planned(text: str) -> Table:
    """Return the table that a whole load leads to."""
    comment, table = "", Table("", {}, {}, {})
    for line in text.splitlines():
        does, kind, *_ = line.split()
        name, _, rest = line.split(maxsplit=4)[-1].partition(" ")
        if does == "add" and kind == "table":
            comment = _comment(line)
        elif does == "add" and kind in {"set", "map"}:
            table.sets[name] = _planned_set(kind, rest)
        elif does == "add" and kind == "chain":
            table.chains[name] = _planned_chain(rest)
        elif does == "delete" and kind in {"chain", "map"}:
            (table.chains if kind == "chain" else table.sets).pop(name)
        elif does == "add" and kind == "rule":
            table.rules.setdefault(name, []).append(_planned_rule(rest))
        elif does == "add" and kind == "element":
            items = rest.removeprefix("{ ").removesuffix(" }").split(", ")
            table.sets[name]["elements"] = sorted(_planned_element(item) for item in items)
    return table._replace(comment=comment)


def _comment(block: str) -> str:
    found = re.search(r'comment "(.*)";', block)
    return found[1] if found else ""


def _planned_set(kind: str, block: str) -> dict[str, Any]:
    first, *others = re.sub(r' comment ".*";', "", block).strip("{ };").split("; ")
    key, *value = first.removeprefix("typeof ").removeprefix("type ").split(" : ")
    options = dict(other.partition(" ")[::2] for other in others)
    flags = options.get("flags", "").split(",")
    timeout = options.get("timeout", "")
    return {
        "kind": kind,
        "key": [_TYPES.get(part, part) for part in key.split(" . ")],
        "value": [_TYPES.get(part, part) for part in value],
        "has_intervals": "interval" in flags,
        "has_timeout": "timeout" in flags,
        "has_counter": "counter" in options,
        "size": int(options.get("size", 0)),
        "timeout": int(timeout[:-1]) * _SECONDS[timeout[-1]] if timeout else 0,
        "comment": _comment(block),
        "elements": [],
    }


def _planned_chain(block: str) -> dict[str, Any]:
    found = re.search(r"type (\w+) hook (\w+)(?: device \S+)? priority (\S+);", block)
    place: tuple[str | int, ...] = ()
    if found:
        kind, hook, priority = found.groups()
        number = _PRIORITIES[priority] if priority in _PRIORITIES else int(priority)
        place = (kind, hook, number)
    return {"place": place, "comment": _comment(block)}


def _planned_rule(rule: str) -> tuple[list[str], list[str]]:
    names = sorted(name for name in _NAMED.findall(rule) if name != _FILLED_BY_RULES)
    verdicts = [
        f"{word} {target}" if word in {"goto", "jump"} else word
        for word, target in _VERDICT.findall(re.sub(r"\bct status \w+", "", rule))
    ]
    return names, verdicts


def _planned_element(item: str) -> str:
    key, _, value = item.partition(" : ")
    parts = [_plain(part) for part in key.split(" . ")]
    return " . ".join(parts) + (f" : {_plain(value)}" if value else "")


def _plain(part: str) -> str:
    """Return a part of an element: marks as numbers, networks and single addresses as ranges."""
    part = part.strip('"')
    if re.fullmatch(r"0x[0-9a-f]+", part):
        return str(int(part, 16))
    if re.fullmatch(r"[\d.]+/\d+", part):
        network = IPv4Network(part)
        return f"{network[0]}-{network[-1]}"
    if re.fullmatch(r"([\d.]+)-\1", part):
        return part.partition("-")[0]
    return part


# --- The kernel's table. ---------------------------------------------------------------------


def loaded(family: str, name: str) -> Table:
    """Return the table as nftables lists it in JSON."""
    objects = _listed(family, name)
    comments = _comments(family, name)
    sets, chains, rules = {}, {}, {}  # type: ignore[var-annotated]
    for each in objects:
        ((kind, content),) = each.items()
        if kind in {"set", "map"}:
            sets[content["name"]] = _loaded_set(kind, content)
        elif kind == "chain":
            place = (content["type"], content["hook"], content["prio"]) if "hook" in content else ()
            chains[content["name"]] = {
                "place": place,
                "comment": content.get("comment", comments.get(content["name"], "")),
            }
        elif kind == "rule":
            rules.setdefault(content["chain"], []).append(_loaded_rule(content["expr"]))
    return Table(comments[""], sets, chains, rules)


def _listed(family: str, name: str) -> list[dict[str, Any]]:
    argv = ["nft", "-j", "list", "table", family, name]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    listed: list[dict[str, Any]] = json.loads(done.stdout)["nftables"]
    return listed


def _comments(family: str, name: str) -> dict[str, str]:
    """Return the comments of chains, and of the table by an empty name: nftables 1.0.6 has them in
    its text only.
    """
    argv = ["nft", "-t", "list", "table", family, name]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    of_table = re.search(r'^table .*\{(?:\s*#.*)?\n(?:\tflags .*\n)?\tcomment "(.*)"', text)
    chains = re.findall(r'^\tchain (\w+) \{\n\t\tcomment "(.*)"', text, re.MULTILINE)
    return {"": of_table[1] if of_table else "", **dict(chains)}


def _loaded_set(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    key, flags = content["type"], content.get("flags", [])
    return {
        "kind": kind,
        "key": [_type(part) for part in (key if isinstance(key, list) else [key])],
        "value": [_type(content["map"])] if "map" in content else [],
        "has_intervals": "interval" in flags,
        "has_timeout": "timeout" in flags,
        "has_counter": any("counter" in each for each in content.get("stmt", ())),
        "size": content.get("size", 0),
        "timeout": content.get("timeout", 0),
        "comment": content.get("comment", ""),
        "elements": sorted(map(_loaded_element, content.get("elem", ()))),
    }


def _type(found: Any) -> str:
    match found:
        case {"typeof": {"payload": {"base": base, "offset": offset, "len": length}}}:
            return _TYPES[f"@{base},{offset},{length}"]
        case {"typeof": {"meta": {"key": key}}}:
            return _TYPES[f"meta {key}"]
    return str(found)


def _loaded_element(found: Any) -> str:
    match found:
        case [key, value]:
            return f"{_loaded_element(key)} : {_loaded_element(value)}"
        case {"elem": {"val": value}}:
            return _loaded_element(value)
        case {"concat": parts}:
            return " . ".join(map(_loaded_element, parts))
        case {"range": [first, last]}:
            return f"{first}-{last}"
        case {"prefix": {"addr": address, "len": length}}:
            return _plain(f"{address}/{length}")
        case {"goto": {"target": target}}:
            return f"goto {target}"
        case {"accept": None}:
            return "accept"
    return str(found)


def _loaded_rule(expressions: list[Any]) -> tuple[list[str], list[str]]:
    names, verdicts = [], []
    for kind, content in _walk(expressions):
        if kind == "map" and isinstance(content, dict) and "op" in content:
            continue
        if isinstance(content, str) and _NAMED.fullmatch(content) and content != _FILLED_BY_RULES:
            names.append(content)
        if kind in _VERDICTS:
            verdicts.append(f"{kind} {content['target']}" if kind in {"goto", "jump"} else kind)
    return sorted(names), verdicts


def _walk(found: Any, kind: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each part of an expression with the name that it is under."""
    yield kind, found
    if isinstance(found, dict):
        for name, content in found.items():
            yield from _walk(content, name)
    elif isinstance(found, list):
        for content in found:
            yield from _walk(content)


# --- Tests. ----------------------------------------------------------------------------------


LOADS: Final = {
    **{name: nft.load(wanted) for name, wanted in CONFIGURATIONS.items()},
    "leased": nft.load(LEASED, is_gated=True),
}


@pytest.mark.parametrize("name", LOADS)
def test_the_kernel_has_the_table_written_by_the_planner(namespace: Namespace, name: str) -> None:
    text = LOADS[name]

    def body() -> Table:
        Nft().run(text)
        return loaded("inet", NFT_TABLE)

    found, wanted = namespace.run(body), planned(text)
    assert found.comment == wanted.comment
    assert found.sets == wanted.sets
    assert found.chains == wanted.chains
    assert found.rules == wanted.rules


def test_small_transactions_lead_to_the_same_table_as_a_load(namespace: Namespace) -> None:
    """From each configuration to each other, by elements where netd changes elements."""

    def contents() -> dict[str, list[str]]:
        found = {}
        for name, wanted in CONFIGURATIONS.items():
            Nft().run(nft.afresh(nft.load(wanted)))
            found[name] = _content()
        return found

    def differing(before: str, fresh: dict[str, list[str]]) -> list[str]:
        kernel, present, found = Nft(), CONFIGURATIONS[before], []
        for after, wanted in CONFIGURATIONS.items():
            kernel.run(nft.load(present))
            if nft.needs_load(present, wanted):
                kernel.run(nft.load(wanted))
            elif text := nft.INET.update(present, wanted):
                kernel.run(text)
            if _content() != fresh[after]:
                found.append(f"{before} to {after}")
        return found

    fresh = namespace.run(contents)
    assert [each for name in CONFIGURATIONS for each in namespace.run(differing, name, fresh)] == []


def test_a_gate_comes_and_goes_with_its_plan(namespace: Namespace) -> None:
    def body() -> tuple[list[str], list[str], str, list[str]]:
        kernel = Nft()
        kernel.run(nft.load(LEASED))
        without = _content()
        for _ in range(2):
            kernel.run(nft.load(LEASED, is_gated=True))
            kernel.run("add element inet egressd lease { ipv4 timeout 1h }\n")
        lease = kernel.listed("set inet egressd lease")
        for _ in range(2):
            kernel.run(nft.load(LEASED, had_gate=True))
        return without, _content(), lease, list(kernel.elements("lease") or ())

    without, after, lease, gone = namespace.run(body)
    assert after == without
    assert "flags timeout" in lease
    assert gone == []


def test_a_load_leaves_the_lease_as_it_is(namespace: Namespace) -> None:
    def body() -> list[str]:
        kernel = Nft()
        kernel.run(nft.load(LEASED, is_gated=True))
        kernel.run("add element inet egressd lease { ipv4 timeout 1h }\n")
        kernel.run(nft.load(LEASED, is_gated=True))
        return list(kernel.elements("lease") or ())

    (left,) = namespace.run(body)
    assert left == "2 timeout 3600s"


def _content() -> list[str]:
    """Return all that nftables lists, in any order but that of rules in their chain."""
    rules: dict[str, int] = {}
    listed = []
    for each in _listed("inet", NFT_TABLE):
        ((kind, content),) = each.items()
        content.pop("handle", None)
        if kind == "rule":
            rules[content["chain"]] = content["index"] = rules.get(content["chain"], 0) + 1
        if isinstance(content.get("elem"), list):
            content["elem"].sort(key=json.dumps)
        listed.append(json.dumps(each, sort_keys=True))
    return sorted(listed)


def test_the_table_of_speed_limits_has_its_comments(namespace: Namespace) -> None:
    namespace.shell("ip link add lan0 type veth peer name lan1")
    hooks = [Hook(7, "lan0"), Hook(8, "lan1")]
    text = shaping.chains(hooks, [LAN], ())

    def body() -> Table:
        Nft().run(text)
        return loaded("netdev", NFT_TABLE)

    found, wanted = namespace.run(body), planned(text)
    assert found.comment
    assert all(each["comment"] for each in (*found.sets.values(), *found.chains.values()))
    assert found == wanted


def test_the_nat_table_has_its_comments(namespace: Namespace) -> None:
    def body() -> Table:
        kernel = Nft()
        assert kernel.claim()
        kernel.hold_translation()
        return loaded("inet", NFT_HOLD_TABLE)

    found = namespace.run(body)
    assert found.comment == HOLD_COMMENT
    comments = {name: each["comment"] for name, each in found.chains.items()}
    assert comments == {name: each.comment for name, each in HOLD_CHAINS.items()}


def test_a_table_without_comments_is_loaded_in_place(namespace: Namespace) -> None:
    """An earlier version made it: the kernel keeps its objects, and so none gets a comment."""
    text = nft.load(CONFIGURATIONS["nodes"])

    def body() -> tuple[Table, Table]:
        kernel = Nft()
        kernel.run(re.sub(r' ?comment ".*";', "", text).replace(" { }", ""))
        before = loaded("inet", NFT_TABLE)
        kernel.run(text)
        return before, loaded("inet", NFT_TABLE)

    before, after = namespace.run(body)
    assert before.comment == ""
    assert after == before
    wanted = planned(text)
    assert after.rules == wanted.rules


def test_ranges_are_compared_by_their_ends() -> None:
    assert _plain("10.0.0.0/24") == _plain("10.0.0.0-10.0.0.255") == "10.0.0.0-10.0.0.255"
    assert _plain("10.0.0.9-10.0.0.9") == _plain("10.0.0.9") == "10.0.0.9"
    assert _plain("0x10000001") == str(0x1000_0001)
