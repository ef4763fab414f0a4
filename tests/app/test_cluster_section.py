"""The section that commands write into the operator's configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.app import config
from egressd.app.cluster_section import section_of, with_section, write_section
from egressd.app.config import Cluster
from egressd.model.errors import Failed, Invalid

HOME = Cluster(database="host=192.0.2.1 user='a b'", site="home", member="b")
SECTION = """\
[cluster]
database = "host=192.0.2.1 user='a b'"
site = "home"
member = "b"
"""
FILE = """\
# of the operator
[lan]
interfaces = [
  "lan0",
]

[cluster]  # the site
member = "old"
# a remark

[wan]
interfaces = ["wan0"]
"""


def test_the_section_takes_the_place_of_the_one_there_was() -> None:
    kept = FILE.replace('[cluster]  # the site\nmember = "old"\n', "")
    assert with_section(FILE, HOME) == f"{kept}\n{SECTION}"
    assert with_section(with_section(FILE, HOME), HOME) == f"{kept}\n{SECTION}"
    assert with_section("", HOME) == SECTION
    assert with_section(FILE, None) == kept


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_any_text_is_read_as_it_was_written(text: str) -> None:
    cluster = Cluster(database=text, site=text, member=text)
    try:
        read = config.read(tomllib.loads(section_of(cluster))).cluster
    except Invalid:
        return  # the configuration takes no such text
    assert read == cluster


def test_a_file_that_is_written_otherwise_is_left_to_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "egressd.toml"
    file.write_text("cluster.member = 'a'\n")
    with pytest.raises(Invalid, match="by hand"):
        write_section(file, HOME)
    assert file.read_text() == "cluster.member = 'a'\n"
    assert [*tmp_path.iterdir()] == [file]


def test_the_file_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    file, link = tmp_path / "egressd.toml", tmp_path / "link"
    file.write_text(FILE)
    file.chmod(0o640)
    link.symlink_to(file)
    write_section(link, HOME)
    assert file.stat().st_mode & 0o7777 == 0o640
    assert link.is_symlink()
    assert config.load(link).cluster == HOME
    write_section(tmp_path / "new", HOME)
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o644
    with pytest.raises(Failed, match="No such file"):
        write_section(tmp_path / "none" / "file", HOME)
