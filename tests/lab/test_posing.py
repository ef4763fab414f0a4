"""Hosts that pose as a router, or as the far end of another flow, are ignored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd_lab import forgery
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.packets import UDP, ipv4, new_token, udp
from egressd_lab.process import Program
from egressd_lab.spec import DISCARD_PORT, SERVERS6, LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.nodes.served import NAME, every

pytestmark = pytest.mark.lab

POSER = "fe80::bad"
PREFIX = "2001:db8:bad::/64"
PORT = 40_000
QUIC_PORT = 8443
GATEWAY6 = "fe80::9a7e"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        quic = every(*lab.authority.certificate(NAME))["hysteria2"]
        (address,) = lab.add_engine_node("quic", [{**quic.inbound, "listen_port": QUIC_PORT}])
        lab.start_egressd()
        add_nodes(lab)
        config = json.dumps({"server": address, "port": QUIC_PORT, **quic.fields})
        draft = {"name": "quic", "protocol": "hysteria2", "config_json": config, "group": ""}
        lab.api.post("/nodes", draft)
        yield lab


def server_of(lab: Lab) -> str:
    """Return the address of the server of the node ``quic``."""
    nodes = {node["name"]: node for node in lab.api.get("/nodes")["data"]}
    return str(json.loads(nodes["quic"]["config_json"])["server"])


@pytest.fixture(autouse=True)
def forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget the posing hosts and delete all rules after the test."""
    yield
    if "lab" in request.fixturenames:
        lab = request.getfixturevalue("lab")
        lab.router.run("nft", "flush", "set", "inet", "egressd", "advertised")
        for rule in lab.api.get("/rules")["data"]:
            lab.api.delete(f"/rules/{rule['id']}")


def advertise(host: Host, interface: str, source: str = POSER) -> None:
    host.emit(interface, forgery.router_advertisement(source, PREFIX))


def learned(lab: Lab, interface: str) -> str:
    """Return the addresses and default routes that the router has from an advertisement."""
    addresses = lab.router.run("ip", "-6", "-o", "address", "show", "dev", interface).stdout
    routes = lab.router.run("ip", "-6", "route", "show", "default", "dev", interface).stdout
    return "".join(re.findall(r"2001:db8:bad\S*", addresses)) + routes


def refused(lab: Lab) -> str:
    return lab.router.run("nft", "list", "set", "inet", "egressd", "advertised").stdout


def problems(lab: Lab) -> list[str]:
    found: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
    return found


# --- As a router. ----------------------------------------------------------------------------


def test_router_advertisements_from_a_lan_are_ignored(lab: Lab) -> None:
    before = learned(lab, "lan0")
    advertise(lab.client(1).host, "eth0")
    eventually(lambda: POSER in refused(lab))
    assert learned(lab, "lan0") == before
    eventually(lambda: any(f"{POSER} poses as an IPv6 router" in p for p in problems(lab)), 15)


def test_control_router_advertisements_from_a_wan_are_accepted(lab: Lab) -> None:
    """This is the positive control: an advertisement is accepted there, and not lost elsewhere."""
    advertise(lab.internet, lab.wan(1).far)
    eventually(lambda: "2001:db8:bad" in learned(lab, "wan1"))
    lab.router.run("ip", "-6", "route", "flush", "dev", "wan1", "proto", "ra")
    lab.router.run("ip", "-6", "address", "flush", "dev", "wan1", "to", PREFIX)


NETWORKD = """
mount -o remount,ro /sys
mount -t tmpfs none /run/systemd && mkdir -p /run/systemd/netif/links /run/systemd/network
for name in lan0 wan1; do
    printf '[Match]\\nName=%s\\n[Network]\\nIPv6AcceptRA=yes\\nKeepConfiguration=yes\\n' $name
done | split -l 5 - /run/systemd/network/link --additional-suffix=.network
exec /lib/systemd/systemd-networkd
"""


def test_systemd_networkd_ignores_router_advertisements_from_a_lan(lab: Lab) -> None:
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", NETWORKD]
    networkd = Program(lab.router.namespace, argv, lab.folder / "networkd.log")
    networkd.start()

    def is_heard(prefix: str) -> bool:
        advertise(lab.client(1).host, "eth0")
        lab.internet.emit(lab.wan(1).far, forgery.router_advertisement(POSER, f"{prefix}::/64"))
        return prefix in learned(lab, "wan1")

    try:
        for number in range(4):  # each after the LAN's earlier ones
            eventually(lambda number=number: is_heard(f"2001:db8:bad:{number}"), 30)  # type: ignore[misc]
        assert POSER in refused(lab)
        assert learned(lab, "lan0") == ""
    finally:
        networkd.kill()
        # networkd leaves the kernel's own listening off.
        lab.router.sysctl("net/ipv6/conf/wan1/accept_ra", 1)
        lab.router.run("ip", "-6", "route", "flush", "dev", "wan1", "proto", "ra")
        lab.router.run("ip", "-6", "address", "flush", "dev", "wan1", "to", "2001:db8:bad::/48")


def test_learned_routes_are_deleted_and_parameters_restored(lab: Lab) -> None:
    """It happens when the interface comes back, or another program sets it up."""
    names = ("accept_ra", "autoconf", "accept_redirects")
    for name in names:
        lab.router.sysctl(f"net/ipv6/conf/lan0/{name}", 1)
    way = ("default", "via", POSER, "dev", "lan0", "proto", "ra")
    lab.router.run("ip", "-6", "route", "add", *way)
    eventually(lambda: learned(lab, "lan0") == "")
    for name in names:
        path = f"/proc/sys/net/ipv6/conf/lan0/{name}"
        assert lab.router.run("cat", path).stdout == "0\n"


def test_redirects_and_dhcpv6_from_a_lan_are_ignored(lab: Lab) -> None:
    host = lab.client(1).host
    router = lab.router.run("ip", "-6", "-o", "address", "show", "dev", "lan0", "scope", "link")
    (link,) = re.findall(r"inet6 (\S+)/64", router.stdout)
    for number, packet in enumerate(
        (
            forgery.redirect6(POSER + "1", link, SERVERS6[0], POSER),
            forgery.dhcpv6(POSER + "2", link, b"\x07"),
        ),
        1,
    ):
        host.emit("eth0", packet, mac=lab.router.mac("lan0"))
        eventually(lambda number=number: POSER + str(number) in refused(lab))  # type: ignore[misc]
    assert lab.router.run("cat", "/proc/sys/net/ipv4/conf/lan0/accept_redirects").stdout == "0\n"


@pytest.mark.parametrize(
    ("family", "node", "server"), [("-6", "six", SERVERS6[0]), ("-4", "ss", "")]
)
def test_the_engine_leaves_by_a_wan_or_not_at_all(
    lab: Lab, family: str, node: str, server: str
) -> None:
    """It does so although this machine's own default route leads to a LAN host."""
    poser, gateway = lab.client(2).host, POSER if family == "-6" else "10.77.0.200"
    server = server or lab.nodes["ss"].address
    add_six(lab)
    send(lab, 1, node)
    neighbour = (gateway, "dev", "lan0", "lladdr", poser.mac("eth0").hex(":"), "nud", "permanent")
    with leading_to(lab, family, gateway, neighbour), poser.capture("eth0") as capture:
        capture.prove()
        assert not lab.client(1).http(f"http://{SERVER}/", timeout=1).ok
        assert capture.flows(destination=server) == []


def add_six(lab: Lab) -> None:
    """Add a node whose server has an IPv6 address that no host has."""
    config = json.dumps(
        {"server": SERVERS6[0], "port": 8388, "cipher": "aes-256-gcm", "password": "p"}
    )
    if "six" not in {node["name"] for node in lab.api.get("/nodes")["data"]}:
        lab.api.post(
            "/nodes", {"name": "six", "protocol": "ss", "config_json": config, "group": ""}
        )


@contextmanager
def leading_to(lab: Lab, family: str, gateway: str, neighbour: tuple[str, ...]) -> Iterator[None]:
    """Let the main table prefer a gateway in the LAN."""
    way = ("default", "via", gateway, "dev", "lan0", "metric", "1")
    lab.router.run("ip", family, "neighbour", "replace", *neighbour)
    lab.router.run("ip", family, "route", "add", *way)
    try:
        yield
    finally:
        lab.router.run("ip", family, "route", "del", *way)
        lab.router.run("ip", family, "neighbour", "del", gateway, "dev", "lan0")


# --- In one-arm use, where LAN and WAN are one. -------------------------------------------------


@pytest.mark.parametrize("is_named", [True, False])
def test_in_one_arm_use_only_the_configured_router_is_accepted(
    namespaces: None, is_named: bool
) -> None:
    with Lab(LabSpec(nodes=(), one_arm=True, wans=1)) as lab:
        named = {"gateways6": {"lan0": GATEWAY6}} if is_named else {}
        lab.start_egressd({"wan": {"interfaces": ["lan0"], **named}})
        host = lab.client(1).host
        advertise(host, "eth0")
        eventually(lambda: POSER in refused(lab))
        advertise(host, "eth0", GATEWAY6)
        if is_named:
            eventually(lambda: GATEWAY6 in learned(lab, "lan0"))
            assert GATEWAY6 not in refused(lab)
        else:
            eventually(lambda: GATEWAY6 in refused(lab))
            assert GATEWAY6 not in learned(lab, "lan0")
            hint = f'gateways6 = {{ lan0 = "{GATEWAY6}" }}'
            eventually(lambda: any(hint in problem for problem in problems(lab)), 15)
        assert POSER not in learned(lab, "lan0")


# --- As the far end of a client's flow. ----------------------------------------------------------


@pytest.mark.parametrize("target", ["Interface:wan1", "DIRECT", "ss"])
@pytest.mark.parametrize("place", ["lan", "wan"])
def test_forged_answers_of_the_remote_end_are_dropped(lab: Lab, target: str, place: str) -> None:
    """The forger is a LAN host beside the router, or a host next to a WAN that knows the client's
    address.
    """
    send(lab, 1, target)
    client, wan = lab.client(1), lab.wan(1)
    is_routed = target != "ss"
    with client.host.capture("eth0") as heard, lab.internet.capture(wan.far) as sent:

        def ask() -> bool:
            # The server never answers, so that only the forger does.
            client.raw(client.address, SERVER, port=DISCARD_PORT, source_port=PORT)
            return not is_routed or bool(sent.flows(destination=SERVER, port=DISCARD_PORT))

        # The flow of the test before has the same ports: its packets are dropped until netd has
        # deleted it.
        eventually(ask)
        ask()
        token = new_token()
        if place == "lan":
            to = wan.address if is_routed else client.address
            forged = ipv4(SERVER, to, UDP, udp(DISCARD_PORT, PORT, token.encode()))
            lab.client(2).host.emit("eth0", forged, mac=lab.router.mac("lan0"))
        else:
            forged = ipv4(SERVER, client.address, UDP, udp(DISCARD_PORT, PORT, token.encode()))
            lab.internet.emit(wan.far, forged, mac=lab.router.mac("wan1"))
        if is_routed and place == "lan":
            # The far end's own answer arrives.
            true = new_token()
            answer = ipv4(SERVER, wan.address, UDP, udp(DISCARD_PORT, PORT, true.encode()))
            lab.internet.emit(wan.far, answer, mac=lab.router.mac("wan1"))
            eventually(lambda: bool(heard.flows(true)))
        heard.prove()
        assert heard.flows(token) == []


# --- ICMP errors about the engine's own datagrams. --------------------------------------------

CODES = (forgery.PORT_UNREACHABLE, forgery.HOST_PROHIBITED, 13)


def sockets_towards(lab: Lab, address: str) -> set[tuple[str, int, int]]:
    """Return the local address and port, and the remote port, of the router's UDP sockets to a
    node's server.
    """
    told = lab.router.run("conntrack", "-L", "-p", "udp", "-d", address).stdout
    found = re.findall(rf"src=(\S+) dst={re.escape(address)} sport=(\d+) dport=(\d+)", told)
    return {(source, int(own), int(port)) for source, own, port in found}


def errors(lab: Lab, address: str, kind: int, code: int, rest: int = 0) -> Iterator[bytes]:
    """Yield an error about each of these flows, as from a router on the path."""
    for source, own, port in sockets_towards(lab, address):
        quoted = ipv4(source, address, UDP, udp(own, port, bytes(8)))
        yield forgery.icmp_error("203.0.113.99", source, kind, code, quoted, rest=rest)


def sweep(lab: Lab, address: str, kind: int, code: int, rest: int = 0) -> None:
    wan, mac = lab.wan(1), lab.router.mac("wan1")
    forged = list(errors(lab, address, kind, code, rest))
    assert forged, "there is no flow"
    lab.internet.emit(wan.far, *forged, mac=mac)


def test_forged_icmp_errors_end_no_session(lab: Lab) -> None:
    server = server_of(lab)
    send(lab, 1, "quic")
    connection = lab.client(1).connect()
    assert connection.exchange("before").ok
    for kind, codes in (
        (forgery.UNREACHABLE, CODES),
        (forgery.TIME_EXCEEDED, (0,)),
        (forgery.PARAMETER_PROBLEM, (0,)),
    ):
        for code in codes:
            sweep(lab, server, kind, code)
            assert connection.exchange(f"{kind} {code}").ok
    assert connection.state() == "open"
    connection.close()


def test_a_forged_path_mtu_is_at_least_1280(lab: Lab) -> None:
    server = server_of(lab)
    send(lab, 1, "quic")
    with_connection = lab.client(1).connect()
    assert with_connection.exchange("before").ok
    try:
        sweep(lab, server, forgery.UNREACHABLE, forgery.FRAGMENTATION_NEEDED, 552)
        way = ("ip", "route", "get", server)
        eventually(lambda: re.search(r"mtu (lock )?1280", lab.router.run(*way).stdout) is not None)
        assert with_connection.exchange("x" * 20_000).ok
    finally:
        with_connection.close()
        lab.router.run("ip", "route", "flush", "cache")


def test_the_path_mtu_of_a_router_is_accepted(lab: Lab) -> None:
    """The connection goes on with smaller packets."""
    send(lab, 1, "quic")
    connection = lab.client(1).connect()
    assert connection.exchange("x" * 60_000).ok
    lab.internet.run("ip", "link", "set", "to-quic", "mtu", "1300")
    try:
        assert connection.exchange("x" * 60_000, 10.0).ok
        connection.close()
        assert lab.client(1).http(f"http://{SERVER}/").ok
    finally:
        lab.internet.run("ip", "link", "set", "to-quic", "mtu", "1500")
