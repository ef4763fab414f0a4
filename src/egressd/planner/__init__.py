"""Pure planning: turns the desired state into a plan for netd, and a plan into text for the kernel.

Called by `service` (to plan changes) and by `netd` (to render kernel state). Never touches a file,
a socket, the clock, randomness, a subprocess or a log.

- `compile` and `change`: `DesiredState` to `Plan`, and a few edits to a `Change`.
- `registry`: every mark bit, table number, priority and port range, with its reason.
- `targets`: the meaning of a target: its nodes, the hops to each, and its mark.
- `nodes`: a node's own settings. `documents`, `outbounds`, `probes`: the engine's input: an
  instance's document, a node's outbound, and documents that only measure.
- `groups`: the node that serves a group's clients. `whitelist_entries`, `rule_set`: the whitelist's
  entries, and its domains in the engine's format.
- `flatten`: overlapping CIDR rules to disjoint ranges.
- `topology`, `nft`, `chains`, `sets`, `routing`, `sysctls`, `shaping`: a plan and the machine's
  facts to kernel state.
- `lines`: VPN lines, and the configuration of their daemons.
"""
