"""What a name may look like, and the forms of a rule's target.

Names reach the kernel, daemons' files and JSON documents, so their grammar is decided
once, here.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec

DIRECT = "DIRECT"
REJECT = "REJECT"
GROUP_PREFIX = "Group_"
INTERFACE_PREFIX = "Interface:"

TARGET_FORMS = "DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface name>"
"""Written out, since the console's catalogue translates it as it stands."""

LineType = Literal["l2tp", "pptp"]
LINE_TYPES: tuple[LineType, ...] = get_args(LineType)
AUTO = "auto"
"""As a line's ``interface``: whatever the main routing table leads to the server by."""
DnsProfile = Literal["auto", "domestic", "outbound", "return", "custom"]
DNS_PROFILES: tuple[DnsProfile, ...] = get_args(DnsProfile)

NODE_NAME_MAX = 64
"""Characters in a node's or a group's name."""

INTERFACE_NAME_MAX = 15
"""Bytes in an interface's name: the kernel's IFNAMSIZ (16) less the final NUL."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\Z")


def has_control_characters(text: str) -> bool:
    """Whether `text` holds a C0, DEL or C1 control, a line separator or a lone surrogate."""
    return _CONTROL.search(text) is not None


def is_interface_name(name: str) -> bool:
    """Whether `name` is an interface name that egressd works with.

    Narrower than the kernel's own rule (``dev_valid_name`` in ``net/core/dev.c``): ASCII,
    and nothing that is a wildcard or a quote to nftables or begins like an option.
    """
    return _INTERFACE.match(name) is not None


def node_name_problem(name: str) -> str | None:
    """Why `name` cannot name a node, or None when it can."""
    if not 1 <= len(name) <= NODE_NAME_MAX:
        return f"name must have 1 to {NODE_NAME_MAX} characters"
    if has_control_characters(name):
        return "name must not contain control characters"
    if "," in name:
        return "name must not contain a comma"
    if name != name.strip():
        return "name must not begin or end with white space"
    if name in (DIRECT, REJECT) or name.startswith((GROUP_PREFIX, INTERFACE_PREFIX)):
        return (
            f"name must not be {DIRECT} or {REJECT} nor begin with "
            f"{GROUP_PREFIX} or {INTERFACE_PREFIX}"
        )
    return None


class TargetName(msgspec.Struct, frozen=True):
    """A parsed ``target_node``: its kind, and the bare name where the kind has one."""

    kind: Literal["direct", "reject", "node", "group", "interface"]
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "direct":
                return DIRECT
            case "reject":
                return REJECT
            case "group":
                return GROUP_PREFIX + self.name
            case "interface":
                return INTERFACE_PREFIX + self.name
            case _:
                return self.name


def parse_target(text: str) -> TargetName:
    """Read a target as the API writes it. Prefixes are exact and case-sensitive.

    Whether the node, group or interface exists is not looked at.
    """
    if text == DIRECT:
        return TargetName("direct")
    if text == REJECT:
        return TargetName("reject")
    if text.startswith(GROUP_PREFIX):
        return TargetName("group", text.removeprefix(GROUP_PREFIX))
    if text.startswith(INTERFACE_PREFIX):
        return TargetName("interface", text.removeprefix(INTERFACE_PREFIX))
    return TargetName("node", text)
