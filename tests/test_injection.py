"""P6: no input adds a directive, a shell word or a path to a generated text.

Every generator gets values made of the pieces that break such text, and its output is read back by
its reader's own rules: the result must be the intended value, and nothing more. A case passes if
the value is refused or appears in its place. 10^6 cases a generator:

    EGRESSD_INJECTION_CASES=1000000 .venv/bin/pytest --timeout=0 tests/test_injection.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from random import Random
from typing import Any

import msgspec
import pytest
from vici.protocol import Message  # type: ignore[import-untyped]

from egressd.model.desired import load
from egressd.model.device import InterfaceRoles
from egressd.model.errors import Invalid
from egressd.model.facts import Facts, Interface
from egressd.model.names import is_interface_name, node_name_problem
from egressd.model.nouns import Node, ProxyService, Rule, Whitelist
from egressd.model.plan import Change, Egress, GlobalPolicy, Limit, Patch, Plan, WhitelistPlan
from egressd.model.routing import PolicyRule, RouteEntry
from egressd.netd.kernel import fib
from egressd.netd.kernel.tc import messages
from egressd.netd.reconciler import validation
from egressd.planner import nft, shaping
from egressd.planner.compile import compile_plan
from egressd.planner.documents import document_of
from egressd.planner.lines import ipsec, pppd, xl2tpd
from egressd.planner.lines.daemon import daemon
from egressd.planner.lines.dial import Dial, check
from egressd.planner.options import options_of
from egressd.planner.outbounds import build
from egressd.planner.rule_set import encode, name_of
from egressd.planner.topology import Topology, discover
from tests.support.daemon_files import dial, options, sections
from tests.support.hostile_text import PIECES
from tests.support.nodes.configs import ACCEPTED, FOREIGN, node
from tests.support.random_edits import RESOLVERS

CASES = int(os.environ.get("EGRESSD_INJECTION_CASES", "1500"))


def evil(rng: Random) -> str:
    """Return a few of the pieces, or now and then 64 KiB of one."""
    if rng.random() < 0.0005:
        return rng.choice(PIECES) * (65_536 // 8)
    return "".join(rng.choices(PIECES, k=rng.randint(1, 5)))


def maybe(rng: Random, good: str) -> str:
    """Return a good value, one with something evil in it, or only that."""
    draw = rng.random()
    if draw < 0.5:
        return good
    at = rng.randint(0, len(good))
    return good[:at] + evil(rng) + good[at:] if draw < 0.8 else evil(rng)


# --- nftables. ---------------------------------------------------------------------------

_OCTETS = r"\d{1,3}(?:\.\d{1,3}){3}"
_NAME = r"\"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\""
_ATOM = rf"(?:{_OCTETS}(?:-{_OCTETS}|/\d{{1,2}})?|0x[0-9a-f]{{8}}|{_NAME}|(?:tcp|udp) \. \d+|\d+)"
_ELEMENT = re.compile(rf"{_ATOM}(?: \. {_ATOM})?(?: : (?:{_ATOM}|accept|goto [a-z_]+))?")
_STATEMENT = re.compile(
    r"(?:(add|delete) element inet egressd ([a-z0-9_]+) \{ (.*) \}"
    r"|flush (?:set|map) inet egressd [a-z0-9_]+)"
)


def read_script(text: str) -> dict[str, dict[str, str]]:
    """Return the elements that an nft script adds, by set; fail on any other statement."""
    found: dict[str, dict[str, str]] = {}
    assert text.isascii()
    for line in text.split("\n"):
        if not line:
            continue
        statement = _STATEMENT.fullmatch(line)
        assert statement, line
        action, name, body = statement.groups()
        for element in (body or "").split(", "):
            if body is None:
                break
            assert _ELEMENT.fullmatch(element), element
            key, _, value = element.partition(" : ")
            if action == "add":
                found.setdefault(name, {})[key] = value
    return found


def _rule_sets(rng: Random) -> dict[str, bytes]:
    content = encode(["example.com"])
    return {maybe(rng, name_of(content)): content}


def _problems(change: Change) -> list[str]:
    """Return netd's problems with a change that comes over its socket."""
    try:
        asked = msgspec.msgpack.decode(msgspec.msgpack.encode(change), type=Change)
    except msgspec.ValidationError as error:
        return [str(error)]
    assert asked == change
    return list(validation.problems(asked))


def _change(rng: Random) -> Change:
    mark = rng.choice((0x1000_0001, 0x2000_0001, 0x3000_0000, 0x4000_0000, 0, 1 << 40, -1))
    address, wider = maybe(rng, "10.77.0.11"), maybe(rng, "10.77.0.64-10.77.0.127")
    egress = maybe(rng, "wan1")
    return Change(
        base=0,
        revision=1,
        policy=GlobalPolicy(unmanaged=rng.choice((0, mark)), resolvers=(maybe(rng, "192.0.2.53"),)),
        whitelist=WhitelistPlan(
            mark=0x3000_0000,
            ranges=(maybe(rng, "192.0.2.0-192.0.2.255"),),
            rule_sets=_rule_sets(rng) if rng.random() < 0.3 else {},
        ),
        hosts=Patch(put={address: mark}, drop=(maybe(rng, "10.77.0.9"),)),
        nets=Patch(put={wider: mark}),
        egresses=Patch(put={egress: Egress(number=1, resolvers=(maybe(rng, "192.0.2.1"),))}),
        limits=Patch(
            put={maybe(rng, "10.77.0.11/32"): Limit(number=1, upload_kbps=8, download_kbps=8)}
        ),
    )  # fmt: skip


TOPOLOGY = Topology(
    lans=("lan0",), lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),), wans=("wan1",),
    direct_exits=("wan1",), routable=("wan1",),
)  # fmt: skip


def nft_case(rng: Random) -> bool:
    """Check netd's validation and the renderer together: the api is not trusted."""
    change = _change(rng)
    if _problems(change):
        return False
    plan = Plan()
    plan.apply(change)
    elements = nft.elements(plan, TOPOLOGY, {})
    expected = {name: content for name, content in elements.items() if content}
    assert read_script(nft.INET.update({}, elements)) == expected
    (address, mark), *_ = change.hosts.put.items()
    assert read_script(nft.host_update({}, change).script()) == {
        "hosts": {address: f"{mark:#010x}"}
    }
    assert str(IPv4Address(address)) == address
    return True


def limits_case(rng: Random) -> bool:
    """Check the netdev table of speed limits."""
    change = _change(rng)
    if _problems(change):
        return False
    (subject,) = change.limits.put
    elements = shaping.host_elements(change.limits.put, {1: 1}, shaping.DIRECTIONS)
    elements |= shaping.net_elements(change.limits.put, {1: 1})
    text = "".join(key + value for content in elements.values() for key, value in content.items())
    assert re.fullmatch(r"[0-9a-fx.:/ -]*", text), text
    assert str(IPv4Network(subject)).removesuffix("/32") == subject.removesuffix("/32")
    return True


def interface_case(rng: Random) -> bool:
    """Check names that the kernel allows, found on the machine itself."""
    name = maybe(rng, "eth1")[:15]
    address = (IPv4Interface("192.168.1.1/24"),)
    found = Interface(name=name, index=3, kind="", is_up=True, addresses=address)
    if not is_interface_name(name):
        return False
    topology = discover(Facts(interfaces={name: found}), InterfaceRoles())
    text = nft.load(nft.elements(Plan(), topology, {}))
    plain = nft.load(
        nft.elements(
            Plan(),
            discover(
                Facts(interfaces={"eth1": msgspec.structs.replace(found, name="eth1")}),
                InterfaceRoles(),
            ),
            {},
        )
    )
    assert text.replace(f'"{name}"', '"eth1"') == plain
    return True


# --- Files of lines' daemons. --------------------------------------------------------------


def pppd_case(rng: Random) -> bool:
    """Check pppd's options, L2TP's and PPTP's: a shell runs the pty command."""
    username, password = maybe(rng, "user"), maybe(rng, "secret")
    texts = {field: maybe(rng, "x") for field in ("server", "comment", "secret")}
    given = dial(username=username, password=password, **texts)
    words = {"user": [username.encode()], "password": [password.encode()]}
    render = rng.choice((pppd.l2tp_options, pppd.pptp_options))
    assert options(render(given)) == _plain_options(render) | words
    return True


@cache
def _plain_options(render: Callable[[Dial], str]) -> dict[str, list[bytes]]:
    return options(render(dial()))


def xl2tpd_case(rng: Random) -> bool:
    """Check that xl2tpd's configuration holds addresses and numbers only."""
    fields = ("name", "server", "username", "password", "secret", "comment", "interface")
    given = dial(**{field: maybe(rng, "x") for field in fields})
    assert sections(xl2tpd.configuration(given)) == sections(xl2tpd.configuration(dial()))
    return True


def daemon_case(rng: Random) -> bool:
    """Check the programs that run for a line, and the lines that are refused."""
    fields = {
        "name": maybe(rng, "l2tp_1"), "server": maybe(rng, "vpn.example"),
        "username": maybe(rng, "u"), "password": maybe(rng, "p"), "secret": maybe(rng, "s"),
        "interface": maybe(rng, "wan1"), "type": maybe(rng, "l2tp"),
    }  # fmt: skip
    given = dial(**fields)
    try:
        check(given.line)
    except Invalid:
        with pytest.raises(Invalid):
            daemon(given)
        return False
    made = daemon(given)
    assert made.argv in (pppd.ARGV, xl2tpd.ARGV)
    assert all("/" not in name for name in made.files)
    assert is_interface_name(given.line.name)
    for field in ("username", "password", "secret"):
        assert not re.match(r"@/|.*[\0\r\n]", fields[field], re.DOTALL)
    return True


def vici_case(rng: Random) -> bool:
    """Check that charon reads the secret that was sent: VICI counts its bytes."""
    secret = maybe(rng, "secret")
    if len(secret.encode()) > 0xFFFF:
        return False  # longer than VICI's length fields allow; the API takes 255 characters
    said = ipsec.shared_secret(IPv4Address("203.0.113.9"), secret)
    heard = Message.deserialize(_Transport(Message.serialize(said)))
    assert heard == {
        "id": b"server-203.0.113.9",
        "type": b"IKE",
        "data": secret.encode(),
        "owners": [b"203.0.113.9"],
    }
    return True


def _Transport(data: bytes) -> Any:
    from vici.protocol import FiniteStream

    return FiniteStream(data)


# --- The engine. -------------------------------------------------------------------------

_HEADERS = ("headers",)


def _keys(value: Any, at: str = "") -> set[str]:
    """Return every key of a document with its place, except the names of headers, which users
    choose.
    """
    if isinstance(value, dict):
        if at.endswith(_HEADERS):
            return set()
        inner = {f"{at}.{key}" for key in value}
        return inner.union(*(_keys(item, f"{at}.{key}") for key, item in value.items()))
    if isinstance(value, list):
        return set().union(*(_keys(item, at) for item in value)) if value else set()
    return set()


KNOWN: dict[str, set[str]] = {}
for _protocol, _config in ACCEPTED:
    for _udp in (True, False):
        _made = options_of(build(node(_protocol, {"udp": _udp, **_config})))
        KNOWN.setdefault(_protocol, set()).update(_keys(_made))


def _poison(rng: Random, value: Any) -> Any:
    """Return the value with something evil somewhere in it."""
    if isinstance(value, dict):
        if not value or rng.random() < 0.3:
            key = rng.choice((*FOREIGN, "tor", "key_path", "rule_set", "type", evil(rng)))
            return {**value, key: rng.choice((evil(rng), 7, {"path": "/etc/shadow"}))}
        key = rng.choice(list(value))
        return {**value, key: _poison(rng, value[key])}
    if isinstance(value, list) and value:
        return [_poison(rng, value[0]), *value[1:]]
    return maybe(rng, value) if isinstance(value, str) else evil(rng)


def outbound_case(rng: Random) -> bool:
    """Check a node's configuration, for every protocol: only known keys, each in its
    known place.
    """
    protocol, config = rng.choice(ACCEPTED)
    try:
        made = options_of(build(node(protocol, _poison(rng, config))))
    except Invalid:
        return False
    assert _keys(made) <= KNOWN[protocol], _keys(made) - KNOWN[protocol]
    assert msgspec.json.decode(msgspec.json.encode(made)) == made
    return True


def document_case(rng: Random) -> bool:
    """Check that user-defined names reach no document of the engine, and no key of the plan."""
    name, group = maybe(rng, "tokyo"), maybe(rng, "fast")
    if node_name_problem(name) or node_name_problem(group):
        return False

    def plan(name: str, group: str, comment: str) -> Plan:
        config = json.dumps({"server": "192.0.2.7", "port": 1080})
        one = Node(
            id=1, name=name, protocol="socks5", config_json=config, group=group, created_at=""
        )
        rules = {
            1: Rule(id=1, ip="10.0.0.1/32", target_node=name, comment=comment, mac=comment),
            2: Rule(id=2, ip="10.0.0.2/32", target_node=f"Group_{group}"),
        }
        tables: dict[str, Any] = {
            "nodes": {1: one}, "rules": rules, "numbers": {f"Group_{group}": 1},
        }  # fmt: skip
        return compile_plan(load(tables, 1), RESOLVERS)

    made = plan(name, group, evil(rng))
    assert made == plan("tokyo", "fast", "")
    return True


def service_case(rng: Random) -> bool:
    """Check that a proxy service's user name and password appear unchanged in its document."""
    username, password = maybe(rng, "u"), maybe(rng, "p")
    service = ProxyService(
        id=1, name=maybe(rng, "s"), outbound_interface="wan1", port=1080,
        username=username, password=password,
    )  # fmt: skip
    tables: dict[str, Any] = {"services": {1: service}, "numbers": {"Interface:wan1": 1}}
    with suppress(Invalid, KeyError):
        found = compile_plan(load(tables, 1), RESOLVERS).instances["service:1"]
        document = json.loads(document_of(found.work))
        users = [user for inbound in document["inbounds"] for user in inbound.get("users", [])]
        assert users == [{"username": username, "password": password}]
        plain = msgspec.structs.replace(service, username="u", password="p", name="s")
        other = compile_plan(load({**tables, "services": {1: plain}}, 1), RESOLVERS)
        assert _keys(document) == _keys(json.loads(document_of(other.instances["service:1"].work)))
        return True
    return False


def whitelist_case(rng: Random) -> bool:
    """Check that whitelists that were stored unchecked still add nothing."""
    listed = Whitelist(domains=maybe(rng, "example.com"), ips=maybe(rng, "192.0.2.0/24"))
    try:
        plan = compile_plan(load({"whitelist": {"": listed}}, 1), RESOLVERS)
    except (Invalid, ValueError, KeyError):
        return False
    assert not _problems(Change(base=0, revision=1, whitelist=plan.whitelist))
    return True


# --- Netlink: routes, policy rules, queues. -----------------------------------------------


def _address(rng: Random) -> IPv4Address:
    return IPv4Address(rng.getrandbits(32))


def route_case(rng: Random) -> bool:
    """Check that a route's message to the kernel decodes to the same route."""
    device = rng.choice(("", "lan0", "wan1"))
    route = RouteEntry(
        table=rng.choice((99, 100, 1000 + rng.getrandbits(16))),
        destination=IPv4Network((rng.getrandbits(32), rng.randint(0, 32)), strict=False),
        kind=rng.choice(("unicast", "local", "unreachable")),
        device=device,
        gateway=rng.choice((None, _address(rng))),
        metric=rng.getrandbits(32),
    )
    indexes = {"lan0": 2, "wan1": 3}
    body = fib.encode_route(route, indexes)
    assert fib.decode_route(body, {2: "lan0", 3: "wan1"}) == route
    return True


def rule_case(rng: Random) -> bool:
    """Check that a policy rule's message to the kernel decodes to the same rule, for any interface
    name.
    """
    name = maybe(rng, "lan0")
    if not is_interface_name(name):
        return False
    is_look_up = rng.random() < 0.5
    rule = PolicyRule(
        family=4,
        priority=rng.getrandbits(15),
        action="lookup" if is_look_up else "prohibit",
        table=rng.getrandbits(17) if is_look_up else 0,
        mark=(mark := rng.getrandbits(32)),
        mask=0xFFFF_FFFF if mark else 0,
        iif=name,
        uids=rng.choice((None, (990, 990))),
        source=rng.choice((None, _address(rng))),
    )
    assert fib.decode_rule(fib.encode_rule(rule)) == rule
    return True


def queue_case(rng: Random) -> bool:
    """Check a limit's class and queue, as the kernel lists them."""
    shape = shaping.shape(rng.choice((1, 8, rng.randint(1, 10_000_000), 10_000_000)))
    handle, index = rng.getrandbits(32), rng.randint(1, 1 << 20)
    wanted = messages.class_of(shape)
    body = messages.htb_class(index, handle, wanted)
    assert list(messages.decode_classes([body])) == [(handle, wanted)]
    assert messages.interface_of(body) == index
    leaf = messages.address(index, handle, 1) + messages.fq_codel(shape, is_new=True)
    assert list(messages.decode_qdiscs([leaf])) == [
        messages.QdiscMessage(index, handle, 1, "fq_codel", shape.queue)
    ]
    return True


Case = Callable[[Random], bool]
GENERATORS: tuple[Case, ...] = (
    nft_case, limits_case, interface_case, pppd_case, xl2tpd_case, daemon_case, vici_case,
    outbound_case, document_case, service_case, whitelist_case, route_case, rule_case, queue_case,
)  # fmt: skip


@pytest.mark.parametrize("case", GENERATORS, ids=lambda case: case.__name__.removesuffix("_case"))
def test_p6_no_input_adds_to_generated_text(case: Case) -> None:
    rng = Random(6)
    passed = sum(case(rng) for _ in range(CASES))
    assert passed > CASES / 1000, "nearly everything was refused: nothing was tested"


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_p6_no_single_piece_breaks_the_readers(piece: str) -> None:
    for field in ("username", "password"):
        found = options(pppd.pptp_options(dial(**{field: piece})))
        assert found["pty"] == options(pppd.pptp_options(dial()))["pty"]
    hosts: dict[str, int] = {piece: 0x3000_0000}
    change = Change(base=0, revision=1, hosts=Patch(put=hosts))
    is_address = piece == "10.77.0.1"
    assert bool(_problems(change)) is not is_address


def test_the_reader_of_nft_scripts_detects_additions() -> None:
    for line in (
        "add element inet egressd hosts { 10.0.0.1 : 0x30000000 } ; flush ruleset",
        'add element inet egressd lanif { "eth*" }',
        "add rule inet egressd forward accept",
        "add element inet egressd hosts { 10.0.0.1 : 0x30000000, } accept { }",
    ):
        with pytest.raises(AssertionError):
            read_script(line + "\n")
