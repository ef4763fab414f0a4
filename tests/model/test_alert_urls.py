"""URLs of alerts: services that act by the network alone, and no host of this device or a LAN."""

from __future__ import annotations

import importlib
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.alert_urls import PLUGINS, host_of, plugin_of, why_not_url
from egressd.model.outside_hosts import why_not_host

HERE = ("attach", "dbus", "exec", "file", "gio", "glib", "gnome", "macosx", "rsyslog", "syslog")


def code_of(url: str) -> str:
    unfit = why_not_url(url)
    return "" if unfit is None else unfit.code


# Apprise imports imghdr where Python still has it.
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("scheme", PLUGINS)
def test_each_plugin_is_the_one_of_its_scheme(scheme: str) -> None:
    module, _, name = PLUGINS[scheme].partition(":")
    kind = getattr(importlib.import_module(f"apprise.plugins.{module}"), name)
    schemes: set[str] = set()
    for each in (kind.protocol, kind.secure_protocol):
        schemes.update((each,) if isinstance(each, str) else each or ())
    assert scheme in schemes


@pytest.mark.parametrize("scheme", [*HERE, "windows", "blink1", "https", "http", "smb"])
def test_services_of_this_machine_are_refused(scheme: str) -> None:
    assert code_of(f"{scheme}://example.com/x") == "alert-url-scheme"
    assert plugin_of(f"{scheme}://example.com/x") is None


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("ntfys://ntfy.example.org/topic", ""),
        ("json://user:pass@203.0.113.9:8080/hook?method=post", ""),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", ""),
        ("mailtos://user:pass@example.com?smtp=mail.example.com&from=Gateway", ""),
        ("twilio://AC123:token@+15551234567/+15557654321", ""),
        ("slack://TokenA/TokenB/TokenC/Channel", ""),
        ("json://10.0.0.5/hook", "errand-host-inner"),
        ("json://127.0.0.1:8787/hook", "errand-host-inner"),
        ("json://169.254.1.1/hook", "errand-host-inner"),
        ("json://255.255.255.255/hook", "errand-host-inner"),
        ("json://a:b@100.64.0.1/hook", "errand-host-inner"),
        ("json://LocalHost/hook", "errand-host-inner"),
        ("json://x.localhost./hook", "errand-host-inner"),
        ("json://10.0.0.5./hook", "errand-host-inner"),
        ("json://%31%30.0.0.5/hook", "errand-host-inner"),
        ("json://[::1]:80/hook", "errand-host-ipv6"),
        ("json://127.1/hook", "errand-host-form"),
        ("json://2130706433/hook", "errand-host-form"),
        ("json://0x7f000001/hook", "errand-host-form"),
        ("json://0177.0.0.1/hook", "errand-host-form"),
        ("json:///hook", "alert-url-form"),
        ("json://?a=b", "errand-host-none"),
        ("mailto://a:b@example.com?smtp=192.168.8.1", "errand-host-inner"),
        ("mailto://a:b@example.com?smtp=localhost", "errand-host-inner"),
        ("slack://T/B/C?template=/etc/passwd", "alert-url-file"),
        ("discord://id/token?Template=x", "alert-url-file"),
        ("jsons://example.com/x?verify=no", "alert-url-unverified"),
        ("mailtos://a:b@example.com?Verify=", "alert-url-unverified"),
        ("jsons://example.com/x?a=1;verify=no", "alert-url-unverified"),
        ("jsons://example.com/x?verify%20=no", "alert-url-unverified"),
        ("jsons://example.com/x?%20verify+=no", "alert-url-unverified"),
        ("json://example.com/x?a=1;attach=/etc/passwd", "alert-url-file"),
        ("json://example.com/x?%09attach%20=/etc/passwd", "alert-url-file"),
        ("mailto://a:b@example.com?a=1;smtp=192.168.8.1", "errand-host-inner"),
        ("mailto://a:b@example.com?smtp=%20192.168.8.1%20", "errand-host-inner"),
        ("mailto://a:b@example.com?pgpkey=/root/key", "alert-url-file"),
        ("json://example.com/with space", "alert-url-form"),
        ("json://example.com/\x00", "alert-url-form"),
        ("JSON://example.com/x", "alert-url-form"),
        ("example.com", "alert-url-form"),
    ],
)
def test_a_url_is_taken_or_refused_with_its_reason(url: str, code: str) -> None:
    found = code_of(url)
    # An authority that is empty is no host, and no URL either.
    assert found == code or (url == "json:///hook" and found == "errand-host-none")


@given(st.integers(0, 2**32 - 1))
def test_of_all_addresses_only_public_ones_are_taken(number: int) -> None:
    address = IPv4Address(number)
    inner = address.is_loopback or address.is_link_local or address.is_multicast
    inner |= any(str(address).startswith(each) for each in ("10.", "192.168.", "0.", "127."))
    if inner:
        assert why_not_host(str(address)) is not None
    assert why_not_host(str(number)) is not None


def test_the_host_is_that_of_services_with_one() -> None:
    assert host_of("json://a:b@example.com:80/x?y=@z") == "example.com"
    assert host_of("tgram://123:abc/456") == ""
