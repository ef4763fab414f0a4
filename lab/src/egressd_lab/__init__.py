"""A network in Linux network namespaces, on one machine and apart from its real network.

Clients on a LAN, the router under test, its WANs, an internet with web, echo and DNS servers, and
real proxy nodes, each in a namespace of its own. ``egressd lab`` shows it on a terminal,
``tests/lab`` tests with it, ``bench`` measures on it: `egressd_lab.lab.Lab` is the entry point. The
package is a distribution of its own, ``egressd-lab``, since devices need no lab. It calls egressd
as an outsider does, over HTTP, and imports only the errors of `egressd.model`.
"""
