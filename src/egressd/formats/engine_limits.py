"""Options that a node's text may ask for and the engine lacks, listed in this one place.

Each option listed here changes the bytes that are sent, or the peers that are trusted. A node that
asks for one is refused with the reason, since it would never work, or would be less safe than its
text says. All other unused options are reported in a note. Names are folded (`fields.fold`), as
programs spell them differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from egressd.formats.fields import fold
from egressd.formats.scalars import is_off

_PIN: Final = (
    "the engine cannot pin a certificate, so the node would be less safe than its configuration "
    "says"
)
_FILE: Final = "it can name a file of this device"
_TRUST: Final = "the engine trusts the authorities of its own, and has no client certificates"
_OWN: Final = "egressd decides how a node's own traffic leaves; use interface-name or dialer-proxy"
_LAYER: Final = "the engine has no such layer"

CANNOT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "fingerprint",
            "pinsha256",
            "pinnedpeercertsha256",
            "pinnedpeercertificatechainsha256",
            "tlsfingerprint",
            "servercertfingerprint",
            "certsha",
            "certificatepublickeysha256",
            "pcs",
            "hpkp",
        ),
        _PIN,
    ),
    **dict.fromkeys(
        (
            "ca",
            "castr",
            "cert",
            "certraw",
            "certificate",
            "privatekey",
            "clientcertificate",
            "clientkey",
        ),
        _TRUST,
    ),
    **dict.fromkeys(
        (
            "routingmark",
            "detour",
            "bindinterface",
            "inet4bindaddress",
            "inet6bindaddress",
            "netns",
        ),
        _OWN,
    ),
    "disablesni": "the engine always names the server in TLS here",
    "interfacename": "write it as interface-name",
    "dialerproxy": "write it as dialer-proxy",
    "dnsprofile": "write it as dns-profile",
    "dnsservers": "write it as dns-servers",
    "ssopts": "the engine has no Shadowsocks inside Trojan",
    "shadowtlsopts": "the engine has no ShadowTLS here",
    "shadowtls": "the engine has no ShadowTLS here",
    "restlsopts": "the engine has no Restls",
    "jlsopts": "the engine has no JLS",
    "gost": "the engine has no gost plugin",
    "gostplugin": "the engine has no gost plugin",
    "xrayplugin": "the engine has no xray-plugin",
    "kcptun": "the engine has no kcptun",
    "obfslocal": "write it as plugin=obfs-local",
    "simpleobfs": "write it as plugin=obfs-local",
    "amneziawgoption": "the engine has no AmneziaWG",
    "pqv": "the engine does not check ML-DSA signatures",
    "mldsa65verify": "the engine does not check ML-DSA signatures",
    "fm": "the engine has no such masks",
    "finalmask": "the engine has no such masks",
    "v2rayhttpupgrade": "the engine's plugin has no HTTP upgrade",
}
"""Folded name -> the reason for which a node that asks for it is refused."""
_CANNOT_THERE: Final[Mapping[str, str]] = {
    "plugin-opts.headers": "the engine's plugin sends no headers but Host",
}
"""Path -> reason, like `CANNOT`."""

_NAMES_A_FILE: Final = re.compile(r"(?:.*[-_.])?(?:path|file)\Z", re.IGNORECASE)
_OTHER_NETWORKS: Final = frozenset(
    f"{network}opts"
    for network in (
        "tcp",
        "raw",
        "ws",
        "httpupgrade",
        "http",
        "h2",
        "grpc",
        "xhttp",
        "splithttp",
        "kcp",
        "mkcp",
        "mekya",
        "quic",
    )
)
"""Options of transports. They have no effect when ``network`` names another transport."""


def refusal_of(path: str, value: Any) -> str | None:
    """Return the reason for which a node must not set the unknown key at `path` to `value`.

    Return None if the node may: the key is reported as having no effect, or its value asks for
    nothing.
    """
    if is_off(value):
        return None
    key = path.rpartition(".")[2]
    folded = fold(key)
    if reason := _CANNOT_THERE.get(path) or CANNOT.get(folded):
        return reason
    if _NAMES_A_FILE.match(key):
        return _FILE
    is_layer = folded.endswith("opts") and isinstance(value, dict)
    return _LAYER if is_layer and folded not in _OTHER_NETWORKS else None
