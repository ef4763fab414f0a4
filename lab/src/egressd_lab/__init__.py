"""A network in Linux network namespaces, on one machine and apart from its real network.

Clients on a LAN, the router under test, its WANs, an internet with web, echo and DNS servers, and
real proxy nodes, each in a namespace of its own. ``egressd lab`` shows it on a terminal,
``tests/lab`` tests with it, ``bench`` measures on it: `egressd_lab.lab.Lab` is the entry point. The
package stands at the level of `cli` and calls egressd as an outsider does, over HTTP: of other
rooms it imports only the errors of `model`.
"""
