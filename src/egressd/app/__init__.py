"""The one place that wires everything: configuration, processes, and their dependencies.

- `config`: the configuration file, whose values `toml_values` reads.
- `supervise`: ``egressd serve``, which starts netd and the api and keeps them running, with
  `held_sockets`, `hourly` and `log_lines`; the standard library only.
- `endpoints_process`: the places that the api listens at, read anew for `supervise`.
- `netd_process`, `api_process`: the main functions of the two.
- `netd_parts`: the reconciler of netd with all of its parts.
- `single_netd`: no second netd runs beside it.
- `liveness`: proofs to the supervisor (systemd or `supervise`) that the two are not hung.
- `tls`, `certificate`: the HTTPS listener's certificate, and the process that makes it.
- `shared_access`: certificate, token, password and sessions are the same at all members of a site.
- `preflight`, `machine_check`: all that a machine lacks.
- `background`: works of the api that have no end.
- `records`: what features keep beside the configuration.
- `heap`: memory that a start left over goes back to the kernel.
- `versions`, `update_record`: the versions that the Debian package has installed, and the
  outcome of the last update.
- `timed_backups`, `backup_process`, `backup_watch`: the schedule of backups, the process that makes
  one, and the reports about them.
- `removal`: removes egressd from the kernel and the disk.
- `block_process`: blocks every client in place of a netd that should stop and cannot.

Called by `cli`; may import every room.
"""
