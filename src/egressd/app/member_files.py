"""The files by which a box is a member of a site, and the folder of the box that invites."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from egressd.app import shared_access, site_authority, site_key
from egressd.app.config import Config
from egressd.app.site_authority import SiteAuthority
from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.database import Database
from egressd.store.files import replace_durably
from egressd.store.postgres.site_store import GATE_MARK, AdoptionMark, DurableMark

AUTHORITY, MEMBER_CERTIFICATE, MEMBER_KEY = "site-ca.pem", "member.pem", "member-key.pem"
"""File names in the api's data directory: of the site's authority, and of this member."""
SERVER_CERTIFICATE: Final = "server.pem"
"""The file in the authority's folder with the certificate of a database that `init` set up."""


def folder_of(settings: Config) -> Path:
    """Return the folder of the site's authority and the owner's connection; root only."""
    return settings.data.dir / "cluster"


class MemberFiles:
    """The files of a member in the api's data directory, of which the new ones can be removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[Path] = []

    def path(self, name: str) -> Path:
        """Return the whole path of a file."""
        return (self._folder / name).absolute()

    def refuse_other(self, action: str) -> None:
        """Raise Failed if this box has a member's files: it was one, or is a copy of one."""
        for name in (site_key.NAME, MEMBER_KEY):
            if self.path(name).exists():
                raise Failed(
                    action,
                    f"{self.path(name)} is there, as on a member of a site: this box was one, or"
                    " is a copy of one. Move the file away if the box is to join anew",
                )

    def write(self, name: str, content: bytes) -> None:
        """Write a file, durably. Raises Failed."""
        path = self.path(name)
        with reported(f"write {path}"):
            replace_durably(path, content)
        self._written.append(path)

    def give_up_own(self, backup: Path) -> None:
        """Back this box's configuration up, and note that the site's replaces it."""
        asyncio.run(Database(self._folder).backup(backup))
        with reported(f"remove {shared_access.RECORD}"):
            self.path(shared_access.RECORD).unlink(missing_ok=True)  # of another site
        mark = AdoptionMark(self._folder)
        self._written += [backup, mark.path]
        mark.put(backup)

    def need_lease(self) -> None:
        """From its next start on, have the box let clients through by a lease only: also while the
        site's database is away, and the box does not know yet whether the site has other members.
        Raises Failed.
        """
        gate = DurableMark(self._folder / GATE_MARK)
        self._written.append(self._folder / GATE_MARK)
        gate.open()
        gate.put(True)

    def remove(self) -> None:
        """Remove what was written."""
        for path in self._written:
            path.unlink(missing_ok=True)


def own_certificate(settings: Config, authority: SiteAuthority, role: str) -> str:
    """Return the certificate of this box, which is made, with its key, unless it is there.

    With it the box can reach a database by TCP, too. Raises EgressdError.
    """
    files = MemberFiles(settings.api_data)
    if not files.path(MEMBER_CERTIFICATE).exists():
        key, request = site_authority.new_request()
        files.write(MEMBER_KEY, key)
        files.write(AUTHORITY, authority.pem)
        files.write(MEMBER_CERTIFICATE, authority.member(request, role).encode())
    with reported(f"read {files.path(MEMBER_CERTIFICATE)}"):
        return files.path(MEMBER_CERTIFICATE).read_text()
