"""The one place that wires everything: configuration, processes, and their dependencies.

- `config`: the configuration file.
- `supervise`: ``egressd serve``, which starts netd and the api and keeps them running.
- `netd_process`, `api_process`: the main functions of the two.
- `block_process`: blocks every client in place of a netd that should stop and cannot.

Called by `cli`; may import every room.
"""
