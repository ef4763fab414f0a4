"""The use cases: the only way to change the desired state.

Called by `api` and `console`; wired by `app`. Imports `model`, `formats` and `planner`; the outside
world comes in through the protocols of `ports`. Every method checks its arguments (`Invalid`, every
fault at once), and returns once the change is stored and in force.

- `ledger`, `steps`: the current state, and the one way in which it changes.
- `rules`, `nodes`, `lines`, `whitelist`, `proxy_services`, `settings`, `system`: one resource each.
- `backups`: the whole state, to a file and back.
- `checks`, `listeners`: the valid values of fields; the ports that are taken.
- `imports`: the result of an import's rows, and their changes.
- `renames`, `dial_chains`: the references that a rename moves; chains of nodes that dial through
  others.
- `subscriptions`: lists of nodes as a resource, and the clock that fetches them; what is done is in
  `subscription_refresh`, `subscription_merge` (the change) and `subscription_records`.
- `errand_paths`: the paths of messages and pages that the device itself sends and fetches.
- `number_allocation`: the numbers that groups and interfaces are given. `event_names`: netd's news
  by name.
- `change_warnings`: warnings for the operator after a change.
- `journal`, `authorship`: the record of changes and their authors. `undo`: the log of changes, and
  their inverses. `trials`: changes that are taken back unless they are confirmed.
- `overview`, `target_rates`: the overview page.
- `reachability`: the egresses of targets, and the reason why one is blocked. `route_explanation`,
  `route_probe`: the path of a client's traffic, explained and probed.
"""
