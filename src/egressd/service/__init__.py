"""The use cases: the only door to a change of what is wanted.

Called by `api` and `console`; wired by `app`. Imports `model`, `formats` and `planner`; the
outside world comes in through the protocols of `ports`. Every method checks what it is given
(`Invalid`, every fault at once), and returns once the change is stored and in force.

- `ledger`: the current state, and the one way in which it changes.
- `rules`, `nodes`, `lines`, `whitelist`, `proxy_services`, `settings`, `system`: one resource
  each.
- `backups`: all of it, to a file and back.
- `checks`, `listeners`: what a field may hold; which ports are taken.
- `imports`: what became of an import's rows, and what they change.
- `references`, `relays`: what a rename moves; which node dials through which.
- `debts`: what callers owe for their guesses.
- `numbering`: the numbers that groups and interfaces are given. `naming`: netd's news by name.
- `consequences`: what an operator should know after a change.
- `journal`: who changed what. `overview`, `target_rates`: everything at a glance.
- `blocking`: where targets leave, and why one is blocked.
- `explain`, `why`: where a client's traffic goes, told and tried.
"""
