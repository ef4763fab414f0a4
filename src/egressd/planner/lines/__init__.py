"""VPN lines: whether one can be dialled, by which interface, and what its daemons are told.

`dial` is a line that is to be dialled; `carrier` says by which interface, and `daemon` what is run
for it; `pppd`, `xl2tpd` and `ipsec` render what each daemon reads; `guard` keeps L2TP with a
secret encrypted; `address` says which addresses a line must not have.
"""
