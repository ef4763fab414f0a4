"""Kernel parameters under /proc/sys, written only where they differ.

Those under net/ belong to the network namespace of whoever opens the file, whichever
namespace /proc was mounted in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_ROOT: Final = Path("/proc/sys")


class Written(msgspec.Struct, frozen=True):
    """What `write` did. Names are those it was given."""

    changed: dict[str, str]
    """Name -> the value there was before."""
    problems: tuple[str, ...]
    """Sentences about parameters that exist and could not be set."""


def write(wanted: Mapping[str, str], root: Path = _ROOT) -> Written:
    """Set each parameter that exists and has another value. Repeat-safe.

    Names are paths below /proc/sys (``net/ipv4/conf/lan0.7/rp_filter``): dots occur in
    interface names. A name that does not exist is passed over: its module or its
    interface is not there.
    """
    changed: dict[str, str] = {}
    problems: list[str] = []
    for name, value in wanted.items():
        path = root / name
        try:
            before = path.read_text()
            if before.split() != value.split():
                path.write_text(value)
                changed[name] = before.strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"could not set {name} to {value}: {error.strerror}")
    return Written(changed, tuple(problems))


def make_room(least: Mapping[str, int], root: Path = _ROOT) -> None:
    """Raise each limit that is lower. A higher one stays, and so does none (0).

    Where one cannot be raised (it is the whole machine's, and this is a container, or a namespace
    that does not show it), there is just less room.
    """
    for name, value in least.items():
        path = root / name
        with suppress(OSError):
            if 0 < int(path.read_text()) < value:
                path.write_text(str(value))


def reserve_ports(ranges: Iterable[range], root: Path = _ROOT) -> None:
    """Have the kernel choose none of these as the port of a socket that asks for any.

    Ports that others have reserved stay so (``ip_local_reserved_ports`` in the kernel's
    ip-sysctl.rst).
    """
    path = root / "net/ipv4/ip_local_reserved_ports"
    text = ",".join(f"{each.start}-{each.stop - 1}" for each in ranges).encode()
    with suppress(OSError), path.open("wb", buffering=0) as file:
        # What is written at the beginning takes the place of all that is there, what is written
        # behind it is added; a page at a time (proc_do_large_bitmap in the kernel's sysctl.c).
        while text:
            file.seek(1)
            text = text[file.write(text) :]
