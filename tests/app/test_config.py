"""The configuration file: every key has a default, and each fault is reported with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd.app import config
from egressd.model.errors import Invalid


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
