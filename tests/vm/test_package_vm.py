"""The package in a machine with a kernel, a boot and a power switch of its own (QEMU).

Without KVM each test takes minutes, so ``script/test machines`` has to ask for them. The package is
installed once for each release; each test goes on with a copy of that disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from egressd_lab.device import API_PREFIX
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from tests.support.device import SERVER, eventually
from tests.support.installed import WEB, in_force, install, rule
from tests.support.packages import AFTER, BEFORE, asked_for, wanted
from tests.vm import boot
from tests.vm.emulated import Emulated
from tests.vm.image import LAB, Image, image_of
from tests.vm.inside import far_servers, network

pytestmark = [pytest.mark.vm, pytest.mark.timeout(0)]

PROGRAM: Final = "bin/egressd-process"
WORKER: Final = "engine/worker-"
ADOPTED_S: Final = 120.0
ONLINE_S: Final = 300.0
DOWNLOAD_BYTES: Final = 10 << 20

_CHECKOUT: Final = "/srv/checkout"
"""The machine's name of this checkout."""
_FAST_PATH: Final = """\
from tests.support.known_flows import passed_here
print(passed_here("{address}").down_bytes)
"""


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the time that a part took."""
    begun = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun:.0f} s")


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    """Build the lab whose router is the machine."""
    boot.kernel()
    with Lab(LAB) as lab:
        yield lab


@pytest.fixture(scope="module")
def installed(
    lab: Lab, suite: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Image]:
    """Install the version before in a machine that serves a network, with rules of clients 1 and 3,
    and return its disk.
    """
    image = image_of(suite)
    folder = tmp_path_factory.mktemp(suite)
    unruled = new_token()
    with Emulated(folder / "machine", lab, image, repository) as box:
        with timed("boot"):
            box.boot()
        box.refresh()
        with lab.internet.capture() as capture:
            flood = lab.client(2).flood(unruled, rate=100)
            eventually(lambda: bool(capture.flows(unruled)), ADOPTED_S)
            with timed("install"):
                install(box, BEFORE)
            seen = sum(flow.packets for flow in capture.flows(unruled))
            sent = flood.report().sent
            eventually(lambda: flood.report().sent > sent + 100, ADOPTED_S)
            flood.stop()
            assert sum(flow.packets for flow in capture.flows(unruled)) == seen
        eventually(partial(_is_added, box, lab), ADOPTED_S)
        rule(box, lab, 1, "DIRECT")
        rule(box, lab, 3, lab.nodes["socks5"].name)
        assert lab.client(1).http(WEB).status == 200
        assert lab.client(2).http(WEB).status != 200
        failed = box.run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
        assert "egressd" not in failed
        print(box.run("uname", "-r"))
        yield image._replace(disk=box.switch_off())


def _is_added(box: Emulated, lab: Lab) -> bool:
    """True if the node is there. Without KVM the engine that tries it may start too slowly at
    first.
    """
    body = lab.nodes["socks5"].draft()
    return box.api().ask("POST", f"{API_PREFIX}/nodes", body).status == 200


@pytest.fixture
def box(installed: Image, lab: Lab, repository: Path, tmp_path: Path) -> Iterator[Emulated]:
    """Boot a machine with the version before installed."""
    with Emulated(tmp_path / "machine", lab, installed, repository) as box:
        with timed("boot"):
            box.boot()
            box.wait_healthy()
        yield box


@asked_for
def test_p1_a_whole_machine_is_upgraded_downgraded_removed_and_purged(
    box: Emulated, lab: Lab
) -> None:
    routed, proxied = lab.client(1).connect(SERVER), lab.client(3).connect(SERVER)
    workers = box.pids(WORKER)
    assert workers
    unruled, ruled = new_token(), new_token()
    with lab.internet.capture() as capture:
        floods = [
            lab.client(2).flood(unruled, kind=kind, rate=200) for kind in ("udp", "tcp", "icmp")
        ]
        floods.append(lab.client(1).flood(ruled, rate=20))
        for version, options in ((AFTER, ()), (BEFORE, ("--allow-downgrades",))):
            with timed(f"change to {version}"):
                box.apt("install", *options, wanted(box.suite, version))
                box.wait_healthy()
            assert in_force(box) == version
            assert routed.exchange("still there").ok
            assert proxied.exchange("still there").ok
            assert set(workers) <= set(box.pids(WORKER)), "workers are adopted"
        assert capture.flows(ruled), "the capture sees"
        with timed("remove"):
            said = box.apt("remove", "egressd")
        assert "every client of this router stays blocked" in said
        assert lab.client(1).http(WEB).status != 200
        box.power_off()
        with timed("boot"):
            box.boot()
        assert lab.client(1).http(WEB).status != 200
        for flood in floods:
            assert flood.stop().sent > 100
        assert capture.flows(unruled) == []
    with timed("purge"):
        box.apt("purge", "egressd")
    assert box.run("nft", "list", "ruleset") == ""
    assert "230" not in box.run("ip", "rule", "show")
    for path in ("/opt/egressd", "/etc/egressd", "/var/lib/egressd"):
        assert not box.exists(path)


@asked_for
def test_the_fast_path_and_a_line_of_each_kind_work_in_a_whole_machine(
    box: Emulated, lab: Lab
) -> None:
    reply = lab.client(1).http(f"{WEB}bytes/{DOWNLOAD_BYTES}", verify=True, timeout=ADOPTED_S)
    assert (reply.error, reply.size) == ("", DOWNLOAD_BYTES)
    box.mount("checkout", _CHECKOUT)
    path = f"PYTHONPATH={_CHECKOUT}:{_CHECKOUT}/lab/src"
    python = ("env", path, "/opt/egressd/current/bin/python")
    passed = int(box.run(*python, "-c", _FAST_PATH.format(address=lab.client(1).address)))
    print(f"{passed} of {DOWNLOAD_BYTES} bytes took the fast path")
    assert passed > 0.8 * DOWNLOAD_BYTES

    unit = ("systemd-run", "--quiet", "--unit=far-servers", f"--working-directory={_CHECKOUT}")
    with timed("servers"):
        box.run(*unit, *python, "-m", far_servers.__name__, "/run/far-servers")
        eventually(lambda: box.exists("/run/far-servers"), ONLINE_S)
    for name in far_servers.USERS:
        box.api().post(
            "/vpn-lines",
            {
                "type": name.partition("_")[0],
                "name": name,
                "server": network.SERVERS[far_servers.SERVER],
                "username": name,
                "password": network.PASSWORD,
                "secret": network.SECRET if name == "l2tp_b" else "",
                "interface": "wan2",
            },
        )
    with timed("all lines online"):
        eventually(
            lambda: all(line["is_online"] for line in box.api().get("/vpn-lines")["data"]), ONLINE_S
        )
    for name, address in far_servers.USERS.items():
        rule_number = next(
            each["id"]
            for each in box.api().get("/rules")["data"]
            if each["ip"] == lab.client(1).address
        )
        box.api().delete(f"/rules/{rule_number}")
        rule(box, lab, 1, f"Interface:{name}")
        with timed(f"{name} carries"):
            eventually(partial(_is_seen_as, lab, address), ADOPTED_S)


def _is_seen_as(lab: Lab, address: str) -> bool:
    """True if the server behind the lines sees client 1 with this address."""
    return lab.client(1).tcp_echo("hello", network.WEB, far_servers.PORT).seen == address


@asked_for
@pytest.mark.parametrize(
    "reached",
    [
        "ls /opt/egressd/unpacked/bin/*.dpkg-new",
        "[ -e /opt/egressd/.laying ]",
        f"ls -d /opt/egressd/{AFTER}+*",
        f"readlink /opt/egressd/current | grep {AFTER}",
    ],
    ids=["unpacked", "laying", "laid", "in force"],
)
def test_p1_the_power_of_a_whole_machine_fails_in_an_upgrade(
    box: Emulated, lab: Lab, reached: str
) -> None:
    unruled = new_token()
    with lab.internet.capture() as capture:
        capture.prove()
        flood = lab.client(2).flood(unruled, rate=200)
        command = f"apt-get --yes install {wanted(box.suite, AFTER)} > /tmp/said 2>&1 &"
        box.run("sh", "-c", f"{command} until {reached} > /dev/null 2>&1; do :; done")
        box.power_off()
        with timed("boot after the power cut"):
            box.boot()
            box.wait_healthy()
        assert lab.client(1).http(WEB).status == 200
        found = in_force(box)
        print(f"version {found} is in force")
        assert found in (BEFORE, AFTER)
        programs = box.pids(PROGRAM)
        assert programs
        assert set(programs) <= set(box.pids(f"/opt/egressd/{found}")), "whole"
        (other,) = {BEFORE, AFTER} - {found}
        assert box.pids(f"/opt/egressd/{other}") == [], "and not mixed"
        with timed("dpkg --configure -a, and the upgrade"):
            box.run("dpkg", "--configure", "-a")
            box.apt("install", wanted(box.suite, AFTER))
            box.wait_healthy()
        assert flood.stop().sent > 100
        assert capture.flows(unruled) == []
    assert in_force(box) == AFTER
    assert box.run("dpkg", "--audit") == ""
