"""The one place that wires everything: configuration, processes, and what each is given.

- `config`: the configuration file.
- `supervise`: ``egressd serve``, which starts netd and the api and keeps them running.
- `netd_process`, `api_process`: what runs inside each.
- `block_process`: what blocks everybody in place of a netd that is to stop and cannot.

Called by `cli`; may import every room.
"""
