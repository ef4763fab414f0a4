"""Licenses: the capabilities that a vendor sold with a device, signed by the vendor.

Called by `app` (to open or shut the API and to set quotas) and by `cli` (the ``license``
commands). May import `model` only.

- `keys`: Ed25519 key pairs, and the public keys a device trusts.
- `document`: the license file: exact payload bytes, a signature, the id of its key.
- `grants`: pure: what a license allows on this device at this time.
- `device`: the id that a license is bound to.
- `licensing`: the installed file, read again when it changes; counts trial calls.
- `commands`: ``egressd license keygen|issue|show|install``.

A license that was changed, cut short, has expired or names another device counts as none.
Traffic is never affected: a license opens the management API, the per-line DNS feature and
a number of proxy services, and what is already configured stays in force without one.
"""
