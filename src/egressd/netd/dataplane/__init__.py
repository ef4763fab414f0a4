"""The state of kernel and engine that a plan asks for.

- `kernel_state`: nftables, routing, sysctls and the fast path.
- `instances`: the running engine instances.
- `speed_limits`: the limits of rules, and counters.
- `network_warnings`: conditions of the network that keep clients from being served.

Composed by `app`, called by the reconciler and `health`. May import `model` and `planner`, and of
netd `kernel` and `engine`.
"""
