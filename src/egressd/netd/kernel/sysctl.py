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
from egressd.netd.kernel.sysctl_record import (
    RESERVED_PORTS,
    ROOT,
    SysctlRecord,
    with_effects,
    write_list,
)

_records: Final[list[SysctlRecord]] = []
"""The record of this process, if it keeps one: in netd."""


def keep_record(path: Path) -> None:
    """Record at `path` the values of parameters before they are changed, from now on."""
    _records[:] = [SysctlRecord(path)]


class Written(msgspec.Struct, frozen=True):
    """The result of `write`. Names are those it was given."""

    changed: dict[str, str]
    """Name -> the value before the change."""
    problems: tuple[Sentence, ...]
    """Sentences about parameters that exist and could not be set."""


def write(wanted: Mapping[str, str], root: Path = ROOT) -> Written:
    """Set each parameter that exists and has another value. Repeat-safe.

    Names are paths below /proc/sys (``net/ipv4/conf/lan0.7/rp_filter``), because interface names
    may contain dots. A name that does not exist is skipped: its module or its interface is missing.
    """
    before: dict[str, str] = {}
    changed: dict[str, str] = {}
    problems: list[Sentence] = []

    def refused(name: str, error: OSError) -> None:
        reason = error.strerror or str(error)
        problems.append(say("parameter-not-set", name=name, value=wanted[name], reason=reason))

    for name, value in wanted.items():
        try:
            present = (root / name).read_text()
        except FileNotFoundError:
            continue
        except OSError as error:
            refused(name, error)
            continue
        if present.split() != value.split():
            before[name] = present.strip()
    _note(before, root)
    for name, present in before.items():
        try:
            (root / name).write_text(wanted[name])
            changed[name] = present
        except FileNotFoundError:
            continue
        except OSError as error:
            refused(name, error)
    return Written(changed, tuple(problems))


def make_room(least: Mapping[str, int], root: Path = ROOT) -> None:
    """Raise each limit that is lower. A higher one stays, and so does a value of 0 (no limit).

    A limit that cannot be raised stays as it is (it is the whole machine's, and this is a
    container, or a namespace that does not show it).
    """
    lower = {}
    for name, value in least.items():
        with suppress(OSError):
            if 0 < int(present := (root / name).read_text()) < value:
                lower[name] = present.strip()
    _note(lower, root)
    for name in lower:
        with suppress(OSError):
            (root / name).write_text(str(least[name]))


def reserve_ports(ranges: Iterable[range], root: Path = ROOT) -> None:
    """Exclude these ports from the kernel's choice for sockets that request any port.

    Ports that other programs have reserved stay reserved (``ip_local_reserved_ports`` in the
    kernel's ip-sysctl.rst).
    """
    path = root / RESERVED_PORTS
    with suppress(OSError):
        _note({RESERVED_PORTS: path.read_text().strip()}, root)
        write_list(path, ",".join(f"{each.start}-{each.stop - 1}" for each in ranges).encode())


def _note(before: Mapping[str, str], root: Path) -> None:
    """Record values before they are changed, and those of parameters that change with them."""
    if not _records or not before:
        return
    present = {}
    for name in before:
        for each in with_effects(name, root):
            with suppress(OSError):
                present[each] = (root / each).read_text().strip()
    _records[0].note(present)
