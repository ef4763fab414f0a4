"""The grammar of names, and the forms of a rule's target.

Names reach the kernel, daemons' files and JSON documents, so their grammar is decided once, here.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final, Literal, get_args

import msgspec

from egressd.model.faults import Fault, fault
from egressd.model.skeleton import IGNORABLE, skeleton

DIRECT = "DIRECT"
REJECT = "REJECT"
GROUP_PREFIX = "Group_"
INTERFACE_PREFIX = "Interface:"

LineType = Literal["l2tp", "pptp"]
LINE_TYPES: tuple[LineType, ...] = get_args(LineType)
AUTO = "auto"
"""As a line's ``interface``: the interface of the main routing table's route to the server."""
DnsProfile = Literal["auto", "domestic", "outbound", "return", "custom"]
DNS_PROFILES: tuple[DnsProfile, ...] = get_args(DnsProfile)

NODE_NAME_MAX = 64
"""Characters in a node's or a group's name."""

INTERFACE_NAME_MAX = 15
"""Bytes in an interface's name: the kernel's IFNAMSIZ (16) less the final NUL."""

CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
"""C0, DEL and C1 controls, line separators and lone surrogates, for use between brackets."""
_CONTROL = re.compile(f"[{CONTROL}]")
_CONTROLS = re.compile(f"[{CONTROL}]+")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\Z")


def has_control_characters(text: str) -> bool:
    """True if `text` holds a C0, DEL or C1 control, a line separator or a lone surrogate."""
    return _CONTROL.search(text) is not None


def one_line(text: str) -> str:
    """Return `text` with a space in place of each run of control characters."""
    return _CONTROLS.sub(" ", text)


def is_interface_name(name: str) -> bool:
    """True if `name` is an interface name that egressd works with.

    Narrower than the kernel's own rule (``dev_valid_name`` in ``net/core/dev.c``): ASCII only, no
    wildcard or quote of nftables, and no first character that begins an option.
    """
    return _INTERFACE.match(name) is not None


def node_name_problem(name: str, field: str = "name") -> Fault | None:
    """Return why `name` cannot name a node, or None if it can."""
    if not 1 <= len(name) <= NODE_NAME_MAX:
        return fault(field, "length", least=1, most=NODE_NAME_MAX)
    if has_control_characters(name):
        return fault(field, "control-characters")
    if "," in name:
        return fault(field, "comma")
    if name != name.strip():
        return fault(field, "outer-white-space")
    if name in (DIRECT, REJECT) or name.startswith((GROUP_PREFIX, INTERFACE_PREFIX)):
        return fault(field, "name-reserved")
    return None


_SPACES: Final = " \u3000"
"""The ASCII space, and the ideographic one, which is as wide as a Chinese character."""
_VARIATION: Final = "\ufe0e\ufe0f"
"""The variation selectors, which show a character as text or as an emoji."""
_JOINER, _NON_JOINER = "\u200d", "\u200c"
_VIRAMA: Final = 9
"""The canonical combining class behind which a joiner has a meaning (RFC 5892, A.1 and A.2)."""
_NEW_EMOJI: Final = re.compile("[\U0001f000-\U0001faff]")
"""The blocks in which Unicode adds emoji. One that this Python does not know has category Cn."""
_REGIONAL_FLAG: Final = re.compile(
    "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
)
"""A flag such as Scotland's: a black flag, and the region's code in tags (UTS #51, ED-14a)."""
_TAGS: Final = "\U000e0020-\U000e007f"
_BLANK: Final = "\u2800\ufffc\U0001d159"
"""Symbols that show nothing: the empty Braille cell, the object replacement character, and the
musical null notehead."""
_UNSEEN: Final = re.compile(f"[{IGNORABLE}{_TAGS}{_BLANK}]")


def new_name_problem(name: str, field: str = "name") -> Fault | None:
    """Return why users cannot recognise a new name by sight; None if they can.

    A name must be in Unicode's normal form NFC, and must not hold an invisible character or one
    that changes the direction of writing. The parts that emoji are composed of are allowed where
    they have that effect, and so are the joiners of Arabic and Indic scripts.
    """
    if name.isascii():
        return None
    if not unicodedata.is_normalized("NFC", name):
        return fault(field, "name-not-normal")
    if unicodedata.category(name[0]).startswith("M"):
        return fault(field, "name-begins-with-mark")
    plain = _REGIONAL_FLAG.sub("", name)
    for place, character in enumerate(plain):
        if not character.isascii() and not _is_seen(plain, place):
            return fault(field, "name-unseen-character", point=f"{ord(character):04X}")
    return None


@cache
def _common_characters() -> re.Pattern[str]:
    """Return the pattern of a name in which each character is visible alone, and in NFC beside any
    other one. To compile it takes 2 ms: few processes look at new names.
    """
    return re.compile(
        "[ -~\u3001-\u3096\u30a0-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
        "\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]*\\Z"
    )


def seen_name(name: str) -> str:
    """Return a name as people see it: in NFC, without what cannot be seen, and with the usual space
    in place of others, of tabs and of line ends.
    """
    if _common_characters().match(name):
        return name
    parts = re.split(f"({_REGIONAL_FLAG.pattern})", unicodedata.normalize("NFC", name))
    return "".join(part if at % 2 else _seen_part(part) for at, part in enumerate(parts))


def _seen_part(part: str) -> str:
    return "".join(_shown(part, place) for place in range(len(part)))


def _shown(part: str, place: int) -> str:
    character = part[place]
    if not has_control_characters(character) and _is_seen(part, place):
        return character
    return " " if character.isspace() else ""


def reserved_name_problem(name: str, field: str = "name") -> Fault | None:
    """Return why a name could be mistaken for a target of another kind, or None."""
    looks = skeleton(name)
    reserved, prefixes = _reserved_looks()
    if looks in reserved or looks.startswith(prefixes):
        return fault(field, "name-looks-reserved")
    return None


@cache
def _reserved_looks() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the skeletons of reserved names, and of reserved beginnings.

    They are made when they are needed: the table for it takes 0.6 MB, and netd and the engine
    workers check no new names.
    """
    names, prefixes = (DIRECT, REJECT), (GROUP_PREFIX, INTERFACE_PREFIX)
    return frozenset(map(skeleton, names)), tuple(map(skeleton, prefixes))


def _is_seen(name: str, place: int) -> bool:
    """True if the character there is visible, or affects a visible one."""
    character = name[place]
    match unicodedata.category(character):
        case "Zs":
            return character in _SPACES
        case "Cn":
            return _NEW_EMOJI.match(character) is not None or not _is_nothing(character)
        case "Co":
            return False
        case "Cf":
            return _joins(name, place)
        case _ if character in _VARIATION:
            return place > 0 and _may_vary(name[place - 1])
        case _:
            return _UNSEEN.match(character) is None


def _is_nothing(character: str) -> bool:
    """True if it is a noncharacter (never assigned), or one that is not displayed."""
    return (
        ord(character) & 0xFFFE == 0xFFFE
        or _UNSEEN.match(character) is not None
        or "\ufdd0" <= character <= "\ufdef"
    )


def _may_vary(before: str) -> bool:
    """True if a variation selector has an effect after this character: a symbol, or one of a few
    characters that emoji are composed of.
    """
    return (
        unicodedata.category(before)[0] in "SPN"
        or before == "\u2139"
        or _NEW_EMOJI.match(before) is not None
    )


def _joins(name: str, place: int) -> bool:
    """True if the character there is a joiner between two characters that it joins or keeps
    apart.
    """
    if name[place] not in (_JOINER, _NON_JOINER) or not 0 < place < len(name) - 1:
        return False
    before, after = name[place - 1], name[place + 1]
    if unicodedata.combining(before) == _VIRAMA:
        return True
    if name[place] == _NON_JOINER:
        return {unicodedata.bidirectional(before), unicodedata.bidirectional(after)} == {"AL"}
    return _is_emoji(after) and (before in _VARIATION or _is_emoji(before))


def _is_emoji(character: str) -> bool:
    return unicodedata.category(character)[0] == "S" or _NEW_EMOJI.match(character) is not None


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
    """Parse a target as the API writes it. Prefixes are exact and case-sensitive.

    The function does not check that the node, group or interface exists.
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
