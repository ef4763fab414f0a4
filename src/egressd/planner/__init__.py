"""Pure planning: the desired state in, a plan for netd out, and text for the kernel.

Called by `service` (to plan changes) and by `netd` (to render what the kernel is given).
Never touches a file, a socket, the clock, randomness, a subprocess or a log.

- `compile` and `change`: `DesiredState` to `Plan`, and a few edits to a `Change`.
- `registry`: every mark bit, table number, priority and port range, with its reason.
- `outbounds`: a node's configuration to a sing-box outbound.
- `flatten`: overlapping CIDR rules to disjoint ranges.
- `nft`, `topology`, `routes`: a plan and the machine's facts to kernel state.
"""
