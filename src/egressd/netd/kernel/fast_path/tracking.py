"""Connection tracking in the running kernel: the properties that the classifier depends on."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.ebpf.btf import Btf

_MODULE: Final = "nf_conntrack"
_LOOK_UP, _RELEASE = "bpf_skb_ct_lookup", "bpf_ct_release"


class FlowOffsets(NamedTuple):
    """Offsets of fields in connection tracking's entries (``struct nf_conn``), in bytes."""

    mark: int
    status: int
    timeout: int
    source: tuple[int, int]
    """Offsets of the source addresses of the original direction, and of the other one."""
    source_port: tuple[int, int]
    destination: tuple[int, int]
    destination_port: tuple[int, int]


class Timeouts(NamedTuple):
    """Seconds for which the kernel keeps an entry after a packet."""

    established: int
    unacknowledged: int
    stream: int
    udp: int


class Kernel(NamedTuple):
    """The kernel that the program is made for."""

    flow: FlowOffsets
    look_up: int
    release: int
    """The types of the kernel's functions."""
    module: int
    """A descriptor of their module's BTF; 0 if they are part of the kernel itself."""
    tick_hz: int
    """Ticks a second (``CONFIG_HZ``), the unit of entries' time-outs."""
    timeouts_s: Timeouts


@contextmanager
def kernel() -> Iterator[Kernel]:
    """Yield the running kernel, valid for the duration of the block.

    Raises OSError if it does not support the program.
    """
    with ExitStack() as stack:
        types, module = [system.kernel_types()], 0
        if of_module := system.module_types(_MODULE):
            types.append(of_module[0])
            module = of_module[1]
            stack.callback(os.close, module)
        try:
            flow, look_up, release = _found(Btf(*types, names=("nf_conn", _LOOK_UP, _RELEASE)))
        except (KeyError, ValueError, struct.error) as error:
            raise OSError(errno.EOPNOTSUPP, f"its connection tracking lacks {error}") from None
        # The resolution of the clock that only counts ticks is the length of a tick.
        tick_hz = round(1 / time.clock_getres(uapi.CLOCK_MONOTONIC_COARSE))
        yield Kernel(flow, look_up, release, module, tick_hz, timeouts())


def timeouts() -> Timeouts:
    """Return the present time-outs. Raises OSError."""

    def read(name: str) -> int:
        return int(Path(f"/proc/sys/net/netfilter/nf_conntrack_{name}").read_text())

    return Timeouts(
        established=read("tcp_timeout_established"),
        unacknowledged=read("tcp_timeout_unacknowledged"),
        stream=read("udp_timeout_stream"),
        udp=read("udp_timeout"),
    )


def _found(btf: Btf) -> tuple[FlowOffsets, int, int]:
    def both(*path: str) -> tuple[int, int]:
        first, second = (btf.offset("nf_conn", "tuplehash", n, "tuple", *path) for n in (0, 1))
        return first, second

    flow = FlowOffsets(
        mark=btf.offset("nf_conn", "mark"),
        status=btf.offset("nf_conn", "status"),
        timeout=btf.offset("nf_conn", "timeout"),
        source=both("src", "u3", "ip"),
        source_port=both("src", "u", "all"),
        destination=both("dst", "u3", "ip"),
        destination_port=both("dst", "u", "all"),
    )
    return flow, btf.function(_LOOK_UP), btf.function(_RELEASE)
