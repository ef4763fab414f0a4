"""The arguments and results of `service`.

A draft has the right types already, because the wire schemas of `api` check them, but nothing else
about it has been checked.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

from egressd.model.errors import told
from egressd.model.faults import Fault
from egressd.model.wording import Sentence, say, together

T_co = TypeVar("T_co", covariant=True)


class NodeDraft(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    protocol: str
    config_json: str
    group: str = ""


class ChangeIp(msgspec.Struct, frozen=True, kw_only=True):
    """The page by which a node gets another address; see `Node`. Only ``/ops`` has it."""

    change_ip_url: str = ""
    change_ip_via: str = ""

    def __repr__(self) -> str:
        """Return a text without the URL, which is a secret."""
        return f"ChangeIp(change_ip_via={self.change_ip_via!r})"


class RuleDraft(msgspec.Struct, frozen=True, kw_only=True):
    ip: str
    target_node: str
    mac: str = ""
    comment: str = ""
    is_enabled: bool = True
    upload_limit_kbps: int = 0
    download_limit_kbps: int = 0


class LineDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A VPN line to create or replace. ``port`` 0 stands for the type's default."""

    type: str
    name: str
    server: str
    username: str
    password: str
    port: int = 0
    secret: str = ""
    interface: str = "auto"
    comment: str = ""
    dns_profile: str = "auto"
    dns_servers: tuple[str, ...] = ()
    is_enabled: bool = True


class ProxyServiceDraft(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    outbound_interface: str
    port: int
    username: str = ""
    password: str = ""
    is_enabled: bool = True


class NodeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """``PATCH /nodes/batch``: None leaves a field alone, an empty string clears it."""

    ids: tuple[int, ...]
    group: str | None = None
    interface_name: str | None = None
    dialer_proxy: str | None = None
    node_dns_profile: str | None = None
    node_dns_servers: str | None = None


class RuleBatch(msgspec.Struct, frozen=True, kw_only=True):
    """``PATCH /rules/batch``: None leaves a field alone."""

    ips: tuple[str, ...]
    target_node: str | None = None
    upload_limit_kbps: int | None = None
    download_limit_kbps: int | None = None


class Outcome(msgspec.Struct, Generic[T_co], frozen=True):
    """The result of a change, once it is stored and in force."""

    value: T_co
    notes: tuple[Sentence, ...] = ()
    """Sentences that the operator should read: rules that are now blocked, …"""
    revision: int | None = None
    """The state's revision that the change has made; None if there was nothing to change."""


class BadRow(msgspec.Struct, frozen=True):
    """A row of an import that cannot be used, and its faults. They repeat no value of the row,
    since some are secrets.
    """

    line: int
    faults: tuple[Fault, ...]

    @property
    def reason(self) -> str:
        """All faults as one text."""
        return told(self.faults)

    @property
    def sentence(self) -> Sentence:
        """The row's number and all faults."""
        told = together(fault.sentence for fault in self.faults)
        return say("of-row", line=self.line, note=told)

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class RowFate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a row that could be read, in an import that is only tried."""

    line: int
    fate: Literal["added", "changed", "same", "clash", "twice"]
    """``clash``: another object has the name, and stays; ``twice``: an earlier row has the name."""
    name: str
    changed: tuple[str, ...] = ()
    """The fields in which it differs from the object of that name."""


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import. ``bad_rows`` are the first of the ``error_count``."""

    imported: int
    skipped: int
    error_count: int = 0
    bad_rows: tuple[BadRow, ...] = ()
    notes: tuple[Sentence, ...] = ()
    fates: tuple[RowFate, ...] = ()
    """The fates of the first rows that could be read; none if the import was made."""
    removed: tuple[str, ...] = ()
    """The names of objects that an import that replaces everything removes."""

    @property
    def errors(self) -> tuple[str, ...]:
        """The bad rows as texts: ``line N: reason``."""
        return tuple(map(str, self.bad_rows))


IMPORT_ERRORS_SHOWN = 20
"""The number of an import's reasons that are returned."""
