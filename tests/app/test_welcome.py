"""The block on the terminal once the service runs."""

from __future__ import annotations

from ipaddress import IPv4Address

from structlog.testing import capture_logs

from egressd import __version__
from egressd.app import config
from egressd.app.config import Config
from egressd.app.welcome import block, show

LAN, OTHER = IPv4Address("10.0.0.1"), IPv4Address("192.168.8.1")


def test_the_block_has_all_addresses_and_the_code() -> None:
    assert block(Config(), [LAN, OTHER], "ABCD-EFGH-JKLM").splitlines() == [
        "",
        f"egressd {__version__} runs. Clients without a rule are blocked.",
        "  console     https://10.0.0.1:8788/ https://192.168.8.1:8788/",
        "  setup code  ABCD-EFGH-JKLM  (again: sudo egressd console code)",
        "  API         http://10.0.0.1:8787/ http://192.168.8.1:8787/",
        "  API token   sudo egressd token show",
    ]


def test_no_code_is_shown_once_there_is_a_password() -> None:
    assert "setup code" not in block(Config(), [LAN], None)


def test_a_chosen_address_is_the_only_one() -> None:
    settings = config.read({"api": {"listen": "10.0.0.1:80", "tls_listen": "[::]:443"}})
    text = block(settings, [], None)
    assert "API         http://10.0.0.1:80/\n" in text
    assert "console     https://[::1]:443/\n" in text


def test_a_log_that_is_no_terminal_has_the_addresses() -> None:
    settings = config.read({"api": {"listen": "10.0.0.1:80", "tls_listen": "10.0.0.1:443"}})
    with capture_logs() as lines:
        show(settings)
    (line,) = lines
    assert (line["console"], line["api"]) == ("https://10.0.0.1:443/", "http://10.0.0.1:80/")
