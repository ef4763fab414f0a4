"""netd reports the devices in LANs: neighbours, and DHCP requests as bytes."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from egressd.formats.dhcp import read_request
from egressd.model.device import InterfaceRoles
from egressd.model.messages import DeviceNews
from egressd.netd.health import lan_devices
from egressd.netd.health.lan_devices import EVENTS_MAX, REQUESTS_MAX, LanDevices
from egressd.netd.kernel import machine_facts
from egressd.planner.topology import discover
from tests.support.dhcp import request
from tests.support.needs import Need
from tests.support.netns import Namespace, eventually

pytestmark = pytest.mark.lab

MAC: Final = "02:00:5e:00:53:01"
ROLES: Final = InterfaceRoles(lan=("lan0",), wan=("wan0",))
SOON_S: Final = 20.0


@pytest.fixture
def device() -> Iterator[Namespace]:
    with Namespace() as device:
        yield device


@pytest.fixture
def client(device: Namespace) -> Iterator[Namespace]:
    with Namespace() as client:
        device.cable("lan0", client, "eth0")
        device.shell("ip address add 10.0.0.1/16 dev lan0")
        client.shell(f"ip link set eth0 address {MAC}")
        yield client


class Seen:
    """The reports of one run."""

    def __init__(self) -> None:
        self.news: list[DeviceNews] = []

    def neighbours(self) -> set[tuple[str, str, str]]:
        return {(n.interface, n.ip, n.mac) for news in self.news for n in news.neighbours}

    def packets(self) -> list[bytes]:
        return [frame.packet for news in self.news for frame in news.frames]


@asynccontextmanager
async def looking() -> AsyncIterator[Seen]:
    seen, facts = Seen(), machine_facts.read()
    topology = discover(facts, ROLES)
    devices = LanDevices(lambda: facts, lambda: topology, seen.news.append)
    devices.start()
    try:
        yield seen
    finally:
        await devices.close()


def test_neighbours_are_reported_at_once_and_when_their_address_moves(
    device: Namespace, client: Namespace
) -> None:
    with Namespace() as isp:
        device.cable("wan0", isp, "eth0")
        device.shell("ip address add 192.0.2.2/24 dev wan0; ip route add default via 192.0.2.1")
        isp.shell("ip address add 192.0.2.1/24 dev eth0")
        client.shell("ip address add 10.0.0.5/16 dev eth0; ping -c1 -W5 10.0.0.1")

        async def watch() -> None:
            async with looking() as seen:
                await eventually(lambda: ("lan0", "10.0.0.5", MAC) in seen.neighbours(), SOON_S)
                # The far end of a WAN is no device of a LAN, though it is a neighbour, too.
                await run(f"nsenter --net={isp.path} ping -c1 -W5 192.0.2.2")
                inside = f"nsenter --net={client.path} "
                await run(f"{inside} ip address flush dev eth0")
                await run(f"{inside} ip address add 10.0.0.6/16 dev eth0")
                await run(f"{inside} ping -c1 -W5 10.0.0.1")
                await eventually(lambda: ("lan0", "10.0.0.6", MAC) in seen.neighbours(), SOON_S)
                assert {ip for _, ip, _ in seen.neighbours()} == {"10.0.0.5", "10.0.0.6"}

        device.run_async(watch)


def test_a_real_dhcp_client_is_heard_though_another_box_serves_it(
    device: Namespace, client: Namespace, need: Need
) -> None:
    for program in ("dnsmasq", "busybox"):
        need(program, shutil.which(program) is not None)
    with tempfile.TemporaryDirectory() as folder, Namespace() as server:
        device.shell("ip link add name lan1 type veth peer name eth0 netns " + server.path)
        device.shell("ip address del 10.0.0.1/16 dev lan0; ip link add br0 type bridge")
        device.shell("ip link set lan0 master br0; ip link set lan1 master br0 up")
        device.shell("ip link set br0 up; ip address add 10.0.0.1/16 dev br0")
        server.shell("ip link set eth0 up; ip address add 10.0.0.2/16 dev eth0")
        leases = Path(folder) / "leases"
        serving = server.start(
            os.execvp,
            "dnsmasq",
            [
                "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0",
                "--pid-file=", "--user=root", "--no-ping", "--bind-interfaces", "--interface=eth0",
                "--dhcp-authoritative", "--dhcp-range=10.0.7.1,10.0.7.9,1h",
                f"--dhcp-leasefile={leases}",
            ],
        )  # fmt: skip

        async def watch() -> list[bytes]:
            facts = machine_facts.read()
            topology = discover(facts, InterfaceRoles(lan=("br0",), wan=("wan0",)))
            seen = Seen()
            devices = LanDevices(lambda: facts, lambda: topology, seen.news.append)
            devices.start()
            await run(
                f"nsenter --net={client.path} busybox udhcpc -i eth0 -q -n -t 20 -T 1"
                " -s /bin/true -x hostname:anna-phone -V android-dhcp-13"
            )
            await eventually(lambda: len(seen.packets()) > 0, SOON_S)
            await devices.close()
            return seen.packets()

        packets = device.run_async(watch)
        serving.kill()
        assert MAC in leases.read_text()
    found = {read_request(packet) for packet in packets}
    assert {(each.mac, each.hostname, each.vendor_class) for each in found if each} == {
        (MAC, "anna-phone", "android-dhcp-13")
    }


def test_other_packets_do_not_come_up(device: Namespace, client: Namespace) -> None:
    client.shell("ip address add 10.0.0.5/16 dev eth0")

    async def watch() -> list[bytes]:
        async with looking() as seen:
            for packet in (
                request(MAC, {12: b"other-port"}, port=6767),
                request(MAC, {12: b"fragment"})[:6] + b"\x20\0" + request(MAC, {})[8:],
                request(MAC, {12: b"no-udp"})[:9] + b"\x06" + request(MAC, {})[10:],
                request(MAC, {12: b"real"}),
            ):
                await asyncio.to_thread(client.run, send, [packet])
            await eventually(lambda: len(seen.packets()) > 0, SOON_S)
            return seen.packets()

    assert device.run_async(watch) == [request(MAC, {12: b"real"})]


def test_a_flood_of_requests_is_bounded_and_later_ones_are_heard(
    device: Namespace, client: Namespace
) -> None:
    async def watch() -> list[int]:
        async with looking() as seen:
            await asyncio.to_thread(client.run, flood_requests)
            await eventually(lambda: len(seen.packets()) > 0, SOON_S)
            counts = [len(news.frames) for news in seen.news]
            late = request(MAC, {12: b"late"})
            while late not in seen.packets():  # it may fall into the rest of a period
                await asyncio.to_thread(client.run, send, [late])
                await asyncio.sleep(0.2)
            return counts

    assert max(device.run_async(watch)) <= REQUESTS_MAX


@pytest.mark.parametrize("most", [64, EVENTS_MAX])
def test_a_flood_of_hardware_addresses_is_bounded(
    device: Namespace, client: Namespace, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    for ip in ("10.0.0.4", "10.0.0.5"):
        client.shell(f"ip address add {ip}/16 dev eth0")
    client.shell("ping -c1 -W5 -I 10.0.0.4 10.0.0.1")
    monkeypatch.setattr(lan_devices, "EVENTS_MAX", most)
    monkeypatch.setattr(lan_devices, "LOOK_S", 600.0)  # only events

    async def watch() -> tuple[int, float]:
        async with looking() as seen:
            # After the first look, which reports all that the table has.
            await eventually(lambda: ("lan0", "10.0.0.4", MAC) in seen.neighbours(), SOON_S)
            clock = asyncio.get_running_loop().time
            began = clock()
            await asyncio.to_thread(client.run, flood_neighbours, 65_536)
            await eventually(lambda: len(seen.neighbours()) >= 64, SOON_S)
            flooded = len(seen.neighbours()), (clock() - began) / lan_devices.PERIOD_S
            # The first whole period after the flood hears new devices again.
            await eventually(lambda: clock() - began > 2 * lan_devices.PERIOD_S, SOON_S)
            await run(f"nsenter --net={client.path} ping -c1 -W5 -I 10.0.0.5 10.0.0.1")
            await eventually(lambda: ("lan0", "10.0.0.5", MAC) in seen.neighbours(), 2 * SOON_S)
            return flooded

    reported, periods = device.run_async(watch)
    assert reported <= most * (periods + 1)


async def run(command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command.split(), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


def send(packets: list[bytes]) -> None:
    """Send IPv4 packets by Ethernet to all hosts."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        source = bytes.fromhex(MAC.replace(":", ""))
        for packet in packets:
            raw.send(b"\xff" * 6 + source + b"\x08\0" + packet)


def flood_requests() -> None:
    send([request(f"02:00:5e:00:{n >> 8:02x}:{n & 255:02x}", {12: b"flood"}) for n in range(5000)])


def flood_neighbours(number: int) -> None:
    """Ask for the device's address from `number` addresses, each of another hardware address."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        head = b"\xff" * 6 + b"\x02\0\0\0"
        for n in range(number):
            mac, ip = struct.pack("!4sH", head[6:], n), struct.pack("!BBH", 10, 0, n)
            arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + ip + bytes(6) + b"\x0a\0\0\x01"
            raw.send(head[:6] + mac + b"\x08\x06" + arp)
