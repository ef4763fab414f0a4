"""Checks that repeat: which nodes and DNS servers work, and which clients exceed their bounds.

- `groups`, `group_selection`, `group_checks`: the nodes of groups, and the choice among them.
- `node_failures`: the other nodes that fail, as their clients' connections show it.
- `stalled_connections`: shared connections to nodes that an outage left unusable.
- `dns_servers`, `dns_doubts`, `egress_probe`: the DNS server of each egress that answers.
- `client_bounds`, `caller_bounds`, `proxy_handshakes`, `refused_sources`, `worker_descriptors`: the
  bounds of clients, of proxy services' callers and of engine workers.

Composed by `app`; each check reports to the reconciler, which acts on it. May import `model` and
`planner`, and of netd all but `lines`, `reconciler` and `ipc`.
"""
