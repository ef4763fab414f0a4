"""VPN lines: L2TP, L2TP with IPsec and PPTP, dialled by the system's own daemons.

- `lines`: the one door for the reconciler: what is wanted, how each line is doing. Each L2TP line
  has a local UDP port, which is what the guard in `planner` goes by.
- `keeper`: one line: dial, watch, end, wait, again. `backoff` says how long, and `turns` who goes
  first of many.
- `unit`: a daemon with all its children, in a folder and mount namespace of its own.
- `charon`: strongSwan's IKE daemon, for lines with a secret; `vici` speaks its protocol,
  `shared_secrets` hands it one secret a server, and `manners` says what to try next.
- `pulse`: whether the server of a line that is up is alive.
- `diagnosis`: what the daemons' logs say, by the sentences of `reasons`; `failure`: what comes of
  it. `logins` remembers those that have worked. `news`: what is told.
- `surroundings`: what lines ask the machine: interfaces, addresses of servers, programs, modules.

What daemons read is rendered by `planner.lines.daemon` and its neighbours. Units outlive netd: a
later one finds them by their folders. Called by `netd`'s reconciler. May import `model`,
`planner`, and of netd `kernel`, `files`, `port_range` and `processes`.
"""
