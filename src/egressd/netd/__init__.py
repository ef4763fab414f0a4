"""netd, the privileged process: it alone touches the kernel and runs other programs.

- `server`: the Unix socket that the api connects to; `client`: the api's end of it.
- `reconciler`: keeps the plan in force; `applier`: puts changes of it in force.
- `machine`, `serving`: carry out their work in the kernel and in the engine; `limits`: speed
  limits.
- `impact`, `tidier`: find the clients that a change moves, and end their old connections.
- `steering`, `groups`, `health`: the node that each group's clients use, and the nodes that live.
- `outages`: the other nodes that fail, as far as their clients' connections show it.
- `stalls`: ends shared connections to nodes that would stay unusable after an outage.
- `resolvers`: the resolver of each list that answers.
- `reviver`: retries instances that would not start. `status`, `meter`: the device's state.
- `planfile`: the last accepted plan on disk, so that a boot needs no api.
- `validation`: every plan is checked again here; the sender is not trusted.
- `kernel`: nftables, routes, conntrack, sockets, sysctls, and what the machine has.
- `bpf`: filters of netlink messages. `processes`, `files`: processes and files that outlive netd.
- `port_range`: hands out the ports of a range.
- `engine`: the workers that run sing-box.
- `lines`: L2TP and PPTP.

`app` puts netd together and runs it; the api's process and `cli` reach it through `client`. May
import `model` and `planner`.
"""
