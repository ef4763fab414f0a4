"""Programs inside a lab's namespaces: one process in each, that probes, floods, captures.

They are forked from one process, ``python -m egressd_lab.inside`` (see `__main__`), and called over
a socket of their own (see `service` and `egressd_lab.wire`). Only the standard library, msgspec and
the lab's pure modules are imported here: each process should cost little.
"""
