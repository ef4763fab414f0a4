"""A download the short way: ``python -m tests.vm.inside.fast_path SHARED``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from egressd.lab.lab import Lab
from egressd.lab.spec import LabSpec
from tests.lab.device_state import SERVER, send
from tests.lab.short_way import passed
from tests.vm.boot import DONE
from tests.vm.inside.netns import sh

SIZE: Final = 10 << 20
_MODULES: Final = (
    *("overlay", "nf_conntrack_netlink", "nf_tables", "nf_tproxy_ipv4", "nf_socket_ipv4"),
    *("ifb", "sch_ingress", "sch_htb", "sch_fq_codel", "cls_bpf", "act_mirred"),
)
"""Modules that egressd has the kernel load, but for those of nftables' expressions."""


class Found(msgspec.Struct, frozen=True):
    """How the download ended, and what of it went the short way."""

    error: str
    size: int
    passed: int
    said: str


def main(shared: Path) -> None:
    """Leave what was found in `shared`."""
    # The machine's files are those of the one that runs it, to be read only. The kernel loads a
    # module from its first root, whose files are not cached: with Linux 6.12 each takes seconds.
    sh(
        f"modprobe -aq {' '.join(_MODULES)} $(find /lib/modules/$(uname -r) -name 'nft_*.ko*'"
        " -printf '%f\\n' | cut -d. -f1); mkdir -p /tmp/etc /tmp/work; "
        "mount -t overlay -o lowerdir=/etc,upperdir=/tmp/etc,workdir=/tmp/work overlay /etc; "
        "ip link set lo up"
    )
    try:
        with Lab(LabSpec(nodes=(), clients=1, wans=1)) as lab:
            lab.start_egressd({"engine": {"workers": 1}})
            send(lab, 1, "DIRECT")
            reply = lab.client(1).http(f"http://{SERVER}/bytes/{SIZE}", verify=True, timeout=60)
            log = (lab.folder / "egressd" / "egressd.log").read_text()
            found = Found(reply.error, reply.size, passed(lab, 1).down_bytes, log[-4000:])
        (shared / "found.json").write_bytes(msgspec.json.encode(found))
    finally:
        (shared / DONE).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
