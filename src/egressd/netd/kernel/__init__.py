"""Adapters to the kernel: small modules that do one thing each, and know of no plan.

They act on the network namespace of the process and need its CAP_NET_ADMIN. Called by the
reconciler and its hands, by `lines`, and by `app` to make them and to watch. Most calls take well
under a millisecond and may be made in the event loop; those that say otherwise (a full nftables
load, conntrack, sockets) want a thread. May import `model`, and `planner` for its registry of
numbers; of netd `bpf` alone.

- `nft`: nftables transactions; `nft_events`: word of other programs' changes.
- `shaping`: speed limits and each rule's counters.
- `facts`: interfaces, addresses, routes; and word of their changes.
- `routes`: converges routes and policy rules; `fib` is their wire format.
- `conntrack`, `sockets`: what is left of clients that moved, and how many flows there are.
- `sysctl`, `memory`, `traffic`: kernel parameters; how much memory processes hold, and what
  interfaces have carried. `firewalls`: other programs' tables that hold clients up.
- `announcements`: what the watchers of `facts`, `nft_events` and `shaping` have in common.
- `netlink`, `picker`, `follower`, `ranges`: messages, paced calls, and address sets beneath them.
"""
