"""Pure planning: the desired state in, a plan for netd out, and text for the kernel.

Called by `service` (to plan changes) and by `netd` (to render what the kernel is given).
Never touches a file, a socket, the clock, randomness, a subprocess or a log.

- `compile` and `change`: `DesiredState` to `Plan`, and a few edits to a `Change`.
- `registry`: every mark bit, table number, priority and port range, with its reason.
- `targets`: what a target stands for: nodes, the hops to each, and its mark.
- `nodes`: what a node says of itself. `documents`, `outbounds`, `probes`: what the engine is given:
  an instance's document, a node's outbound, and what only measures.
- `groups`: which node a group's clients go by. `listing`, `rule_set`: the whitelist's entries, and
  its domains as the engine reads them.
- `flatten`: overlapping CIDR rules to disjoint ranges.
- `topology`, `nft`, `chains`, `sets`, `routing`, `sysctls`, `shaping`: a plan and the machine's
  facts to kernel state.
- `lines`: VPN lines, and the configuration of their daemons.
"""
