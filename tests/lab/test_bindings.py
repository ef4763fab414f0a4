"""Rules bound to devices, on the real kernel: DHCP gives other addresses, and impostors pose."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.lab.five import heard
from tests.support.device import SERVER, eventually, rule
from tests.support.fast_path import passed
from tests.support.needs import Need
from tests.support.netns import JoinedNamespace

pytestmark = pytest.mark.lab

INTERFACE: Final = "eth0"
GATEWAY: Final = "10.77.0.1"
TARGET: Final = "Interface:wan2"
SOON_S: Final = 30.0
PACKETS: Final = 100_000
ECHO_PORT: Final = 7


@pytest.fixture
def lab(namespaces: None) -> Iterator[Lab]:
    """A lab for each test: no device has an earlier address."""
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


def mac_of(client: Client) -> str:
    return client.host.mac(INTERFACE).hex(":")


def device(lab: Lab, client: Client) -> dict[str, Any]:
    found = lab.api.ask("GET", "/ops/devices").body["data"]
    return next((each for each in found if each["mac"] == mac_of(client)), {})


def ruled(lab: Lab) -> list[str]:
    return [each["ip"] for each in lab.api.ask("GET", "/svc/api/v1/rules").body["data"]]


def bind(lab: Lab, client: Client) -> None:
    client.host.run("ping", "-c1", "-W1", GATEWAY)
    eventually(lambda: bool(device(lab, client).get("addresses")), SOON_S)
    assert "saved" in lab.device.run("devices", "bind", mac_of(client))
    assert device(lab, client)["is_bound"]


@contextmanager
def serving(server: Client, folder: Path, *hosts: str) -> Iterator[None]:
    """Let a client of the LAN serve DHCP: `hosts` are hardware addresses with addresses."""
    argv = [
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--pid-file=",
        "--user=root", "--no-ping", "--bind-interfaces", f"--interface={INTERFACE}",
        "--dhcp-authoritative", f"--dhcp-leasefile={folder / 'leases'}",
        "--dhcp-range=10.77.0.100,static,1h", *(f"--dhcp-host={host}" for host in hosts),
    ]  # fmt: skip
    with JoinedNamespace(server.host.namespace) as inside:
        running = inside.start(os.execvp, "dnsmasq", argv)
        try:
            yield
        finally:
            running.kill()


def get_lease(client: Client, folder: Path) -> str:
    """Let a client have an address by DHCP, in place of those it has, and return it."""
    script = folder / "udhcpc"
    script.write_text(
        '#!/bin/sh\n[ "$1" = bound ] || [ "$1" = renew ] || exit 0\n'
        "ip address flush dev $interface\n"
        "ip address add $ip/24 dev $interface\n"
        f"ip route replace default via {GATEWAY}\n"
        f"echo $ip > {folder / 'ip'}\n"
    )
    script.chmod(0o755)
    client.host.run(
        "busybox", "udhcpc", "-i", INTERFACE, "-q", "-n", "-t", "20", "-T", "1", "-s", str(script)
    )
    return (folder / "ip").read_text().strip()


def test_a_rule_follows_its_device_to_the_address_that_dhcp_gives(
    lab: Lab, tmp_path: Path, need: Need
) -> None:
    """With its limits and its history; the next owner of the old address gets nothing of them."""
    for program in ("dnsmasq", "busybox"):
        need(program, shutil.which(program) is not None)
    anna, bert, server = lab.client(1), lab.client(2), lab.client(3)
    macs = mac_of(anna), mac_of(bert)
    with serving(server, tmp_path, f"{macs[0]},10.77.0.101", f"{macs[1]},10.77.0.102"):
        assert get_lease(anna, tmp_path) == "10.77.0.101"
    rule(lab, "10.77.0.101", TARGET)
    limits = {"update_upload": True, "upload_limit_kbps": 80_000}
    limits |= {"update_download": False, "download_limit_kbps": 0}
    lab.api.patch("/rules/batch/limits", {"ips": ["10.77.0.101"], **limits})
    bind(lab, anna)
    rule_id = device(lab, anna)["rule_id"]
    assert anna.http(f"http://{SERVER}/", source="10.77.0.101").seen == lab.wan(2).address
    moved = serving(server, tmp_path, f"{macs[0]},10.77.0.103", f"{macs[1]},10.77.0.101")
    (tmp_path / "leases").unlink()
    with lab.internet.capture() as capture, moved:
        capture.prove()
        assert get_lease(anna, tmp_path) == "10.77.0.103"
        anna.host.run("ping", "-c1", "-W1", GATEWAY, check=False)
        eventually(lambda: ruled(lab) == ["10.77.0.103"], SOON_S)
        assert get_lease(bert, tmp_path) == "10.77.0.101"
        mine, theirs = new_token(), new_token()
        assert bert.udp_echo(theirs, source="10.77.0.101", timeout=1).error
        assert anna.udp_echo(mine, source="10.77.0.103").error == ""
        assert anna.http(f"http://{SERVER}/", source="10.77.0.103").seen == lab.wan(2).address
        assert capture.interfaces_of(theirs) == set()
        assert capture.interfaces_of(mine) == {lab.wan(2).far}
    (found,) = lab.api.ask("GET", "/svc/api/v1/rules").body["data"]
    assert (found["id"], found["ip"], found["upload_limit_kbps"]) == (
        rule_id,
        "10.77.0.103",
        80_000,
    )
    assert device(lab, anna)["rule_id"] == rule_id
    eventually(lambda: "rule_id" in device(lab, bert), SOON_S)
    assert device(lab, bert)["rule_id"] is None


def _pose(address: str, port: int, token: str) -> int:
    """Send as another device: half of it in its flow, the rest in new ones."""
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flow.bind((address, port))
    sent = 0
    others = [(SERVER, number) for number in range(20_000, 21_000)]
    for nth in range(PACKETS):
        with suppress(OSError):  # a full queue of the interface
            flow.sendto(token.encode(), others[nth % 1000] if nth % 2 else (SERVER, ECHO_PORT))
            sent += 1
    return sent


def test_nothing_of_an_impostor_passes_by_the_fast_path_or_beside_it(lab: Lab) -> None:
    anna, bert = lab.client(1), lab.client(2)
    rule(lab, anna.address, TARGET)
    bind(lab, anna)
    mine, theirs, port = new_token(), new_token(), 40_007
    with JoinedNamespace(anna.host.namespace) as inside:
        assert inside.run(_flow, anna.address, port, mine) == 40
    before = passed(lab, 1)
    assert before.up_packets > 0, "the device's flow takes the fast path"
    with heard(lab) as five, lab.internet.capture() as capture:
        capture.prove()
        bert.host.run("ip", "address", "add", f"{anna.address}/32", "dev", INTERFACE)
        with JoinedNamespace(bert.host.namespace) as inside:
            assert inside.run(_pose, anna.address, port, theirs) > PACKETS * 0.9
        five.await_news(f"{mac_of(bert)}) uses it: its packets are dropped", SOON_S)
        assert capture.interfaces_of(theirs) == set()
        assert passed(lab, 1).up_packets == before.up_packets
        # The device itself goes on once its address is its own again.
        bert.host.run("ip", "address", "del", f"{anna.address}/32", "dev", INTERFACE)
        anna.host.run("ping", "-c1", "-W1", GATEWAY, check=False)
        eventually(lambda: anna.udp_echo(mine, timeout=1).error == "", SOON_S)
        assert capture.interfaces_of(mine) == {lab.wan(2).far}


def _flow(address: str, port: int, token: str) -> int:
    """Exchange datagrams with the echo server, and return the number of answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.bind((address, port))
        flow.settimeout(5)
        answers = 0
        for _ in range(40):
            flow.sendto(token.encode(), (SERVER, ECHO_PORT))
            answers += bool(flow.recv(2048))
        return answers


def test_a_restart_keeps_bindings_in_force(lab: Lab) -> None:
    anna, bert = lab.client(1), lab.client(2)
    rule(lab, anna.address, TARGET)
    bind(lab, anna)
    lab.device.kill()
    lab.device.start()
    bert.host.run("ip", "address", "add", f"{anna.address}/32", "dev", INTERFACE)
    theirs = new_token()
    with lab.internet.capture() as capture:
        capture.prove()
        assert bert.udp_echo(theirs, source=anna.address, timeout=1).error
        assert capture.interfaces_of(theirs) == set()
    bert.host.run("ip", "address", "del", f"{anna.address}/32", "dev", INTERFACE)
    assert "saved" in lab.device.run("devices", "unbind", mac_of(anna))
    assert not device(lab, anna)["is_bound"]
