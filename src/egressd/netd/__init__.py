"""netd, the privileged process: only netd changes the kernel and runs other programs.

Its wings, lowest first. A wing may import the ones before it (`tests/test_imports.py`).

- `system`: processes, files and privileges; periodic tasks.
- `kernel`: nftables, routes, conntrack, sockets, sysctls, the fast path and speed limits.
- `engine`: the workers that run sing-box.
- `lines`: L2TP and PPTP.
- `ports` (a module): what the wings below need of kernel, engine and lines, as types.
- `dataplane`: the state of kernel and engine that a plan asks for: `kernel_state`, `instances`,
  `speed_limits`.
- `health`: which nodes and DNS servers work, and which clients exceed their bounds.
- `reconciler`: puts plans in force and keeps them in force.
- `ipc`: the Unix socket between the api and netd.

`app` composes and runs netd. The api's process and `cli` reach it through `ipc.client`. May import
`model` and `planner`.
"""
