"""Processes, files and privileges of netd and of the programs that it runs.

- `processes`, `orphans`: processes that outlive netd, and their ends.
- `daemon_group`: a daemon with all its children, in a folder and mount namespace of its own.
- `files`, `framing`: files written whole, and messages on a stream.
- `privileges`: the capabilities of a process; `port_range`: hands out the ports of a range.
- `lenience`: steps that may fail without keeping others from being done.
- `periodic`: a task that checks something again and again.

Called by all of netd. May import `model` only.
"""
