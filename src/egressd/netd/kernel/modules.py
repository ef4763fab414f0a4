"""Advice on missing kernel modules, derived from the kernel's error messages.

The kernel loads modules by itself if it has them and is allowed to.
"""

from __future__ import annotations

from typing import Final

_NFT: Final = {
    "ct": "nft_ct",
    "dnat": "nft_nat",
    "fib": "nft_fib_inet",
    "fwd": "nft_fwd_netdev",
    "jhash": "nft_hash",
    "limit": "nft_limit",
    "log": "nft_log",
    "masquerade": "nft_masq",
    "notrack": "nft_ct",
    "numgen": "nft_numgen",
    "queue": "nft_queue",
    "redirect": "nft_redir",
    "reject": "nft_reject_inet",
    "snat": "nft_nat",
    "socket": "nft_socket",
    "symhash": "nft_hash",
    "tproxy": "nft_tproxy",
}
"""The first word of an nftables expression -> the module that provides it."""
_NETLINK: Final = {
    "Specified qdisc kind is unknown": "sch_htb sch_tbf",
    "Unknown device type": "ifb",
    "Failed to load TC action module": "act_mirred",
    "TC classifier not found": "cls_bpf",
}
"""rtnetlink's error text when a module is missing -> the modules that egressd uses."""


def for_nft(reason: str, culprit: str) -> str:
    """Return advice for an expression that the kernel does not know; empty for another fault."""
    module = _NFT.get(culprit.partition(" ")[0])
    is_unknown = "No such file or directory" in reason or "not supported" in reason
    return _advice(module) if module and is_unknown else ""


def for_netlink(reason: str) -> str:
    """Return advice for a kind of object that the kernel does not know; empty for another fault."""
    return next((_advice(names) for told, names in _NETLINK.items() if told in reason), "")


def _advice(modules: str) -> str:
    return f"; the kernel lacks a module: modprobe {modules}"
