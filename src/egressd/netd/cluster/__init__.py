"""A pair of boxes: keepalived moves the shared addresses, and conntrackd carries the flows."""
