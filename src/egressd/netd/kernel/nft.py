"""nftables through libnftables, in this process: one string in, one transaction. Moves of a few
hosts go to the kernel directly.

Spawning ``nft`` takes 16 to 20 ms a change; this takes 0.6 with egressd's own table, since the
library lists it first. The format is text, because libnftables is very slow with JSON (2.6 s for
10,000 concatenated elements). The functions are those of libnftables(3).
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, summarize_address_range
from pathlib import Path
from socket import inet_aton
from typing import Final

from egressd.model.errors import Failed
from egressd.netd.kernel import modules, uapi
from egressd.netd.kernel.netlink import KeptSocket, u32
from egressd.netd.kernel.set_elements import INET, swap
from egressd.planner.declared import base_chain, comment_text
from egressd.planner.registry import NFT_HOLD_TABLE, NFT_TABLE

_NFT_CTX_OUTPUT_STATELESS = 1 << 2
_NFT_CTX_OUTPUT_NUMERIC_ALL = 0b1111 << 7  # protocols, priorities, symbols, times
_NFT_CTX_OUTPUT_TERSE = 1 << 11

_PROTOCOLS = {"icmp": "1", "tcp": "6", "udp": "17"}

_REASONS_SHOWN = 3  # sentences of libnftables in an error's text
_REASON_MAX = 300
_TABLE = re.compile(rf"^table inet {NFT_TABLE} \{{.*?\n.*?^\}}\n", re.DOTALL | re.MULTILINE)
_ELEMENTS = re.compile(r"\belements = \{(.*?)\}", re.DOTALL)
_RANGE = re.compile(r"([\d.]+)-([\d.]+)")
_ERROR = re.compile(r"Error: (.*)")


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libnftables.so.1")
    context, text = ctypes.c_void_p, ctypes.c_char_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = context
    library.nft_ctx_free.argtypes = [context]
    library.nft_ctx_free.restype = None
    library.nft_ctx_output_set_flags.argtypes = [context, ctypes.c_uint]
    library.nft_ctx_output_set_flags.restype = None
    library.nft_ctx_set_dry_run.argtypes = [context, ctypes.c_bool]
    library.nft_ctx_set_dry_run.restype = None
    for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
        getattr(library, name).argtypes = [context]
        getattr(library, name).restype = ctypes.c_int
    for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
        getattr(library, name).argtypes = [context]
        getattr(library, name).restype = text
    library.nft_run_cmd_from_buffer.argtypes = [context, text]
    library.nft_run_cmd_from_buffer.restype = ctypes.c_int
    return library


@cache
def _library_file() -> tuple[str, int]:
    """Return the path and inode of the library that this process has loaded (proc(5), maps)."""
    _library()
    with open("/proc/self/maps") as maps:
        lines = (line.split(maxsplit=5) for line in maps if "/libnftables.so" in line)
        _, _, _, _, inode, path = next(lines)
    return path.removesuffix("\n").removesuffix(" (deleted)"), int(inode)


def is_library_replaced() -> bool:
    """Return whether the file of the library that this process has loaded was replaced.

    An upgrade of the package replaces it: this process continues with the loaded one.
    """
    path, inode = _library_file()
    try:
        return Path(path).stat().st_ino != inode
    except OSError:
        return True


HOLD_CHAINS: Final = {
    hook: base_chain(
        f"type nat hook {hook} priority 0;", f"keeps NAT registered with the kernel at {hook}"
    )
    for hook in ("prerouting", "input", "output", "postrouting")
}
HOLD_COMMENT: Final = "egressd: keeps known flows translated while its other table is missing"
_CLAIM: Final = f"add table inet {NFT_HOLD_TABLE} {{ flags owner; {comment_text(HOLD_COMMENT)} }}\n"
_NOT_OURS: Final = "Operation not permitted"
"""EPERM: the table has an owner (``nft_table_lookup`` in the kernel's nf_tables_api.c)."""
_HOLD: Final = "\n".join(
    (
        _CLAIM.rstrip(),
        *(
            f"add chain inet {NFT_HOLD_TABLE} {hook} {chain.declared()}"
            for hook, chain in HOLD_CHAINS.items()
        ),
        # The kernel stops connection tracking with the last rule that requests it.
        f"add rule inet {NFT_HOLD_TABLE} prerouting ct state established",
        "",
    )
)


class _Context:
    """A libnftables context: it carries out commands one at a time.

    After each of them it gets an empty one: it would keep what it has listed of the kernel's state
    until its next command (1.6 MB of the chains alone, and all elements that were asked for).
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        context = library.nft_ctx_new(0)
        if not context:
            raise Failed("start libnftables", "it gave no context")
        self._library = library
        self._context: int | None = context
        self._lock = threading.Lock()
        self._has_run = False
        library.nft_ctx_buffer_output(context)
        library.nft_ctx_buffer_error(context)

    def close(self) -> None:
        """Free the context, after the command that a thread may be carrying out."""
        with self._lock:
            if self._context is not None:
                self._library.nft_ctx_free(self._context)
                self._context = None

    def run(self, script: str, *, flags: int = 0, dry_run: bool = False) -> tuple[str, str]:
        """Carry out commands; return the problem (empty if there is none) and the output."""
        library = self._library
        with self._lock:
            context = self._context
            if context is None:
                return "libnftables is no longer in use", ""
            library.nft_ctx_output_set_flags(
                context, _NFT_CTX_OUTPUT_NUMERIC_ALL | _NFT_CTX_OUTPUT_STATELESS | flags
            )
            library.nft_ctx_set_dry_run(context, dry_run)
            failed = library.nft_run_cmd_from_buffer(context, script.encode())
            # Reading a buffer empties it.
            output: bytes = library.nft_ctx_get_output_buffer(context)
            errors: bytes = library.nft_ctx_get_error_buffer(context)
            library.nft_run_cmd_from_buffer(context, b"")
            if not self._has_run:
                self._has_run = True
                _keep_sockets()
        if failed:
            return _reason(errors.decode(errors="replace")), ""
        return "", output.decode(errors="replace")


def _keep_sockets() -> None:
    """Keep programs that this process starts from inheriting its netlink sockets.

    libnftables opens a socket, without close-on-exec, when a context runs for the first time. A
    line's daemon, which outlives netd, would keep owning what the socket owns: no later netd could
    claim the network namespace.
    """
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own descriptor is closed by now, and others may be
            if os.get_inheritable(int(entry.name)):
                found = socket.socket(fileno=int(entry.name))
                if found.family == socket.AF_NETLINK:
                    found.set_inheritable(False)
                found.detach()


class Nft:
    """nftables of the network namespace that it is made in.

    Methods may be called from any thread, and let other threads run. Changes take turns, and so do
    look-ups; neither waits for the other. (Scripts are parsed by one thread at a time: up to
    nftables 1.0.8, protocol names are looked up by functions of the C library that aren't
    thread-safe.)
    """

    def __init__(self) -> None:
        try:
            library = _library()
        except OSError as error:
            raise Failed("load libnftables", str(error)) from error
        _library_file()  # read while the loaded file is certainly still in place
        self._changing = _Context(library)
        self._looking = _Context(library)
        self._holding = _Context(library)
        self._moving = KeptSocket(uapi.NETLINK_NETFILTER)

    def close(self) -> None:
        """Free the contexts and the socket. A script that a thread runs afterwards fails."""
        self._changing.close()
        self._looking.close()
        self._holding.close()
        self._moving.close()

    def run(self, script: str) -> None:
        """Carry out `script` as one transaction: all of it, or nothing. Raises Failed."""
        problem, _ = self._changing.run(script)
        if problem:
            raise Failed("change nftables", problem)

    def move_hosts(self, stale: Collection[str], fresh: Mapping[str, int]) -> None:
        """Take addresses out of the map ``hosts`` and put others in with their marks, as one
        transaction, at most `set_elements.SWAPPED_MAX` of each. Not to be called by several threads
        at once. Raises Failed.
        """
        marks = {inet_aton(address): u32(mark) for address, mark in fresh.items()}
        try:
            with self._moving as kernel:
                swap(kernel, INET, "hosts", [*map(inet_aton, stale)], marks)
        except OSError as error:
            raise Failed("change nftables", error.strerror or str(error)) from error

    def claim(self) -> bool:
        """Claim the network namespace for this netd for as long as this process lives; return False
        if another netd holds it.

        The kernel decides: a table with an owner (``flags owner``, nft(8)) can be made only by a
        process that may change the namespace, and disappears with the owner's socket. Raises
        Failed.
        """
        problem, _ = self._holding.run(_CLAIM)
        if problem and _NOT_OURS not in problem:
            raise Failed("claim the network namespace", problem)
        return not problem

    def hold_translation(self) -> None:
        """Make the kernel translate known flows for as long as this process lives, even if other
        programs flush the ruleset.

        Without a rule that uses connection tracking and a chain of type nat the kernel neither
        tracks nor translates flows: an answer to a client that arrives while our table is missing
        would be taken for this machine's own. The extra table has such chains, and only its owner
        can remove it (``flags owner``, nft(8)). Raises Failed.
        """
        problem, _ = self._holding.run(_HOLD)
        if problem:
            raise Failed("keep flows translated", problem)

    def check(self, script: str) -> None:
        """Raise Failed if `run` would, as far as that can be known without running it."""
        problem, _ = self._changing.run(script, dry_run=True)
        if problem:
            raise Failed("check an nftables change", problem)

    def chains(self) -> str | None:
        """Return our table (family inet) as ``nft list`` prints it, without the elements of its
        sets.

        None if there is no such table. Equal text means equal rules: counters are left out and
        everything is numeric.
        """
        # To list one table, nftables 1.0.6 reads the elements of its sets all the same (90 ms of
        # CPU time with 10,000 rules); to list all tables without them it does not (6 ms).
        try:
            listed = self._list("list ruleset inet", _NFT_CTX_OUTPUT_TERSE) or ""
        except Failed:  # perhaps because of another program's table
            return self._list(f"list table inet {NFT_TABLE}", _NFT_CTX_OUTPUT_TERSE)
        found = _TABLE.search(listed)
        return None if found is None else found[0]

    def listed(self, what: str) -> str:
        """Return the output of ``nft list`` for an object ("chains", "table ip filter"), without
        the elements of sets; nothing if the object does not exist.
        """
        return self._list(f"list {what}", _NFT_CTX_OUTPUT_TERSE) or ""

    def elements(self, name: str) -> dict[str, str] | None:
        """Return the elements of a set or map of our table: key -> value.

        Both are in nft's notation: ``0x10000007`` for a mark, ``"lan0" . 10.0.0.0/8`` for a
        concatenation, an empty value in a set. A range that is a network is printed as one (see
        `as_listed`). None if there is no such set.
        """
        for kind in ("map", "set"):
            listed = self._list(f"list {kind} inet {NFT_TABLE} {name}", 0)
            if listed is not None:
                return _parse_elements(listed)
        return None

    def value(self, name: str, key: str) -> str | None:
        """Return the value for `key` in a map of our table; None if there is none."""
        found = self._list(f"get element inet {NFT_TABLE} {name} {{ {key} }}", 0)
        return None if found is None else next(iter(_parse_elements(found).values()), None)

    def _list(self, command: str, flags: int) -> str | None:
        problem, output = self._looking.run(command, flags=flags)
        if not problem:
            return output
        if "No such file or directory" in problem:
            return None
        raise Failed("read nftables", problem)


def as_listed(key: str) -> str:
    """Return the key of an element as nft prints it: protocols by number, networks as networks.

    (A range that is a network is printed as a network.)
    """
    *first, last = (_PROTOCOLS.get(part, part) for part in key.split(" . "))
    if bounds := _RANGE.fullmatch(last):
        networks = list(summarize_address_range(*map(IPv4Address, bounds.groups())))
        if len(networks) == 1:
            last = str(networks[0])
    return " . ".join((*first, last.removesuffix("/32")))


def _parse_elements(listed: str) -> dict[str, str]:
    found = _ELEMENTS.search(listed)
    if found is None:
        return {}
    pairs = (" ".join(item.split()).partition(" : ") for item in found[1].split(","))
    return {key: value for key, _, value in pairs}


def _reason(errors: str) -> str:
    """Return libnftables' error text without the source it quotes, which may be a whole plan.

    An error is ``where: Error: what``, a line of source and a line of ``^`` under the culprit.
    """
    lines = errors.splitlines()
    reasons = []
    for number, line in enumerate(lines):
        found = _ERROR.search(line)
        if found is None:
            continue
        reason = found[1]
        if number + 2 < len(lines) and (marked := lines[number + 2]).strip(" ~^") == "":
            culprit = lines[number + 1][marked.find("^") : marked.rfind("^") + 1]
            advice = modules.for_nft(reason, culprit)
            reason += (f" ({culprit})" if culprit.strip() else "") + advice
        reasons.append(reason[:_REASON_MAX])
    if not reasons:
        return errors.strip()[:_REASON_MAX] or "no reason given"
    more = len(reasons) - _REASONS_SHOWN
    return "; ".join(reasons[:_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
