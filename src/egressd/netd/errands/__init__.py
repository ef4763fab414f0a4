"""Errands: one message or one page, by a process that has no network but one way out.

A *gate* (`gate`) and its child, the *runner* (`runner`), are started for each errand. The runner
has a network namespace of its own with nothing but a loopback, so the kernel lets it reach no other
place than the listeners that it hands to the gate. The gate passes their connections to an engine
instance, whose sockets bear the mark of a target as those of the target's clients do.
"""
