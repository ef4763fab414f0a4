"""VPN lines: L2TP, L2TP with IPsec and PPTP, dialled by the system's own daemons.

- `lines`: the interface to the reconciler: the wanted lines, and the state of each. Each L2TP line
  has a local UDP port, by which the rules of `planner.lines.line_rules` know its packets.
- `line_controller`: one line: it dials, watches, ends, waits, and dials again. `backoff` computes
  the wait, and `turns` the order of many lines.
- `charon`: strongSwan's IKE daemon, for lines with a secret; `vici` speaks its protocol,
  `shared_secrets` hands it one secret per server, and `manners` chooses the next attempt's manner.
- `pulse`: detects that the server of a line that is up has fallen silent.
- `diagnosis`: finds the reason of a failure in the daemons' logs, by the sentences of `reasons`;
  `failure` has the results. `logins` remembers the logins that have worked. `news` publishes states
  and events.
- `host_environment`: the machine: interfaces, addresses of servers, programs, kernel modules.

`planner.lines.daemon` and its neighbours render the files that the daemons read. Units outlive
netd: a later netd finds them by their folders. Called by `netd`'s reconciler. May import `model`,
`planner`, and of netd `kernel` and `system`.
"""
