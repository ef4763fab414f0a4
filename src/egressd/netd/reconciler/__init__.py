"""Puts plans in force, each change whole or not at all, and keeps them in force.

- `reconciler`: owns the plan in force; `applier`: carries out a change, which `step` describes with
  all its effects; `phase`: the state of the device.
- `change_effects`, `moved_clients`, `stale_flows`: the clients that a change moves, and the ends of
  their old flows.
- `validation`: checks every plan again, because netd does not trust the sender.
- `plan_file`: the last accepted plan on disk, so that a boot needs no api.
- `restarter`: starts instances again that do not run.
- `status`, `cached`, `publisher`: the device's status, read, kept for a moment, and published.

Composed and run by `app`, called by `ipc`. May import `model` and `planner`, and all of netd but
`ipc`: the kernel's state, the engine and the lines by their ports (`egressd.netd.ports`) only.
"""
