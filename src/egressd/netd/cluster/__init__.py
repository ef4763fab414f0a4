"""A pair of boxes: keepalived moves the shared addresses, and conntrackd carries the flows.

netd itself carries what is no entry of the kernel: the flows that were cut (`cut_flow_sync`).
"""
