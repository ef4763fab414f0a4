"""VPN lines: the check that one can be dialled, its carrier, and the files of its daemons.

`dial` is a line that is to be dialled; `carrier` chooses the interface, and `daemon` the programs;
`pppd`, `xl2tpd` and `ipsec` (with `proposals`) render the configuration of each daemon;
`line_rules` keeps L2TP with a secret encrypted; `address` finds addresses that lines must not have.
"""
