"""Clients with a speed limit: one that egressd sets, and the same set by hand on plain Linux."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.sites import Site
from egressd.model.bounds import RULE_LIMIT_MAX_KBPS
from egressd.planner.shaping import shape

KBPS: Final = RULE_LIMIT_MAX_KBPS
"""The limit of both: more than a client reaches here."""
_LAN: Final = "lan0"
_SHAPE: Final = shape(KBPS)
"""Burst and queue of egressd's classes of that rate, which the others get, too."""


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
                run("ip", "link", "add", device, "type", "ifb")
                run("ip", "link", "set", device, "up")
                run("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb")
                burst = str(_SHAPE.burst)
                rate = ("rate", f"{KBPS}kbit", "burst", burst, "cburst", burst)
                at = ("dev", device, "parent", "1:")
                run("tc", "class", "add", *at, "classid", "1:7", "htb", *rate)
                queue = ("bfifo", "limit", str(_SHAPE.queue_bytes))
                leaf = ("dev", device, "parent", "1:7", *queue)
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
