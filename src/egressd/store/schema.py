"""The tables, as the newest migration leaves them (a test compares the two).

A table's columns are named as the fields of the noun it holds, so that `rows` needs no mapping.
Target names are plain text and no foreign keys: a rule may name a target that does not exist, and
then blocks.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# Ids go to 2^53. SQLite's only kind of integer has 64 bits.
_Number = BigInteger().with_variant(Integer, "sqlite")


def _text(name: str, *, unique: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=False, unique=unique)


def _integer(name: str) -> Column[Any]:
    return Column(name, _Number, nullable=False)


def _switch() -> Column[Any]:
    # SQLite's integrity check also evaluates this constraint.
    return Column("is_enabled", Boolean(name="switch", create_constraint=True), nullable=False)


def _id() -> Column[Any]:
    return Column("id", _Number, primary_key=True, autoincrement=False)


nodes = Table(
    "nodes",
    metadata,
    _id(),
    _text("name", unique=True),
    _text("protocol"),
    _text("config_json"),
    _text("group"),
    _text("created_at"),
    Column("change_ip_url", Text, nullable=False, server_default=""),
    Column("change_ip_via", Text, nullable=False, server_default=""),
    Column("subscription", _Number, nullable=False, server_default="0"),
    Column("name_there", Text, nullable=False, server_default=""),
    Column("gone_at", Text, nullable=False, server_default=""),
)

rules = Table(
    "rules",
    metadata,
    _id(),
    _text("ip", unique=True),
    _text("mac"),
    _text("comment"),
    _switch(),
    _text("target_node"),
    _integer("upload_limit_kbps"),
    _integer("download_limit_kbps"),
    _text("created_at"),
    _text("updated_at"),
    Column("bound_mac", Text, nullable=False, server_default=""),
)

lines = Table(
    "lines",
    metadata,
    _id(),
    _text("type"),
    _text("name", unique=True),
    _text("server"),
    _integer("port"),
    _text("username"),
    _text("password"),
    _text("secret"),
    _text("interface"),
    _text("comment"),
    _text("dns_profile"),
    Column("dns_servers", JSON, nullable=False),
    _switch(),
)

proxy_services = Table(
    "proxy_services",
    metadata,
    _id(),
    _text("name", unique=True),
    _text("outbound_interface"),
    _integer("port"),
    _text("username"),
    _text("password"),
    _switch(),
    _text("created_at"),
)

alert_channels = Table(
    "alert_channels",
    metadata,
    _id(),
    _text("name", unique=True),
    _text("url"),
    _text("via"),
    _switch(),
    _text("created_at"),
)

target_groups = Table(
    "target_groups",
    metadata,
    _id(),
    _text("name", unique=True),
    _text("strategy"),
    Column("members", JSON, nullable=False),
    Column("weights", JSON, nullable=False),
    _text("filter"),
    _text("check_url"),
    _integer("check_interval_s"),
    _integer("tolerance_ms"),
    _integer("failback_min"),
    _text("on_switch"),
    _integer("rotate_every_s"),
    _text("created_at"),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    _id(),
    _text("name", unique=True),
    _text("url"),
    _text("user_agent"),
    _text("headers"),
    _text("group"),
    _integer("interval_s"),
    _text("via"),
    _text("include"),
    _text("exclude"),
    Column("rename", JSON, nullable=False),
    _text("gone"),
    _switch(),
    _text("created_at"),
)

whitelist = Table(
    "whitelist",
    metadata,
    _id(),
    _text("domains"),
    _text("ips"),
    _text("node"),
    CheckConstraint("id = 0", name="one_row"),
)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", JSON, nullable=False),
)
"""The device's settings that were ever saved; every other one has its default."""

numbers = Table(
    "numbers",
    metadata,
    Column("name", Text, primary_key=True),
    _integer("number"),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    _integer("value"),
)
"""`DesiredState.last_ids`."""

password = Table(
    "password",
    metadata,
    _id(),
    _text("hash"),
    CheckConstraint("id = 0", name="one_row"),
)
"""One row at most: the hash of the console's password, as argon2 writes it."""

sessions = Table(
    "sessions",
    metadata,
    Column("key", Text, primary_key=True),
    _text("id", unique=True),
    _text("source"),
    _text("agent"),
    _integer("created_at"),
    _integer("seen_at"),
)

changes = Table(
    "changes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    _text("at"),
    _text("who"),
    _text("source"),
    _text("what"),
    _text("text"),
    Column("coded", JSON, nullable=True),
    Column("revision", _Number, nullable=True),
)
"""The latest changes; the oldest are deleted as new ones are added. Those of the configuration
have their revisions."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    _text("name"),
    _text("digest", unique=True),
    Column("scopes", JSON, nullable=False),
    _integer("created_at"),
    _text("created_by"),
    _integer("expires_at"),
    _integer("last_used_at"),
)
"""Scoped tokens."""

undo_log = Table(
    "undo_log",
    metadata,
    Column("revision", _Number, primary_key=True, autoincrement=False),
    _text("at"),
    _text("who"),
    _text("source"),
    _text("what"),
    _text("text"),
    Column("coded", JSON, nullable=True),
    Column("undoes", _Number, nullable=True),
    _integer("format"),
    _integer("size"),
    Column("inverse", LargeBinary, nullable=True),
)
"""The latest changes of the configuration, each with its inverse, of `size` bytes. The inverse is
last, because SQLite reads a row's first bytes without the rest."""

trial = Table(
    "trial",
    metadata,
    _id(),
    _integer("began_at"),
    _integer("minutes"),
    _text("who"),
    _integer("revision"),
    _integer("format"),
    Column("state", LargeBinary, nullable=False),
    CheckConstraint("id = 0", name="one_row"),
)
"""One row while changes are on trial, with the state that they are taken back to."""

PRIVATE = (password, sessions, changes, tokens, undo_log, trial)
"""Tables that belong to this device and are in no backup."""

meta = Table(
    "meta",
    metadata,
    _id(),
    _integer("revision"),
    _text("generation"),
    CheckConstraint("id = 0", name="one_row"),
)
"""One row: the state's revision, and the UUID that a database gets when it is created."""
