"""netd, the privileged process: it alone touches the kernel and runs other programs.

- `server`: the Unix socket that the api talks to; `client`: the api's end of it.
- `reconciler`: keeps the plan in force; `applier`: puts changes of it in force.
- `machine`, `serving`: their two hands, in the kernel and in the engine; `limits`: speed limits.
- `impact`, `tidier`: whom a change moves, and the end of what they had open.
- `steering`, `groups`, `health`: which node a group's clients go by, and which nodes live.
- `outages`: which other nodes fail, as far as their clients have found out.
- `stalls`: the end of shared connections to nodes that would wait on after an outage.
- `resolvers`: which of several answers.
- `reviver`: tries again what would not start. `status`, `meter`: how the device is doing.
- `planfile`: the last accepted plan on disk, so that a boot needs no api.
- `validation`: every plan is checked again here; the sender is not trusted.
- `kernel`: nftables, routes, conntrack, sockets, sysctls, and what the machine has.
- `bpf`: filters of what netlink tells. `processes`, `files`: what outlives netd.
- `port_range`: which port the next user of a range gets.
- `engine`: the workers that run sing-box.
- `lines`: L2TP and PPTP.

Put together and run by `app`; the api's process and `cli` talk to it by `client`. May import
`model` and `planner`.
"""
