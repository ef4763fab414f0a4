"""``egressd update``: the parts that need no package on the machine."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.app import config
from egressd.cli import update, update_source
from egressd.model.errors import EgressdError, Failed, Invalid

MADISON = """\
   egressd | 0.2.0+deb12 | file:/srv/apt bookworm/main amd64 Packages
   egressd | 0.1.0+deb12 | file:/srv/apt bookworm/main amd64 Packages
   egressd | 0.1.0+deb12 | /var/lib/dpkg/status
"""
SIGNED = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n"


def test_apts_versions_are_read_the_newest_first() -> None:
    assert update_source.offered_versions(MADISON) == ["0.2.0+deb12", "0.1.0+deb12"]
    assert update_source.offered_versions("") == []
    assert update_source.offered_versions("N: Unable to locate package egressd\n") == []


def test_only_sources_of_egressd_are_read() -> None:
    rows = "/etc/apt/sources.list:1|Debian\n/etc/apt/sources.list.d/e.list:1|egressd\n"
    assert update_source.own_sources(rows + rows) == ["/etc/apt/sources.list.d/e.list"]
    assert update_source.own_sources("/etc/apt/sources.list:1|Debian\n") == []


@pytest.mark.parametrize(
    ("files", "unsigned"),
    [
        ({}, []),
        ({"a_InRelease": f"{SIGNED}Origin: egressd\n"}, []),
        ({"a_Release": "Origin: egressd\n", "a_Release.gpg": "…"}, []),
        ({"a_Release": "Origin: egressd\n"}, ["a_Release"]),
        ({"a_InRelease": "Origin: egressd\n"}, ["a_InRelease"]),
        ({"a_Release": "Origin: Debian\n", "b_Release": "Label: egressd\n"}, []),
    ],
)
def test_unsigned_repositories_of_egressd_are_found(
    files: dict[str, str], unsigned: list[str], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert [path.name for path in update_source.unsigned_lists(tmp_path)] == unsigned


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Reading…\negressd: a is no key\negressd: b is none\nE: Sub-process\n",
         "a is no key b is none"),
        ("Reading…\nE: Unable to locate package egressd\n", "E: Unable to locate package egressd"),
        ("dpkg: error processing archive x.deb: no space left\nmore\n",
         "dpkg: error processing archive x.deb: no space left"),
        ("dpkg: error processing archive x.deb (--unpack):\n no space left\ndpkg-deb: error: cut\n",
         "dpkg: error processing archive x.deb (--unpack): no space left dpkg-deb: error: cut"),
        ("These have unmet dependencies:\n egressd : Depends: python3 (>= 9)\nE: held packages\n",
         "egressd : Depends: python3 (>= 9)"),
        ("first\n\nlast\n", "last"),
        ("", "it reported no reason"),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure_is_taken_from_the_output(output: str, reason: str) -> None:
    assert update_source.reported(output) == reason


def test_a_program_that_fails_or_is_missing_is_reported() -> None:
    with pytest.raises(Failed, match="no space"):
        update_source.run("sh", "-c", "echo E: no space; exit 100")
    with pytest.raises(Failed, match="/nonexistent"):
        update_source.run("/nonexistent")


def test_a_file_must_be_a_package_of_egressd(tmp_path: Path) -> None:
    file = tmp_path / "a.deb"
    file.write_bytes(b"!<arch>\nhalf of it")
    with pytest.raises(Invalid, match="--unsigned"):
        update_source.from_file(file, unsigned=False)
    with pytest.raises(Invalid, match="is no whole Debian package: dpkg-deb"):
        update_source.from_file(file, unsigned=True)


def test_a_checkout_is_not_updated() -> None:
    done = CliRunner().invoke(update.update, [])
    assert done.exit_code != 0
    said = done.output or str(done.exception)
    assert "script/install" in said or "started by root" in said


def test_the_wait_for_health_tells_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member of a site whose schema is older has no lease until the operator acts."""
    statuses = iter(["restoring", "restoring", "running"])

    class Asked:
        @staticmethod
        def here(_: object) -> type[Asked]:
            return Asked

        @staticmethod
        def get(path: str) -> dict[str, object]:
            if path == "/ops/health":
                return {"status": next(statuses)}
            return {"problems": ["run egressd cluster migrate"]}

    monkeypatch.setattr(update, "Remote", Asked)
    monkeypatch.setattr(update, "_LOOK_S", 0.0)
    update._await_health(config.Config())
    assert capsys.readouterr().err == "not healthy yet: run egressd cluster migrate\n"


def test_two_updates_do_not_run_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(update, "_LOCK", tmp_path / "lock")
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        alone = update._alone()
        with pytest.raises(EgressdError, match="another `egressd update`"):
            alone.__enter__()
    with update._alone():
        pass
