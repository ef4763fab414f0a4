"""The readiness of a machine, from files of machines that lack something."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.app import machine_check, preflight
from egressd.app.config import Config, Dns
from egressd.app.preflight import Look
from egressd.cli.check import check
from egressd.model.findings import MachineFinding

RELEASE = "6.1.0-40-amd64"
ALL = [name for group in preflight._MODULES for name in group.names]
UDP = "  sl  local_address rem_address   st\n 1: 00000000:{port:04X} 00000000:0000 07 0\n"


def subjects(findings: Iterable[MachineFinding]) -> list[tuple[str, str]]:
    return [(finding.weight, finding.subject) for finding in findings]


def of_system(look: Look) -> Iterator[MachineFinding]:
    yield from preflight.resolvers(look)
    yield from preflight.system(look, is_running=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the files of a machine that lacks nothing."""
    files = {
        "sys/kernel/btf/vmlinux": "",
        f"lib/modules/{RELEASE}/modules.dep": "".join(
            f"kernel/net/{name.replace('_', '-')}.ko.xz: kernel/a.ko\n" for name in ALL[:-2]
        ),
        f"lib/modules/{RELEASE}/modules.builtin": f"kernel/net/{ALL[-2]}.ko\n",
        f"sys/module/{ALL[-1]}/refcnt": "0",
        "etc/resolv.conf": "nameserver 127.0.0.53\nnameserver 192.0.2.53\n",
        "proc/net/udp": UDP.format(port=67),
        "proc/meminfo": "MemTotal:        1015808 kB\n",
        "proc/sys/net/ipv4/ip_forward": "0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_machine_that_lacks_nothing_has_no_findings(root: Path) -> None:
    look = Look(root, RELEASE)
    assert subjects(preflight.kernel(look)) == []
    assert subjects(of_system(look)) == []


@pytest.mark.parametrize("name", ALL)
def test_each_missing_module_is_found(name: str, root: Path) -> None:
    for listed in ("modules.dep", "modules.builtin"):
        path = root / f"lib/modules/{RELEASE}/{listed}"
        lines = path.read_text().splitlines()
        kept = [line for line in lines if f"/{name.replace('_', '-')}.ko" not in line]
        path.write_text("\n".join(line for line in kept if f"/{name}.ko" not in line) + "\n")
    for file in (root / "sys/module").glob(f"{name}/*"):
        file.unlink()
        file.parent.rmdir()
    (finding,) = preflight.kernel(Look(root, RELEASE))
    assert finding.text == f"the kernel has no {name}"
    assert finding.weight == ("blocking" if name.startswith(("nf_", "nft_")) else "limiting")


def test_a_container_without_modules_is_not_blamed(root: Path) -> None:
    (finding,) = preflight.kernel(Look(root, "6.1.0-another"))
    assert (finding.weight, finding.subject) == ("note", "kernel modules")


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("5.10.0-9-amd64", [("note", "kernel"), ("limiting", "fast path")]),
        ("6.0.0", [("note", "kernel")]),
        ("6.1.0", []),
        ("6.12.3+rpt-rpi-v8", []),
    ],
)
def test_an_old_kernel_has_no_fast_path(
    release: str, found: list[tuple[str, str]], root: Path
) -> None:
    (root / f"lib/modules/{RELEASE}").rename(root / f"lib/modules/{release}")
    assert subjects(preflight.kernel(Look(root, release))) == found


def test_a_kernel_without_btf_has_no_fast_path(root: Path) -> None:
    (root / "sys/kernel/btf/vmlinux").unlink()
    assert subjects(preflight.kernel(Look(root, RELEASE))) == [("limiting", "fast path")]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("etc/resolv.conf", "nameserver 127.0.0.1\nnameserver ::1\n", ("limiting", "resolvers")),
        ("etc/resolv.conf", "", ("limiting", "resolvers")),
        ("proc/net/udp", UDP.format(port=53), ("note", "DHCP")),
        ("proc/meminfo", "MemTotal:         480000 kB\n", ("note", "memory")),
        ("proc/sys/net/ipv4/ip_forward", "1\n", ("note", "forwarding")),
    ],
)
def test_shortcomings_of_the_system_are_found(
    name: str, text: str, found: tuple[str, str], root: Path
) -> None:
    (root / name).write_text(text)
    assert subjects(of_system(Look(root, RELEASE))) == [found]


def test_resolvers_of_the_configuration_make_up_for_missing_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "etc/resolv.conf").write_text("")
    monkeypatch.setattr(preflight, "Look", lambda: Look(root, RELEASE))
    found = machine_check.of_system(Config(), is_running=True)
    assert subjects(found) == [("limiting", "resolvers")]
    named = Config(dns=Dns(device=(IPv4Address("192.0.2.53"),)))
    assert machine_check.of_system(named, is_running=True) == ()


def test_a_running_service_forwards_and_has_its_ports(root: Path) -> None:
    (root / "proc/sys/net/ipv4/ip_forward").write_text("1\n")
    assert subjects(preflight.system(Look(root, RELEASE), is_running=True)) == []
    wanted = {8787: "the API", 8788: "the API over HTTPS"}
    assert subjects(preflight.ports({22, 8788}, wanted, is_running=True)) == []
    (finding,) = preflight.ports({22, 8788}, wanted, is_running=False)
    assert "TCP port 8788, which is for the API over HTTPS" in finding.text


def test_roles_without_interfaces_are_found() -> None:
    assert subjects(preflight.roles(["lan0"], ["wan1"], [])) == []
    assert subjects(preflight.roles([], [], ["wan9"])) == [
        ("blocking", "LAN"), ("blocking", "WAN"), ("blocking", "interfaces"),
    ]  # fmt: skip


def test_an_interface_that_is_lan_and_wan_is_found() -> None:
    assert subjects(preflight.one_arm(["lan0", "lan1"], ["wan1"])) == []
    (finding,) = preflight.one_arm(["eth0", "lan1"], ["wan1", "eth0"])
    assert (finding.weight, finding.subject) == ("note", "one-arm use")
    assert finding.text == "LAN and WAN share an interface: eth0 (one-arm use)"
    assert "SSH from another network is cut" in finding.cost


def test_clock_and_disk() -> None:
    assert subjects(preflight.clock(0.0)) == [("limiting", "time")]
    assert subjects(preflight.clock(2e9)) == []
    assert subjects(preflight.disk(10**6, Path("/var"))) == [("limiting", "disk")]
    assert subjects(preflight.disk(10**9, Path("/var"))) == []


def test_each_finding_has_cost_and_cure(root: Path) -> None:
    bare = Look(root / "nothing", "4.19.0")
    found = [
        *preflight.kernel(bare), *of_system(bare),
        *preflight.roles([], [], ["x"]), *preflight.ports({1}, {1: "a"}, is_running=False),
        *preflight.clock(0.0), *preflight.disk(0, Path("/var")),
        *preflight.one_arm(["eth0"], ["eth0"]),
    ]  # fmt: skip
    assert len(found) == 12
    assert all(each.text and each.cost and each.cure for each in found)


def test_the_command_looks_at_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "egressd.toml"
    file.write_text(f'[data]\ndir = "{tmp_path}"\n[wan]\ninterfaces = ["nonexistent0"]\n')
    done = CliRunner().invoke(check, ["--json", "--config", str(file)])
    assert done.exit_code == 1
    found = json.loads(done.output)
    weights = [each["weight"] for each in found]
    assert weights == sorted(weights, key=("blocking", "limiting", "note").index)
    assert "the configuration names nonexistent0" in " ".join(each["text"] for each in found)
    told = CliRunner().invoke(check, ["--config", str(file)])
    assert told.exit_code == 1
    assert told.output.count("  cost: ") == told.output.count("  cure: ") == len(found)
