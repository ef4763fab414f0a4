"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "nodes",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("protocol", sa.Text, nullable=False),
        sa.Column("config_json", sa.Text, nullable=False),
        sa.Column("group", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("name", name="uq_nodes_name"),
    )
    op.create_table(
        "rules",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("ip", sa.Text, nullable=False),
        sa.Column("mac", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("target_node", sa.Text, nullable=False),
        sa.Column("upload_limit_kbps", sa.Integer, nullable=False),
        sa.Column("download_limit_kbps", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rules"),
        sa.CheckConstraint("is_enabled IN (0, 1)", name="ck_rules_switch"),
        sa.UniqueConstraint("ip", name="uq_rules_ip"),
    )
    op.create_table(
        "lines",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("username", sa.Text, nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("interface", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("dns_profile", sa.Text, nullable=False),
        sa.Column("dns_servers", sa.JSON, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_lines"),
        sa.CheckConstraint("is_enabled IN (0, 1)", name="ck_lines_switch"),
        sa.UniqueConstraint("name", name="uq_lines_name"),
    )
    op.create_table(
        "proxy_services",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("outbound_interface", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("username", sa.Text, nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proxy_services"),
        sa.CheckConstraint("is_enabled IN (0, 1)", name="ck_proxy_services_switch"),
        sa.UniqueConstraint("name", name="uq_proxy_services_name"),
    )
    op.create_table(
        "whitelist",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("domains", sa.Text, nullable=False),
        sa.Column("ips", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_whitelist"),
        sa.CheckConstraint("id = 0", name="ck_whitelist_one_row"),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_settings"),
    )
    op.create_table(
        "numbers",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_numbers"),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("generation", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_meta"),
        sa.CheckConstraint("id = 0", name="ck_meta_one_row"),
    )
