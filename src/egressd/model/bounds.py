"""Upper bounds of each field: published by the API's schemas, checked by the use cases and netd."""

from __future__ import annotations

from typing import Final

COMMENT_MAX: Final = 1024
"""Characters of a comment."""
CREDENTIAL_MAX: Final = 255
"""Bytes of a user name or a password: the limit of SOCKS5 (RFC 1929), and pppd's MAXNAMELEN and
MAXSECRETLEN less the final NUL."""
MAC_MAX: Final = 64
"""Characters of a MAC address, which is annotation only."""
HOST_MAX: Final = 253
"""Characters of a host name (RFC 1035)."""
URL_MAX: Final = 2048
"""Characters of a URL."""
TEXT_MAX: Final = 4096
"""Characters of a text in a node's configuration."""
CONFIG_MAX: Final = 64 * 1024
"""Bytes of a node's ``config_json``."""
DNS_SERVERS_MAX: Final = 8
RULE_LIMIT_MAX_KBPS: Final = 10_000_000
"""The highest speed limit of a rule: 10 Gbit/s, in Kbps of 1,000 bit/s."""
RELAYS_MAX: Final = 16
"""Relays in a node's chain, each dialled through the next; also lines that carry one another."""
DELAY_TIMEOUT_MAX_MS: Final = 60_000
BATCH_MAX: Final = 50_000
"""Items that one request may list: the largest devices have this many rules."""
ID_MAX: Final = 2**53 - 1
"""The largest id: the largest integer that every JSON parser reads exactly (RFC 8259, 6)."""
ROWS_MAX: Final = 100_000
"""Rows of one table in a backup, and of one import: twice as many as the largest devices have."""
LINES_MAX: Final = 1_000_000
"""Lines of an import, blank lines and comments included: a Clash entry has some 20."""
BACKUP_MAX: Final = 64 * 1024 * 1024
"""Bytes of a backup: 50,000 rules and 2,000 nodes take under a fifth of it."""

LATEST_EVENTS_MAX: Final = 500
"""Events that a device keeps in memory, the latest ones."""
ALERT_URL_MAX: Final = 2000
"""Characters of the URL that a channel of alerts has."""
PAGE_READ_MAX: Final = 8 * 1024 * 1024
"""Bytes of a page that is fetched, decompressed."""
FIELD_TEXT_MAX: Final = 1024
"""Characters of a field of the head of a page's request."""
