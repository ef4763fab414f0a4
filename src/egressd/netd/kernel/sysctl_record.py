"""The values that kernel parameters had before egressd changed them, in a file.

The first value of a boot counts: it is in the file, and durable, before the parameter is changed.
`restore` puts the values back when egressd is removed. The package's script does the same by the
shell (``packaging/debian/postrm``), so the file has a line for each parameter: name, tab, value.
Its first line names the boot and the network namespace, in which alone it is of use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger()

ROOT: Final = Path("/proc/sys")
FORWARD: Final = "net/ipv4/ip_forward"
RESERVED_PORTS: Final = "net/ipv4/ip_local_reserved_ports"
"""A list, which may have more than a page (`write_list`)."""

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/net")


class SysctlRecord:
    """The record of one network namespace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = read(path)
        self._is_saved = True

    def note(self, values: Mapping[str, str]) -> None:
        """Record the present values of parameters that are about to be changed, unless they have
        been recorded. If the file cannot be written, that is logged, and tried again the next time.
        """
        fresh = {name: value for name, value in values.items() if name not in self._values}
        if not fresh and self._is_saved:
            return
        self._values |= fresh
        try:
            _write(self._path, self._values)
        except OSError as error:
            if self._is_saved:
                log.warning("cannot record kernel parameters", error=str(error))
            self._is_saved = False
        else:
            self._is_saved = True


def read(path: Path) -> dict[str, str]:
    """Return the recorded values by name, in the order in which they are to be put back; none if
    the record is another boot's or namespace's.
    """
    try:
        head, *lines = path.read_text().splitlines()
    except (OSError, ValueError):  # no file, no line, no text
        return {}
    if head != _here():
        return {}
    rows = (line.partition("\t") for line in lines)
    return {name: value for name, tab, value in rows if tab}


def restore(path: Path, root: Path = ROOT) -> list[str]:
    """Put the recorded values back, and return a sentence for each that cannot be. Repeat-safe.

    Parameters of interfaces that are gone are skipped.
    """
    problems = []
    for name, value in read(path).items():
        file = root / name
        try:
            if file.read_text().split() != value.split():
                if name == RESERVED_PORTS:
                    file.write_text("\n")
                    write_list(file, value.encode())
                else:
                    file.write_text(value)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = error.strerror or str(error)
            problems.append(f"could not set {name} back to {value}: {reason}")
    return problems


def with_effects(name: str, root: Path) -> tuple[str, ...]:
    """Return a parameter, and those that change with it, which are to be put back after it.

    ``ip_forward`` sets ``forwarding`` of each interface, and switches ``accept_redirects`` over
    (``inet_forward_change`` in the kernel's devinet.c).
    """
    if name != FORWARD:
        return (name,)
    folders = sorted((root / "net/ipv4/conf").glob("*"))
    each = [f"net/ipv4/conf/{it.name}/forwarding" for it in folders if it.name != "all"]
    return (name, "net/ipv4/conf/all/accept_redirects", *each)


def write_list(file: Path, text: bytes) -> None:
    """Add ranges of ports to a list of the kernel's. Raises OSError.

    A write at the start of the file replaces the whole list, a write behind it adds to the list; a
    page at a time (proc_do_large_bitmap in the kernel's sysctl.c).
    """
    with file.open("wb", buffering=0) as opened:
        while text:
            opened.seek(1)
            text = text[opened.write(text) :]


def _here() -> str:
    """Return the first line of a record of this boot and network namespace."""
    return f"{_BOOT.read_text().strip()} {_NAMESPACE.readlink()}"


def _write(path: Path, values: Mapping[str, str]) -> None:
    """Replace the file, durably. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [_here(), *(f"{name}\t{value}" for name, value in values.items())]
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
