"""Clients with a speed limit: one that egressd sets, and the same set by hand on plain Linux."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.sites import Site
from egressd.model.bounds import RULE_LIMIT_MAX_KBPS

KBPS: Final = RULE_LIMIT_MAX_KBPS
"""The limit of both: more than a client reaches here."""
_LAN: Final = "lan0"
_QUEUE: Final = 1000
"""Packets that may wait, as in egressd's classes of that rate."""


@contextmanager
def by_hand(site: Site, client: str) -> Iterator[None]:
    """Forward and masquerade, with limits of the client's address: for each direction an IFB with
    one HTB class, and filters that lead there and to the class.
    """
    run = site.lab.router.run
    with site.lab.plain_router():
        run("tc", "qdisc", "add", "dev", _LAN, "clsact")
        try:
            for hook, field in (("ingress", "src"), ("egress", "dst")):
                device = f"by-hand-{hook}"
                run("ip", "link", "add", device, "txqueuelen", str(_QUEUE), "type", "ifb")
                run("ip", "link", "set", device, "up")
                run("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb")
                rate = f"{KBPS}kbit"
                at = ("dev", device, "parent", "1:")
                run("tc", "class", "add", *at, "classid", "1:7", "htb", "rate", rate)
                leaf = ("dev", device, "parent", "1:7", "pfifo", "limit", str(_QUEUE))
                run("tc", "qdisc", "add", *leaf)
                match = ("protocol", "ip", "u32", "match", "ip", field, f"{client}/32")
                run("tc", "filter", "add", *at, *match, "flowid", "1:7")
                redirect = ("action", "mirred", "egress", "redirect", "dev", device)
                run("tc", "filter", "add", "dev", _LAN, hook, *match, *redirect)
            yield
        finally:
            run("tc", "qdisc", "delete", "dev", _LAN, "clsact")
            for hook in ("ingress", "egress"):
                run("ip", "link", "delete", f"by-hand-{hook}", check=False)
