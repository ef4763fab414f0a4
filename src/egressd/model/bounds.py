"""How much each field takes: told by the API's schemas, and checked by the use cases and netd."""

from __future__ import annotations

from typing import Final

COMMENT_MAX: Final = 1024
"""Characters."""
CREDENTIAL_MAX: Final = 255
"""Bytes of a user name or a password: what SOCKS5 has room for (RFC 1929), and pppd's MAXNAMELEN
and MAXSECRETLEN less the final NUL."""
MAC_MAX: Final = 64
"""Characters: it is annotation only."""
HOST_MAX: Final = 253
"""Characters of a host name (RFC 1035)."""
URL_MAX: Final = 2048
"""Characters."""
TEXT_MAX: Final = 4096
"""Characters of a text in a node's configuration."""
CONFIG_MAX: Final = 64 * 1024
"""Bytes of a node's ``config_json``."""
DNS_SERVERS_MAX: Final = 8
RULE_LIMIT_MAX_KBPS: Final = 10_000_000
"""The highest speed limit of a rule: 10 Gbit/s, in Kbps of 1,000 bit/s."""
RELAYS_MAX: Final = 16
"""Nodes that one is dialled through, each through the next; and lines that carry one."""
DELAY_TIMEOUT_MAX_MS: Final = 60_000
BATCH_MAX: Final = 50_000
"""What one request may name one by one: the largest devices have so many rules."""
ID_MAX: Final = 2**53 - 1
"""The largest id: what every JSON parser reads exactly (RFC 8259, 6)."""
ROWS_MAX: Final = 100_000
"""Rows of one table in a backup, and of one import: twice what the largest devices have."""
LINES_MAX: Final = 1_000_000
"""Lines of an import, those that are blank or a comment among them: a Clash entry has some 20."""
BACKUP_MAX: Final = 64 * 1024 * 1024
"""Bytes of a backup: 50,000 rules and 2,000 nodes take under a fifth of it."""
