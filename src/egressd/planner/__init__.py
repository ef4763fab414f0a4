"""Pure planning: the desired state in, a plan for netd out, and text for the kernel.

Called by `service` (to plan changes) and by `netd` (to render what the kernel is given).
Never touches a file, a socket, the clock, randomness, a subprocess or a log.

- `compile` and `change`: `DesiredState` to `Plan`, and a few edits to a `Change`.
- `registry`: every mark bit, table number, priority and port range, with its reason.
- `documents`, `outbounds`: what the engine is given: an instance's document, a node's outbound.
- `groups`: which node a group's clients go by. `rule_set`: the whitelist's domains, compiled.
- `flatten`: overlapping CIDR rules to disjoint ranges.
- `topology`, `nft`, `chains`, `routing`, `sysctls`, `shaping`: a plan and the machine's facts to
  kernel state.
- `lines` and `lines_…`: VPN lines, and the configuration of their daemons.
"""
