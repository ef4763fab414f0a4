"""The engine: sing-box instances in worker processes, and netd's hold on them.

A *worker* is a process of its own user that runs many instances through the `singbox`
package. A *trial worker* is one that serves no client: configurations are tried and delays
measured there, so that an engine that crashes on one hurts nobody.

In netd:
- `pool`: the one door for the reconciler: start, stop, running, try, measure.
- `process`: one worker process: started or adopted, asked, watched, ended.
- `trial`: the trial worker's work and its crashes.
- `ports`: which loopback port the next instance listens on.

In a worker:
- `worker`: the process: it drops its privileges and answers requests.
- `instances`: the only module of the project that imports `singbox`.
- `delay`: many probes through a few instances; `batch` makes the documents, `fetch` one request.

On both sides: `wire` (what they say to each other) and `reasons` (the engine's errors in plain
words).

Called by `netd`'s reconciler. May import `model`, `planner.registry`, `netd.framing` and
`netd.privileges`.
"""
