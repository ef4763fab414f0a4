"""The configuration file: every key has a default, and what is wrong is told by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd.app import config
from egressd.model.errors import Invalid
from tests.lab.netns import Namespace


def load(tmp_path: Path, text: str) -> config.Config:
    file = tmp_path / "egressd.toml"
    file.write_text(text)
    return config.load(file)


def test_an_empty_file_will_do(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert str(settings.api.listen) == "0.0.0.0:8787"
    assert str(settings.api.tls_listen) == "0.0.0.0:8788"
    assert (settings.data.dir, settings.run.dir) == (Path("/var/lib/egressd"), Path("/run/egressd"))
    assert (settings.ports.lan, settings.ports.wan) == ((), ())
    assert settings.license.mode == "off"
    assert settings.resolvers().device


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
    ],
)
def test_what_is_wrong_is_told_by_its_key(tmp_path: Path, text: str, problem: str) -> None:
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
def test_where_a_device_reaches_itself(tmp_path: Path, text: str, here: str) -> None:
    listen = load(tmp_path, f'[api]\nlisten = "{text}"').api.listen
    assert (str(listen), str(listen.here)) == (text, here)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, '[dns]\noutbound = []\n[license]\nmode = "on"')
    assert len(caught.value.problems) == 2


def test_a_variable_of_the_environment_stands_for_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGRESSD_API__LISTEN", "127.0.0.1:9000")
    monkeypatch.setenv("EGRESSD_LAN__INTERFACES", '["lan7"]')
    settings = load(tmp_path, '[api]\nlisten = "0.0.0.0:1"')
    assert str(settings.api.listen) == "127.0.0.1:9000"
    assert settings.ports.lan == ("lan7",)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("servers", "device"),
    [
        (
            ["192.168.7.1", "0.0.0.0", "127.0.0.53", "::1", "192.168.7.2", "192.0.2.53"],
            "192.168.7.2",
        ),
        (["192.168.7.1"], "192.0.2.54"),
    ],
)
def test_a_resolver_on_this_machine_is_not_one_for_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: list[str], device: str
) -> None:
    # Found by an audit: what clients asked was sent to the router itself, and dropped there.
    file = tmp_path / "resolv.conf"
    file.write_text("".join(f"nameserver {server}\n" for server in servers))
    monkeypatch.setattr(config, "_RESOLV_CONF", file)
    settings = load(tmp_path, '[dns]\ndomestic = ["192.0.2.54"]')
    with Namespace() as namespace:
        namespace.shell("ip address add 192.168.7.1/24 dev lo")
        assert namespace.run(settings.resolvers).device[0] == device


@pytest.mark.lab
def test_a_resolver_that_one_interface_leads_to_is_known_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = ("192.168.1.1", "192.168.2.1", "192.168.2.65", "203.0.113.53", "198.51.100.53")
    file = tmp_path / "resolv.conf"
    file.write_text("".join(f"nameserver {server}\n" for server in servers))
    monkeypatch.setattr(config, "_RESOLV_CONF", file)
    with Namespace() as namespace:
        for name in ("wan1", "wan2", "wan3"):
            namespace.shell(f"ip link add {name} type veth peer name far-{name}")
            namespace.shell(f"ip link set {name} up; ip link set far-{name} up")
        namespace.shell(
            "ip address add 192.168.1.2/24 dev wan1; ip address add 192.168.2.2/24 dev wan2;"
            "ip route add 192.168.2.64/26 dev wan3; ip route add default via 192.168.1.1;"
            "ip route add 203.0.113.53 via 192.168.2.1"
        )
        found = namespace.run(load(tmp_path, "").resolvers)
        assert found.device == servers
        assert dict(found.near) == {
            "192.168.1.1": "wan1",
            "192.168.2.1": "wan2",
            "192.168.2.65": "wan3",
            "203.0.113.53": "wan2",
        }
        # Whoever names them knows how they are reached.
        named = namespace.run(load(tmp_path, '[dns]\ndevice = ["192.168.1.1"]').resolvers)
        assert (named.device, named.near) == (("192.168.1.1",), ())
