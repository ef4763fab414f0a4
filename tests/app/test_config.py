"""The configuration file: every key has a default, and each fault is reported with its key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from egressd.app import config
from egressd.model.errors import Invalid
from egressd.model.exits import EXIT_URL


def load(tmp_path: Path, text: str) -> config.Config:
    file = tmp_path / "egressd.toml"
    file.write_text(text)
    return config.load(file)


def test_an_empty_file_is_valid(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert str(settings.api.listen) == "0.0.0.0:8787"
    assert str(settings.api.tls_listen) == "0.0.0.0:8788"
    assert (settings.data.dir, settings.run.dir) == (Path("/var/lib/egressd"), Path("/run/egressd"))
    assert (settings.roles.lan, settings.roles.wan) == ((), ())
    assert settings.license.mode == "off"
    assert (settings.exits.url, settings.exits.check_interval_s) == (EXIT_URL, 900)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[api]\nlisten_on = 1", "api.listen_on is not a key of the configuration"),
        ("[apis]\n", "apis is not a key of the configuration"),
        ('[api]\nlisten = "8787"', "api.listen: must be ADDRESS:PORT"),
        ('[api]\nlisten = "localhost:80"', "api.listen: must begin with an IP address"),
        ('[api]\nlisten = "::1:80"', "api.listen: must begin with an IP address; IPv6 in brackets"),
        ('[api]\nlisten = "[::x]:80"', "api.listen: must begin with an IP address"),
        ('[api]\nlisten = "0.0.0.0:65536"', "api.listen: must be ADDRESS:PORT"),
        ('[license]\nmode = "on"', "license.mode: "),
        ("[engine]\nworkers = 0", "engine.workers: "),
        ("[exits]\ncheck_interval_s = 59", "exits.check_interval_s: must be 0, for never, or 60"),
        ("[exits]\ncheck_interval_s = 86401", "exits.check_interval_s: "),
        ('[exits]\nurl = "ftp://a/"', "exits.url: must be an http or https URL in quotes"),
        ('[exits]\nurl = "https://u@a/"', "exits.url: must be an http or https URL in quotes"),
        ("[exits]\nurl = 5", "exits.url: must be text in quotes"),
        ("[dns]\noutbound = []", "dns.outbound: "),
        ("[dns]\nreturn = []", "dns.return: "),
        ('[dns]\ndomestic = ["::1"]', "dns.domestic.0: "),
        ('[lan]\ninterfaces = ["a b"]', "lan.interfaces.0: "),
        ("listen =", "is not TOML"),
        ("api = 5", "api: must be a table"),
        ("[wan]\ngateways = 5", "wan.gateways: must be a table"),
        ("[wan]\ngateways6 = 5", "wan.gateways6: must be a table"),
        ('[wan.gateways6]\na = "::1"', "wan.gateways6.a: must be a link-local IPv6 address"),
        ('[wan.gateways6]\na = "fe80::1%b"', "wan.gateways6.a: must be a link-local IPv6 address"),
        ("[wan.gateways6]\na = 1", "wan.gateways6.a: must be a link-local IPv6 address"),
        ("[wan.gateways]\na = 1", "wan.gateways.a: must be an IPv4 address in quotes"),
        ("[wan]\nsources = 5", "wan.sources: must be a table"),
        ("[wan.sources]\na = 1", "wan.sources.a: must be an IPv4 address in quotes"),
        ('[wan.sources]\na = "127.0.0.1"', "wan.sources.a: must be an address that far ends can"),
        ('[wan.sources]\na = "224.0.0.1"', "wan.sources.a: must be an address that far ends can"),
        ('[wan.sources]\na = "0.0.0.0"', "wan.sources.a: must be an address that far ends can"),
        (
            '[wan.sources]\na = "192.0.2.1"\nb = "192.0.2.1"',
            "wan.sources: a and b have the same address 192.0.2.1",
        ),
        (
            '[wan.sources]\nl2tp_1 = "192.0.2.1"',
            "wan.sources: l2tp_1 is a VPN line, whose address its server gives it",
        ),
        (
            '[local]\ninterfaces = ["a"]\n[wan.sources]\na = "192.0.2.1"',
            "wan.sources: a is in local.interfaces, and so no WAN",
        ),
        ('[api]\nlisten = "0.0.0.0:²"', "api.listen: must be ADDRESS:PORT"),
        ("[api]\nuser = 5", "api.user: must be text in quotes"),
        ('[engine]\nuser = "a\\u0000"', "engine.user: must be text in quotes, of one line"),
        ('[data]\ndir = "/a\\u0000b"', "data.dir: must be text in quotes, of one line"),
        ('[run]\ndir = ""', "run.dir: must be text in quotes, of one line and not empty"),
        ("[dns]\noutbound = [1]", "dns.outbound.0: must be an IPv4 address in quotes"),
        ("[dns]\ndevice = [true]", "dns.device.0: must be an IPv4 address in quotes"),
        ('[dns]\ndevice = "1.1.1.1"', "dns.device: must be a list in brackets"),
        ('[dns]\ndevice = ["127.0.0.53"]', "dns.device.0: must not be a loopback address"),
        ("[dns]\nlocal = 5", "dns.local: must be a table of domains and addresses"),
        ('[dns]\nlocal = ["lan"]', "dns.local: must be a table of domains and addresses"),
        ('[dns]\nlocal = { "*.lan" = "10.0.0.1" }', 'dns.local: "*.lan" must be the domain alone'),
        ('[dns]\nlocal = { ".lan" = "10.0.0.1" }', 'dns.local: ".lan" must be the domain alone'),
        ('[dns]\nlocal = { "a b" = "10.0.0.1" }', 'dns.local: "a b" must be a domain name'),
        ('[dns]\nlocal = { "" = "10.0.0.1" }', 'dns.local: "" must be a domain name'),
        ('[dns]\nlocal = { "10.0.0.1" = "10.0.0.1" }', 'dns.local: "10.0.0.1" must be a domain'),
        ('[dns]\nlocal = { lan = "10.0.0" }', 'dns.local: "lan" must have an IPv4 address'),
        ('[dns]\nlocal = { lan = "::1" }', 'dns.local: "lan" must have an IPv4 address'),
        ("[dns]\nlocal = { lan = 5 }", 'dns.local: "lan" must have an IPv4 address'),
        ("[dns]\nlocal = { lan = [5] }", 'dns.local: "lan" must have an IPv4 address'),
        ("[dns]\nlocal = { lan = [] }", 'dns.local: "lan" must have an IPv4 address'),
        ('[dns]\nlocal = { lan = "0.0.0.0" }', 'dns.local: "lan" must have an IPv4 address'),
        ('[dns]\nlocal = { lan = "224.0.0.251" }', 'dns.local: "lan" must have an IPv4 address'),
        (
            '[dns]\nlocal = { lan = "10.0.0.1", LAN = "10.0.0.1" }',
            'dns.local: "LAN" is there twice',
        ),
        ('[dns]\nlocal.corp.example = "10.0.0.1"', 'dns.local: "corp" must have an IPv4 address'),
        ('[console]\ninsecure = "yes"', "console.insecure: must be true or false"),
        ("[console]\ninsecure = 1", "console.insecure: must be true or false"),
        ("[console]\nhosts = [1]", "console.hosts.0: must be text in quotes"),
        ('[console]\nhosts = ["https://x/"]', "console.hosts.0: must be a host name"),
        ('[engine]\nworkers = "2"', "engine.workers: must be a whole number"),
        ("[engine]\nworkers = true", "engine.workers: must be a whole number"),
    ],
)
def test_a_fault_is_reported_with_its_key(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, text)
    assert any(problem in told for told in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("0.0.0.0:8787", "127.0.0.1:8787"),
        ("[::]:80", "[::1]:80"),
        ("192.168.1.1:8787", "192.168.1.1:8787"),
        ("[fe80::1]:8787", "[fe80::1]:8787"),
    ],
)
def test_the_device_reaches_itself_at_the_listening_address(
    tmp_path: Path, text: str, here: str
) -> None:
    listen = load(tmp_path, f'[api]\nlisten = "{text}"').api.listen
    assert (str(listen), str(listen.here)) == (text, here)


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, '[dns]\noutbound = []\ndomestic = ["::1"]\n[license]\nmode = "on"')
    assert len(caught.value.problems) == 3


def test_an_environment_variable_overrides_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGRESSD_API__LISTEN", "127.0.0.1:9000")
    monkeypatch.setenv("EGRESSD_LAN__INTERFACES", '["lan7"]')
    settings = load(tmp_path, '[api]\nlisten = "0.0.0.0:1"')
    assert str(settings.api.listen) == "127.0.0.1:9000"
    assert settings.roles.lan == ("lan7",)


def test_a_value_in_place_of_a_table_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGRESSD_API__LISTEN", "127.0.0.1:9000")
    with pytest.raises(Invalid, match="api: must be a table"):
        load(tmp_path, "api = 5")


def test_local_names_have_one_or_several_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[dns]\nlocal = { "LAN." = "10.0.0.1", "büro.example" = ["10.0.1.5", "127.0.0.53"] }'
    told = load(tmp_path, text).dns.local
    assert {name: list(map(str, servers)) for name, servers in told.items()} == {
        "lan": ["10.0.0.1"],
        "xn--bro-hoa.example": ["10.0.1.5", "127.0.0.53"],
    }
    assert load(tmp_path, "").dns.local == {}
    monkeypatch.setenv("EGRESSD_DNS__LOCAL", '{ home = "10.0.0.2" }')
    assert load(tmp_path, text).dns.local.keys() == {"home"}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[engine]\nworkers = 0", ["engine.workers: Input should be greater than or equal to 1"]),
        ("[engine]\nworkers = 65", ["engine.workers: Input should be less than or equal to 64"]),
        ("[engine]\nworkers = 2.0", ["engine.workers: must be a whole number"]),
        ('[license]\nmode = "on"', ["license.mode: Input should be 'off' or 'enforced'"]),
        ("[license]\npublic_keys = [1]", ["license.public_keys.0: must be text in quotes"]),
        (
            '[wan.gateways]\n"a b" = "::1"\nwan0 = "10.0.0.1"',
            [
                "wan.gateways.a b.[key]: must be the name of an interface",
                "wan.gateways.a b: must be an IPv4 address in quotes",
            ],
        ),
        (
            '[local]\ninterfaces = ["lan0"]\n[lan]\ninterfaces = ["lan0"]',
            ["local.interfaces: lan0 is in lan.interfaces already"],
        ),
        (
            "zone = 1\n[dns]\nhome = []\n[run]\ndir = 5\nroot = 1",
            [
                "run.dir: must be text in quotes, of one line and not empty",
                "run.root is not a key of the configuration",
                "dns.home is not a key of the configuration",
                "zone is not a key of the configuration",
            ],
        ),
    ],
)
def test_faults_are_sentences_in_the_order_of_the_keys(
    tmp_path: Path, text: str, problems: list[str]
) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, text)
    assert [*caught.value.problems] == problems


def test_the_configuration_is_read_without_a_library_of_schemas() -> None:
    code = "import sys, egressd.app.config; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
