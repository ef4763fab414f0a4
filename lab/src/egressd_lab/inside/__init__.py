"""Programs inside a lab's namespaces: one process in each, that probes, floods, captures.

Started as ``python -m egressd_lab.inside SOCKET`` and called over that socket (see
`egressd_lab.wire`). Only the standard library, msgspec and the lab's pure modules are imported
here: a lab starts one such process per namespace, and they should cost little.
"""
