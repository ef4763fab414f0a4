"""Chaos: random changes, kills and accidents under a flood, and a judge that forgives nothing.

``script/chaos --minutes N`` runs it in a lab of its own. It tests the promises of
``docs/promises.md`` as an outsider: it changes egressd by its API alone, makes happen to it all
that can happen to a machine, and believes only captures, servers and open connections. It stands on
`lab` and imports no more of other rooms than `lab` does.
"""
