"""A download by the fast path, one under a limit of the operator's own, UDP through a node to a
port of a server on this machine, and a tunnel to the kernel's WireGuard, in one boot:
``python -m tests.vm.inside.fast_path SHARED``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, eventually, send
from tests.support.fast_path import hooked, passed
from tests.vm.boot import DONE
from tests.vm.inside import kernel_tunnel
from tests.vm.inside.kernel_tunnel import Tunnelled
from tests.vm.inside.netns import sh

SIZE: Final = 10 << 20
_MODULES: Final = (
    *("overlay", "nf_conntrack_netlink", "nf_tables", "nf_tproxy_ipv4", "nf_socket_ipv4"),
    *("ifb", "sch_ingress", "sch_htb", "sch_fq_codel", "cls_bpf", "act_mirred"),
    *("cls_u32", "act_police", "nf_flow_table", "nf_flow_table_inet"),
    *kernel_tunnel.MODULES,
)
"""Modules that egressd lets the kernel load, except those of nftables' expressions."""


_LIMIT: Final = (
    "tc qdisc del dev wan1 handle ffff: ingress 2>/dev/null || true;"
    "tc qdisc add dev wan1 handle ffff: ingress;"
    "tc filter add dev wan1 parent ffff: protocol ip u32 match u32 0 0"
    " police rate 8mbit burst 64k drop flowid :1"
)
_UNLIMITED: Final = "tc qdisc del dev wan1 handle ffff: ingress"
_FLOWTABLE: Final = (
    "nft add table inet theirs;"
    "nft 'add flowtable inet theirs ft { hook ingress priority 0; devices = { lan0, wan1 }; }'"
)
_ADAPTED_S: Final = 40.0
"""Seconds until netd has adapted. Without KVM everything is slow, and netd leaves an interface
alone for a while after a qdisc was deleted from it.
"""


class Download(msgspec.Struct, frozen=True):
    """The result of a download, and its bytes on the fast path."""

    error: str
    size: int
    passed: int
    seconds: float


class Found(msgspec.Struct, frozen=True):
    """All results of the machine."""

    first: Download
    limited: Download
    """With a limit on incoming traffic of the WAN."""
    again: Download
    """After that limit was removed."""
    hooks: list[str]
    """The kinds of qdiscs for filters on the WAN, each time."""
    problems: list[str]
    """Reports during the limit, and then during a flowtable."""
    answered: tuple[str, str]
    """The error and the seen address of a client's UDP through a node, at a port that a server of
    the router's has.
    """
    told: list[str]
    """All reports in ``problems`` at the end."""
    said: str
    tunnelled: Tunnelled


def _asked_beside_a_server(lab: Lab) -> tuple[str, str]:
    """Send UDP to the port of a server that does not share it."""
    server = "import socket; s = socket.socket(type=2); s.bind(('', 443)); print(1, flush=True); "
    command = [sys.executable, "-c", f"{server}s.recv(1)"]
    program = Program(lab.router.namespace, command, lab.folder / "server.log", {})
    program.start()
    eventually(lambda: "1" in program.tail(), _ADAPTED_S)
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    send(lab, 1, "ss")
    reply = lab.client(1).udp_echo("hello", SERVER, 443, timeout=20)
    program.stop(10)
    return reply.error, reply.seen


def _download(lab: Lab, size: int = SIZE) -> Download:
    before, begun = passed(lab, 1).down_bytes, time.monotonic()
    reply = lab.client(1).http(f"http://{SERVER}/bytes/{size}", verify=True, timeout=60)
    seconds = time.monotonic() - begun
    return Download(reply.error, reply.size, passed(lab, 1).down_bytes - before, seconds)


def _found(lab: Lab) -> Found:
    def router(script: str) -> str:
        return lab.router.run("sh", "-ec", script, timeout=60).stdout

    def look() -> None:
        listed = router("tc qdisc show dev wan1").splitlines()
        hooks.append(" ".join(it.split()[1] for it in listed if "parent ffff:fff1" in it))
        told = lab.api.ask("GET", "/ops/overview").body["problems"]
        problems.extend(it for it in told if "another program's" in it)

    hooks: list[str] = []
    problems: list[str] = []
    send(lab, 1, "DIRECT")
    first = _download(lab)
    look()
    router(_LIMIT)
    eventually(lambda: "wan1" not in hooked(lab), _ADAPTED_S)
    limited = _download(lab, SIZE // 5)
    look()
    router(_UNLIMITED)
    eventually(lambda: "wan1" in hooked(lab), _ADAPTED_S)
    again = _download(lab)
    router(_FLOWTABLE)
    eventually(
        lambda: any(
            "flowtable" in it for it in lab.api.ask("GET", "/ops/overview").body["problems"]
        ),
        _ADAPTED_S,
    )
    look()
    router("nft delete table inet theirs")
    answered = _asked_beside_a_server(lab)
    told = lab.api.ask("GET", "/ops/overview").body["problems"]
    tunnelled = kernel_tunnel.tunnelled(lab)
    log = (lab.folder / "egressd" / "egressd.log").read_text()
    return Found(first, limited, again, hooks, problems, answered, told, log[-4000:], tunnelled)


def main(shared: Path) -> None:
    """Leave the results in `shared`."""
    # The machine's files are those of its host, and read-only. A module that the kernel loads by
    # itself takes a process of its own, and a table asks again for each one that it lacks.
    sh(
        f"modprobe -aq {' '.join(_MODULES)} $(find /lib/modules/$(uname -r) -name 'nft_*.ko*'"
        " -printf '%f\\n' | cut -d. -f1); mkdir -p /tmp/etc /tmp/work; "
        "mount -t overlay -o lowerdir=/etc,upperdir=/tmp/etc,workdir=/tmp/work overlay /etc; "
        "ip link set lo up"
    )
    try:
        with Lab(LabSpec(nodes=("ss",), clients=1, wans=1)) as lab:
            lab.start_egressd({"engine": {"workers": 1}})
            found = _found(lab)
        (shared / "found.json").write_bytes(msgspec.json.encode(found))
    finally:
        (shared / DONE).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
