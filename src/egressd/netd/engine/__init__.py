"""The engine: sing-box instances in worker processes, and netd's control of them.

A *worker* is a process of its own user that runs many instances through the `singbox` package. A
*trial worker* is one that serves no client: configurations are tried and delays measured there, so
that an engine that crashes on one does no harm.

In netd:
- `pool`: the only interface for the reconciler: start, stop, running, try, measure.
- `slots`: the number of workers, and the worker of an instance, as a pure decision; `workers`: the
  workers, started and ended by it.
- `slot`: a place for a worker, kept occupied; `process`: the worker in it, asked and watched;
  `launch`: processes on the machine, started and found; `scope`: a control group for each.
- `trial`: the trial worker's work; `quarantine`: configurations that crash the engine.
- `document`: the document to run, made of an instance of the plan;
- `listeners`: the listeners in a document; `rule_sets`: the files it reads.

In a worker:
- `worker`: its command, and what it loads; `worker_process`: the process, including its rights;
  `server`: netd's requests.
- `instances`: the only module of egressd's that imports `singbox` (the lab has peers of its own).
- `outbound_errors`: outbound errors that instances report; `netlink_filter`: a filter of the link
  and route events that instances receive.
- `delay`: many probes through a few instances; `batch`: their documents; `fetch`: one request.

On both sides: `lock` (a worker's file), `protocol` (requests and answers), `urls`, and `reasons`
(the engine's errors in plain words).

Called by netd's reconciler, and by `app` to make the pool. May import `model`, `planner.bounds`,
`planner.documents`, `planner.registry`, `planner.rule_set`, and of netd `kernel` and
`system`.
"""
