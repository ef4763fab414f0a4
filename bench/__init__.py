"""Benchmarks: how long things take, as ratios of what is measured side by side in one run.

``.venv/bin/python -m bench.changes`` and so on; each prints a table and, with ``--json FILE``,
keeps the figures. They build their networks in namespaces and need root. They are no tests:
nothing here fails because a machine is slow.
"""
