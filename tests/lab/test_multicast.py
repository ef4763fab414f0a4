"""Multicast that smcroute routes from a WAN to the LAN, as for IPTV, if it is allowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LabSpec
from tests.support.device import eventually, send

pytestmark = pytest.mark.lab

GROUP = "239.1.2.3"
PORT = 5_000
ROUTES = f"""\
phyint wan1 enable
phyint lan0 enable
mgroup from wan1 group {GROUP}
mroute from wan1 group {GROUP} to lan0
mgroup from lan0 group {GROUP}
mroute from lan0 group {GROUP} to wan1
"""
SENDER = f"""
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
while True:
    sender.sendto(sys.argv[2].encode(), ("{GROUP}", {PORT}))
    time.sleep(0.02)
"""
RECEIVER = f"""
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("{GROUP}", {PORT}))
joined = socket.inet_aton("{GROUP}") + socket.inet_aton(sys.argv[1])
receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
print("ready", flush=True)
while True:
    print(receiver.recvfrom(4096)[0].decode(), flush=True)
"""


@contextmanager
def running(lab: Lab, namespace: str, name: str, *argv: str) -> Iterator[Program]:
    program = Program(namespace, argv, lab.folder / f"{name}.log", {})
    program.start()
    try:
        yield program
    finally:
        program.stop(10)


@contextmanager
def streaming(lab: Lab) -> Iterator[Program]:
    """Send a stream from the WAN, and one from a client, and yield the client's receiver of the
    first.
    """
    file = lab.folder / "smcroute.conf"
    file.write_text(ROUTES)
    client, python = lab.client(1), (sys.executable, "-c")
    with (
        running(
            lab, lab.router.namespace, "smcroute",
            "smcrouted", "-n", "-N", "-f", str(file), "-I", f"smc{lab.name}",
        ),
        running(
            lab, client.host.namespace, "receiver", *python, RECEIVER, client.address
        ) as receiver,
        running(
            lab, lab.internet.namespace, "sender", *python, SENDER, lab.wan(1).gateway, "from-wan"
        ),
        running(lab, client.host.namespace, "other", *python, SENDER, client.address, "from-lan"),
    ):  # fmt: skip
        eventually(lambda: "ready" in receiver.tail())
        yield receiver


def problems(lab: Lab) -> list[str]:
    found: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
    return [problem for problem in found if "multicast" in problem]


def test_multicast_is_dropped_and_reported_unless_it_is_allowed(namespaces: None) -> None:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        send(lab, 1, "DIRECT")
        with streaming(lab) as receiver, lab.router.capture("wan1") as capture:
            eventually(lambda: len(problems(lab)) == 1, 15)
            assert "[lan] multicast" in problems(lab)[0]
            assert "from-wan" not in receiver.tail()
            assert not capture.flows(source=lab.client(1).address)


def test_allowed_multicast_reaches_the_lan_and_clients_send_none_out(namespaces: None) -> None:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd(settings={"lan": {"multicast": True}})
        send(lab, 1, "DIRECT")
        with streaming(lab) as receiver, lab.router.capture("wan1") as capture:
            eventually(lambda: "from-wan" in receiver.tail())
            assert problems(lab) == []
            assert not capture.flows(source=lab.client(1).address, outgoing=True)
            capture.prove()
