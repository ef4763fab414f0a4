"""The valid values of fields. Each check yields the faults of one field."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from urllib.parse import urlsplit

from egressd.formats.hosts import parse_host
from egressd.model.bounds import CREDENTIAL_MAX, URL_MAX
from egressd.model.desired import DesiredState
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import (
    INTERFACE_NAME_MAX,
    INTERFACE_PREFIX,
    NODE_NAME_MAX,
    has_control_characters,
    is_interface_name,
    new_name_problem,
    node_name_problem,
    parse_target,
    reserved_name_problem,
)
from egressd.model.outside_hosts import why_not_host
from egressd.model.skeleton import skeleton
from egressd.planner.name_filters import FILTER_MAX, problem_of

_URL = re.compile(r"https?://[!-~]+\Z")
_IPV4 = re.compile(r"[0-9.]{7,15}\Z")
_CIDR = re.compile(r"[0-9.]{7,15}/[0-9]{1,2}\Z")


def refuse(problems: Iterable[Fault]) -> None:
    """Raise Invalid with all of `problems`, if there are any."""
    if found := tuple(problems):
        raise Invalid(*found)


def text(field: str, value: str, most: int, least: int = 0) -> Iterator[Fault]:
    """Check for one line of at least `least` and at most `most` characters."""
    if not least <= len(value) <= most:
        if least:
            yield fault(field, "length", least=least, most=most)
        else:
            yield fault(field, "too-long", most=most)
    if has_control_characters(value):
        yield fault(field, "control-characters")


def lines(field: str, value: str) -> Iterator[Fault]:
    """Check for text of several lines."""
    plain = value.replace("\t", " ").replace("\r", " ").replace("\n", " ")
    if has_control_characters(plain):
        yield fault(field, "control-characters")


def credential(field: str, value: str) -> Iterator[Fault]:
    """Check for a user name or a password: up to `CREDENTIAL_MAX` bytes of UTF-8 on one line."""
    if has_control_characters(value):
        yield fault(field, "control-characters")
    elif len(value.encode()) > CREDENTIAL_MAX:
        yield fault(field, "too-many-bytes", most=CREDENTIAL_MAX)


def group(field: str, value: str) -> Iterator[Fault]:
    """Check for a group's name, or an empty text."""
    yield from text(field, value, NODE_NAME_MAX)
    if "," in value:
        yield fault(field, "comma")
    if value != value.strip():
        yield fault(field, "outer-white-space")


def new_name(
    field: str, value: str, thing: str, like: Iterable[str], *, is_target: bool = True
) -> Iterator[Fault]:
    """Check for a name that users can distinguish by sight from all others of its kind, and, if it
    `is_target`, from other forms of a target. `like` are the names of other things of the kind that
    look the same.

    Existing names remain valid: earlier versions of egressd did not require this.
    """
    if problem := new_name_problem(value, field):
        yield problem
    if is_target and (problem := reserved_name_problem(value, field)):
        yield problem
    if other := next((other for other in like if other != value), None):
        yield fault(field, "name-looks-taken", thing=thing, name=other)


def new_group(field: str, value: str, state: DesiredState) -> Iterator[Fault]:
    """Check for the name of an existing or a new group, or an empty text."""
    if value and not state.group_exists(value):
        like = state.groups_like.get(skeleton(value), ())
        yield from new_name(field, value, "group", like)


def whole(field: str, value: int, least: int, most: int) -> Iterator[Fault]:
    """Check for a number within bounds."""
    if not least <= value <= most:
        yield fault(field, "whole-number", least=least, most=most)


def one_of(field: str, value: str, allowed: Collection[str]) -> Iterator[Fault]:
    """Check for one of a few words."""
    if value not in allowed:
        yield fault(field, "one-of", choices=tuple(allowed))


def interface(field: str, value: str) -> Iterator[Fault]:
    """Check for an interface's bare name; the interface need not exist."""
    if value.startswith(INTERFACE_PREFIX):
        yield fault(field, "interface-prefix", prefix=INTERFACE_PREFIX)
    elif value == "lo":
        yield fault(field, "interface-loopback")
    elif not is_interface_name(value):
        yield fault(field, "interface-name", most=INTERFACE_NAME_MAX)


def url(field: str, value: str) -> Iterator[Fault]:
    """Check for an http or https URL."""
    if not _is_url(value):
        yield fault(field, "url", most=URL_MAX)


def page_url(field: str, value: str) -> Iterator[Fault]:
    """Check for the URL of a page that the device fetches: it names no host within."""
    if problems := [*url(field, value)]:
        yield from problems
    elif unfit := why_not_host(urlsplit(value).hostname or ""):
        yield fault(field, unfit.code, **unfit.values)


def name_filter(field: str, value: str) -> Iterator[Fault]:
    """Check for a pattern over nodes' names, or an empty text."""
    yield from text(field, value, FILTER_MAX)
    if len(value) <= FILTER_MAX and (reason := problem_of(value)):
        yield fault(field, "name-filter", reason=reason)


def _is_url(value: str) -> bool:
    # Length and characters first: parsing a long text that is not ASCII can take hours (NFKC).
    if len(value) > URL_MAX or not _URL.match(value):
        return False
    try:
        parts = urlsplit(value)
        return parts.port != 0 and parts.username is None and bool(parse_host(parts.hostname or ""))
    except ValueError:  # a port that is no number, or an invalid host
        return False


def target(field: str, value: str, state: DesiredState) -> Iterator[Fault]:
    """Check for a valid target of a rule. An interface may appear later."""
    parsed = parse_target(value)
    if parsed.kind == "interface":
        yield from interface(field, parsed.name)
    elif not state.target_exists(parsed):
        yield fault(field, "target-missing", kind=parsed.kind, name=parsed.name[:100])


def stored_target(field: str, value: str) -> Iterator[Fault]:
    """Check for a former target: a rule remains when the node or the group that it names is
    deleted.
    """
    parsed = parse_target(value)
    match parsed.kind:
        case "interface":
            yield from interface(field, parsed.name)
        case "node" if node_name_problem(parsed.name):
            yield fault(field, "target-form")
        case "group" if not parsed.name or [*group(field, parsed.name)]:
            yield fault(field, "target-form")


def normal_network(value: str) -> str | None:
    """Return an IPv4 address or CIDR with its prefix length, ``10.0.0.5/32``; None if it is
    neither.
    """
    try:
        if _IPV4.match(value):
            return f"{IPv4Address(value)}/32"
        if _CIDR.match(value):
            return str(IPv4Network(value))
    except ValueError:
        pass
    return None
