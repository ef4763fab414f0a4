"""Benchmarks: durations and costs, as ratios of figures measured side by side in one run.

``.venv/bin/python -m bench.changes`` and so on; each prints a table and, with ``--json FILE``,
keeps the figures. ``--help`` describes a benchmark and its options (`bench.arguments`). They build
their networks in namespaces and need root. They are not tests: none fails because a machine is
slow.
"""
