"""The form of each value that the api sends to netd, as types that msgspec checks while it decodes.

netd runs as root and the api does not, so every value on netd's socket is bounded in length, range
and alphabet before any code sees it; `msgspec.ValidationError` names the place. Values that code
creates itself are not checked.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from egressd.model.bounds import (
    ALERT_URL_MAX,
    CREDENTIAL_MAX,
    FIELD_TEXT_MAX,
    HOST_MAX,
    TEXT_MAX,
    URL_MAX,
)
from egressd.model.names import CONTROL

LINE: Final = rf"\A[^{CONTROL}]*\Z"
"""The pattern of a text without control characters."""

Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_MAX, pattern=LINE)]
"""Text without control characters."""
Credential: TypeAlias = Annotated[str, Meta(max_length=CREDENTIAL_MAX, pattern=LINE)]
"""A user name or a password, or an empty text for none."""
HeaderName: TypeAlias = Annotated[
    str, Meta(max_length=64, pattern=r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
]
"""A field name of HTTP (RFC 9110, 5.1)."""
HttpPath: TypeAlias = Annotated[
    str, Meta(max_length=TEXT_MAX + 1, pattern=rf"\A/(?:[^%{CONTROL}]|%[0-9a-fA-F]{{2}})*\Z")
]
"""A path in which two hexadecimal digits follow each ``%``."""

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN: Final = rf"(?!(?:.*\.)?[0-9]+\Z){_LABEL}(?:\.{_LABEL})*"
_HOST: Final = rf"{_ADDRESS}|{_DOMAIN}|[0-9a-f.:]*:[0-9a-f.:]*"

Address: TypeAlias = Annotated[str, Meta(max_length=15, pattern=rf"\A{_ADDRESS}\Z")]
"""An IPv4 address."""
Network: TypeAlias = Annotated[
    str, Meta(max_length=18, pattern=rf"\A{_ADDRESS}/(?:[0-9]|[12][0-9]|3[0-2])\Z")
]
"""An IPv4 network as a CIDR."""
Mac: TypeAlias = Annotated[
    str, Meta(max_length=17, pattern=r"\A[0-9a-f][02468ace](?::[0-9a-f]{2}){5}\Z")
]
"""A hardware address of one host, in lower case with colons."""
Addresses: TypeAlias = Annotated[tuple[Address, ...], Meta(max_length=1024)]
Domain: TypeAlias = Annotated[str, Meta(max_length=HOST_MAX, pattern=rf"\A{_DOMAIN}\Z")]
"""A domain name in lower-case ASCII, without a final dot."""
Host: TypeAlias = Annotated[str, Meta(max_length=HOST_MAX, pattern=rf"\A(?:{_HOST})\Z")]
"""A domain name or an IP address."""
HostOrNone: TypeAlias = Annotated[str, Meta(max_length=HOST_MAX, pattern=rf"\A(?:{_HOST})?\Z")]
"""A domain name, an IP address, or an empty text for none."""
Url: TypeAlias = Annotated[str, Meta(max_length=URL_MAX, pattern=r"\A(?:https?://[!-~]+)?\Z")]
"""An HTTP URL, or an empty text for none."""
AlertUrl: TypeAlias = Annotated[
    str, Meta(max_length=ALERT_URL_MAX, pattern=r"\A[a-z0-9]{1,20}://[!-~]+\Z")
]
"""A URL of a service that alerts are sent by."""
PageUrl: TypeAlias = Annotated[str, Meta(max_length=URL_MAX, pattern=r"\Ahttps?://[!-~]+\Z")]
"""A URL of a page that is fetched."""
FieldName: TypeAlias = Annotated[str, Meta(max_length=64, pattern=r"\A[A-Za-z0-9-]+\Z")]
"""The name of a field of an HTTP message's head."""
FieldText: TypeAlias = Annotated[str, Meta(max_length=FIELD_TEXT_MAX, pattern=r"\A[ -~]*\Z")]
"""The value of such a field."""

Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
Mark: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
"""A packet mark; `egressd.netd.reconciler.validation` decides which ones are egressd's own."""
Number: TypeAlias = Annotated[int, Meta(ge=0, le=0x7FFF_FFFF_FFFF_FFFF)]
"""A number without a bound of its own, such as a revision."""
