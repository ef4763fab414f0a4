"""Alerts: one message to one service, sent by a process that has no network but one way out.

A *gate* (`gate`) and its child, the *sender* (`sender`), are started for each message. The sender
has a network namespace of its own with nothing but a loopback, so the kernel lets it reach no other
place than the listeners that it hands to the gate. The gate passes their connections to an engine
instance, whose sockets bear the mark of the channel's target as those of its clients do.
"""
