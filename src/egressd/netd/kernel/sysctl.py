"""Kernel parameters under /proc/sys, written only if they differ.

Those under net/ belong to the network namespace of the process that opens the file, independent of
the namespace in which /proc was mounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from egressd.model.wording import Sentence, say

_ROOT: Final = Path("/proc/sys")


class Written(msgspec.Struct, frozen=True):
    """The result of `write`. Names are those it was given."""

    changed: dict[str, str]
    """Name -> the value before the change."""
    problems: tuple[Sentence, ...]
    """Sentences about parameters that exist and could not be set."""


def write(wanted: Mapping[str, str], root: Path = _ROOT) -> Written:
    """Set each parameter that exists and has another value. Repeat-safe.

    Names are paths below /proc/sys (``net/ipv4/conf/lan0.7/rp_filter``), because interface names
    may contain dots. A name that does not exist is skipped: its module or its interface is missing.
    """
    changed: dict[str, str] = {}
    problems: list[Sentence] = []
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
            reason = error.strerror or str(error)
            problems.append(say("parameter-not-set", name=name, value=value, reason=reason))
    return Written(changed, tuple(problems))


def make_room(least: Mapping[str, int], root: Path = _ROOT) -> None:
    """Raise each limit that is lower. A higher one stays, and so does a value of 0 (no limit).

    A limit that cannot be raised stays as it is (it is the whole machine's, and this is a
    container, or a namespace that does not show it).
    """
    for name, value in least.items():
        path = root / name
        with suppress(OSError):
            if 0 < int(path.read_text()) < value:
                path.write_text(str(value))


def reserve_ports(ranges: Iterable[range], root: Path = _ROOT) -> None:
    """Exclude these ports from the kernel's choice for sockets that request any port.

    Ports that other programs have reserved stay reserved (``ip_local_reserved_ports`` in the
    kernel's ip-sysctl.rst).
    """
    path = root / "net/ipv4/ip_local_reserved_ports"
    text = ",".join(f"{each.start}-{each.stop - 1}" for each in ranges).encode()
    with suppress(OSError), path.open("wb", buffering=0) as file:
        # A write at the start of the file replaces the whole list, a write behind it adds to the
        # list; a page at a time (proc_do_large_bitmap in the kernel's sysctl.c).
        while text:
            file.seek(1)
            text = text[file.write(text) :]
