"""A VPN line whose packets have no frames, as PPP's: a pair of tun interfaces, joined by a program.

Unlike `tests.lab.stand_in_line` it can take the fast path. `tests/vm` dials lines of PPP.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from egressd_lab.host import Host
from egressd_lab.lab import Lab
from tests.lab.stand_in_line import ADDRESS, FAR_END, LINK, MTU, NAME
from tests.support.device import eventually
from tests.support.netns import JoinedNamespace, enter

_TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_WIDEST: Final = 65_535


@contextmanager
def tun_line(lab: Lab) -> Iterator[None]:
    """Have a line with its servers at the far end, which may send more than the line's MTU."""
    with (
        JoinedNamespace(lab.router.namespace) as near,
        JoinedNamespace(lab.internet.namespace) as far,
    ):
        near.start(_carry, far.path)
        for host, name, own, peer, mtu in (
            (lab.router, NAME, ADDRESS, FAR_END, MTU),
            (lab.internet, LINK, FAR_END, ADDRESS, 1500),
        ):
            eventually(partial(_has, host, name))
            host.run("ip", "link", "set", name, "mtu", str(mtu))
            host.run("ip", "address", "add", own, "peer", peer, "dev", name)
            host.run("ip", "link", "set", name, "up")
        yield


def _has(host: Host, interface: str) -> bool:
    return not host.run("ip", "link", "show", interface, check=False).returncode


def _carry(far: str) -> None:
    """Make both interfaces, and carry packets between them. They go with this process."""
    near_end = _made(NAME)
    enter(os.open(far, os.O_RDONLY))
    far_end = _made(LINK)
    ends = {near_end: far_end, far_end: near_end}
    while True:
        for ready in select.select(list(ends), [], [])[0]:
            try:
                packet = os.read(ready, _WIDEST)
                os.write(ends[ready], packet)
            except OSError:  # one of them is not up
                continue


def _made(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    return descriptor
