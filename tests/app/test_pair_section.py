"""The section ``[pair]`` of the configuration file."""

from __future__ import annotations

import tomllib
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.app import config
from egressd.cli.configuration import show
from egressd.model.errors import Invalid

SITE = '[cluster]\ndatabase = "host=/run/postgresql"\nsite = "home"\n'
ROLES = '[lan]\ninterfaces = ["lan0"]\n[wan]\ninterfaces = ["wan0", "wan1"]\n'
LAN = 'lan = { interface = "lan0", own = "10.77.0.2", peer = "10.77.0.3" }\n'
SYNC = 'sync = { interface = "sync0", own = "192.168.77.1", peer = "192.168.77.2" }\n'
SHARED = 'shared = { lan0 = "10.77.0.1/24", wan0 = "192.0.2.10" }\n'
PAIR = f"[pair]\n{LAN}{SYNC}{SHARED}"


def read(text: str) -> config.Config:
    return config.read(tomllib.loads(text))


def test_a_pair_is_read() -> None:
    settings = read(f"{SITE}{ROLES}{PAIR}router_id = 7\nadvert_ms = 1000\n")
    pair = settings.pair.pair
    assert pair is not None
    assert (pair.lan.interface, pair.lan.own) == ("lan0", IPv4Address("10.77.0.2"))
    assert pair.shared == {
        "lan0": IPv4Interface("10.77.0.1/24"),
        "wan0": IPv4Interface("192.0.2.10/32"),
    }
    assert (pair.router_id, pair.advert_ms) == (7, 1000)
    assert settings.roles.shared == {"wan0": IPv4Address("192.0.2.10")}


def test_a_box_without_the_section_is_alone() -> None:
    assert read("").pair.pair is None
    assert read("[pair]\n").pair.pair is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{ROLES}{PAIR}", "pair: needs [cluster]"),
        (f"{SITE}{PAIR}", "pair: needs lan.interfaces and wan.interfaces"),
        (f"{SITE}{ROLES}[pair]\n{LAN}{SHARED}", "pair.lan and pair.sync: must both be set"),
        (f"{SITE}{ROLES}[pair]\n{SHARED}", "pair.lan and pair.sync: must both be set"),
        (f"{SITE}{ROLES}[pair]\n{LAN}{SYNC}", "pair.shared: must not be empty"),
        (f"{SITE}{ROLES}{PAIR}router_id = 0", "pair.router_id: Input should be greater"),
        (f"{SITE}{ROLES}{PAIR}advert_ms = 1", "pair.advert_ms: Input should be greater"),
        (f"{SITE}{ROLES}{PAIR}peers = 1", "pair.peers is not a key"),
        (f"{SITE}{ROLES}[pair]\n{LAN}sync = 1\n", "pair.sync: must have interface, own and peer"),
        (
            f'{SITE}{ROLES}[pair]\n{LAN}{SYNC}shared = {{ lan0 = "10.77.0.1/33" }}',
            "pair.shared.lan0: must be an IPv4 address in quotes",
        ),
        (
            f'{SITE}{ROLES}[pair]\n{LAN}{SYNC}shared = {{ lan0 = "127.0.0.1" }}',
            "pair.shared.lan0: must be the address of a host",
        ),
        (
            f'{SITE}{ROLES}[pair]\n{LAN}{SYNC}shared = {{ wan0 = "192.0.2.10" }}',
            "pair.shared: must have lan0",
        ),
        (
            f'{SITE}{ROLES}[pair]\n{LAN}{SYNC}shared = {{ lan0 = "10.77.0.1", eth9 = "192.0.2.1" }}'
            "\n",
            "pair.shared: eth9 must be in lan.interfaces or wan.interfaces",
        ),
        (f"{SITE}{ROLES}{PAIR}".replace("10.77.0.3", "10.77.0.2"), "pair.lan: this box and its"),
        (f"{SITE}{ROLES}{PAIR}".replace("sync0", "wan1"), "pair.sync: wan1 must not be"),
        (f"{SITE}{ROLES}{PAIR}".replace('"lan0", own', '"lan7", own'), "lan7 must be in lan.inter"),
        (
            f'{SITE}{ROLES}sources = {{ wan0 = "192.0.2.9" }}\n{PAIR}',
            "wan.sources: wan0 has an address in pair.shared already",
        ),
    ],
)
def test_a_contradiction_is_named(text: str, fault: str) -> None:
    with pytest.raises(Invalid) as error:
        read(text)
    assert fault in str(error.value)


def test_the_shown_configuration_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "egressd.toml"
    file.write_text(f"{SITE}{ROLES}{PAIR}")
    said = CliRunner().invoke(show, ["--config", str(file)])
    assert said.exit_code == 0, said.output
    again = config.read(tomllib.loads(said.output))
    assert again.pair == config.load(file).pair
