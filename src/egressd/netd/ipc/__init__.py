"""The Unix socket between the api and netd: `server` is netd's end, `client` the api's.

`allowance` bounds the memory that a connection's requests take.

The server is run by `app`, the client by the api's process and `cli`. May import `model` and
`planner`, and of netd `reconciler`, `engine` for its messages, and `system`.
"""
