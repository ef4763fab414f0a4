"""A network in Linux network namespaces, on one machine and apart from its real network.

Clients on a LAN, the router under test, its WANs, an internet with web, echo and DNS
servers, and real proxy nodes, each in a namespace of its own. ``egressd lab`` shows it to
people, ``tests/lab`` proves with it, ``bench`` measures on it: `egressd.lab.lab.Lab` is
the door. It stands at the level of `cli` and speaks to egressd as an outsider does, over
HTTP: it imports no other room but the errors of `model`.
"""
