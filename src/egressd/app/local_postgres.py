"""Debian's PostgreSQL on this machine, set up as the database of a site.

It is reached by its socket as the user that it runs as, which only root can become.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from psycopg import sql

from egressd.app.site_authority import SiteAuthority
from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.files import replace_durably, rewrite_durably
from egressd.store.postgres.invitations import GUESTS
from egressd.store.postgres.schema import GROUP

SOCKETS: Final = Path("/run/postgresql")
PORT: Final = 5432
"""PostgreSQL's usual port, which is in the name of its socket."""
DATABASE: Final = "egressd"
OWNER: Final = "egressd_owner"
"""The role that owns the database: it makes tables and members, and sees no other database."""

_ACTION: Final = "set PostgreSQL up"
_RELOAD_S: Final = 10.0
"""Seconds that the server may take to read its settings."""
_LOOK_S: Final = 0.1
_OLDEST: Final = 150000
"""The oldest version that is supported, as PostgreSQL numbers it."""
_MODE: Final = 0o640
"""The mode of Debian's ``pg_hba.conf``."""
_BEGIN, _END = "# BEGIN egressd cluster init", "# END egressd cluster init"
_MAP: Final = "egressd"
"""The name of the map from users of this machine to roles."""
_FILES: Final = {
    "ssl_ca_file": "egressd-ca.pem",
    "ssl_cert_file": "egressd-server.pem",
    "ssl_key_file": "egressd-server-key.pem",
}
"""Setting -> the file beside ``pg_hba.conf``."""


class LocalPostgres:
    """A PostgreSQL server on this machine. Every method raises Failed."""

    def __init__(self, sockets: Path = SOCKETS, port: int = PORT) -> None:
        self._sockets = sockets
        self._port = port

    def conninfo(self, role: str) -> str:
        """Return the connection string of a role, by the socket."""
        port = "" if self._port == PORT else f" port={self._port}"
        return f"host={self._sockets}{port} dbname={DATABASE} user={role}"

    def set_up(
        self, authority: SiteAuthority, hosts: Sequence[str], *, role: str, user: str
    ) -> tuple[bytes, bool]:
        """Make the owner and the database, and have the server take members by their certificates.

        `role` is that of this box, whose service runs as `user`; `hosts` are the names and
        addresses by which other boxes reach the server. Return the server's certificate, and
        whether PostgreSQL must be restarted before they can. Repeat-safe.
        """
        rows = self._query("SELECT name, setting FROM pg_settings")
        settings = {name: value for name, value, *_ in rows}
        if int(settings["server_version_num"]) < _OLDEST:
            raise Failed(_ACTION, f"version {settings['server_version']} is too old: 15 is needed")
        folder = Path(settings["hba_file"]).parent
        authorities = settings["ssl_ca_file"]
        if authorities and Path(authorities) != folder / _FILES["ssl_ca_file"]:
            raise Failed(
                _ACTION,
                f"it has another authority, {authorities} (ssl_ca_file): make the database by hand,"
                " and give --owner",
            )
        files = [Path(settings[name]) for name in ("ident_file", "hba_file")]
        for file in files:
            _without_block(file)  # before anything is changed
        self._make_database()
        certificate, key = authority.server(hosts)
        owner = self._socket.stat()
        for setting, content in zip(_FILES, (authority.pem, certificate, key), strict=True):
            file = folder / _FILES[setting]
            with reported(f"write {file}"):
                replace_durably(file, content)
                os.chown(file, owner.st_uid, owner.st_gid)
        for setting, name in _FILES.items():
            self._set(setting, str(folder / name))
        self._set("ssl", "on")
        self._reload()
        ident, hba = files
        self._rewrite(ident, _ident_lines(role, user))
        before = self._rewrite(hba, _hba_lines())
        wrong = self._query("SELECT line_number, error FROM pg_hba_file_rules WHERE error <> ''")
        if wrong:
            _replace(hba, before)
            raise Failed(_ACTION, f"line {wrong[0][0]} of {hba}: {wrong[0][1]}")
        listened = settings["listen_addresses"]
        named = [each.strip() for each in listened.split(",") if each.strip()]
        is_missing = not {"*", "0.0.0.0"} & {*named} and not {*hosts} <= {*named}  # noqa: S104
        if is_missing:
            self._set("listen_addresses", ",".join(dict.fromkeys([*named, *hosts])))
        self._query("SELECT pg_reload_conf()")
        return certificate, is_missing

    @property
    def _socket(self) -> Path:
        return self._sockets / f".s.PGSQL.{self._port}"

    def _make_database(self) -> None:
        self._query(
            f"""
            DO $$ BEGIN
                IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{OWNER}') THEN
                    CREATE ROLE {OWNER} LOGIN CREATEROLE;
                END IF;
            END $$
            """
        )
        self._query(f"GRANT pg_signal_backend TO {OWNER}")
        if not self._query(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):  # noqa: S608 - ours
            self._query(
                f"CREATE DATABASE {DATABASE} OWNER {OWNER} TEMPLATE template0 ENCODING UTF8"
            )

    def _reload(self) -> None:
        """Have the server read its settings, and wait until it has TLS."""
        self._query("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _RELOAD_S
        while self._query("SHOW ssl") != [["on"]]:
            if time.monotonic() > deadline:
                raise Failed(_ACTION, "it does not take its certificate: see its log")
            time.sleep(_LOOK_S)

    def _set(self, setting: str, value: str) -> None:
        # A list such as listen_addresses is one text here.
        statement = sql.SQL("ALTER SYSTEM SET {} = {}").format(
            sql.Identifier(setting), sql.Literal(value)
        )
        self._query(statement.as_string(None))

    def _query(self, statement: str) -> list[list[str]]:
        program = shutil.which("psql")
        if program is None or not self._socket.exists():
            raise Failed(
                _ACTION,
                f"no server has the socket {self._socket}: apt install postgresql, and"
                " systemctl start postgresql",
            )
        owner = self._socket.stat()
        options = ("-XqtA", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
        place = ("-h", str(self._sockets), "-p", str(self._port))
        done = subprocess.run(
            [program, *options, *place, "-f", "-"],
            input=statement,
            capture_output=True,
            text=True,
            check=False,
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )
        if done.returncode:
            raise Failed(_ACTION, done.stderr.strip() or f"psql ended with {done.returncode}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _rewrite(self, file: Path, lines: Sequence[str]) -> str:
        """Have our block, with other lines, first in `file`. Return the text as it was."""
        before, kept = _without_block(file)
        # The first line that fits decides (PostgreSQL's documentation, 21.1).
        _replace(file, "\n".join([_BEGIN, *lines, _END, ""]) + kept)
        return before


def _without_block(file: Path) -> tuple[str, str]:
    """Return the text of a file, as it is and without our block. Raises Failed if the block does
    not end: the lines after it may be another's.
    """
    with reported(f"read {file}"):
        before = file.read_text()
    kept: list[str] = []
    is_ours = False
    for line in before.splitlines(keepends=True):
        is_ours = is_ours or line.strip() == _BEGIN
        if not is_ours:
            kept.append(line)
        is_ours = is_ours and line.strip() != _END
    if is_ours:
        raise Failed(_ACTION, f'{file} has a line "{_BEGIN}" and no line "{_END}" after it')
    return before, "".join(kept)


def _replace(file: Path, text: str) -> None:
    with reported(f"write {file}"):
        rewrite_durably(file, text.encode(), new_mode=_MODE)


def _hba_lines() -> list[str]:
    return [
        f"local   {DATABASE} {OWNER} peer map={_MAP}",
        f"local   {DATABASE} +{GROUP} peer map={_MAP}",
        f"hostssl {DATABASE} +{GUESTS} all scram-sha-256",
        f"hostssl {DATABASE} +{GROUP} all cert",
    ]


def _ident_lines(role: str, user: str) -> list[str]:
    pairs = dict.fromkeys((("root", OWNER), ("root", role), (user, role)))
    return [f'{_MAP} "{name}" "{target}"' for name, target in pairs]
