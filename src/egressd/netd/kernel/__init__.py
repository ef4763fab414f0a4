"""Adapters to the kernel: small modules that do one thing each and know no plan.

They act on the network namespace of the process and need its CAP_NET_ADMIN. Callers are the
reconciler and the modules it uses, `lines`, and `app`, which makes the adapters and runs their
watchers. Most calls take well under a millisecond and may be made in the event loop; calls that
take longer (a full nftables load, conntrack, sockets) document it and belong in a thread. May
import `model`, and `planner` for its registry of numbers; nothing of netd.

- `nft`: nftables transactions; `nft_events`: events about other programs' changes.
- `tc`: speed limits and each rule's counters.
- `machine_facts`: interfaces, addresses, routes; and events about their changes.
- `routes`: converges routes and policy rules; `fib` is their wire format.
- `icmp`: echo requests.
- `conntrack`, `sockets`: flows left over from clients that moved, and numbers of flows.
- `cut_flows`: TCP flows that must not be picked up after their conntrack entries are gone.
- `sysctl`, `memory`, `traffic`: kernel parameters; the memory that processes hold, and the
  bytes that interfaces have carried. `sysctl_record`: the parameters' earlier values.
- `firewalls`: other programs' tables that block clients.
- `event_watcher`: the common base of the watchers of `machine_facts`, `nft_events` and `tc`.
- `netlink`, `attribute_picker`, `debounce`, `address_ranges`: messages, paced calls, and address
  sets beneath them.
- `uapi`: the constants of all these interfaces, under the kernel's names.
"""
