"""From a parsed row or share link to a node's draft: the only way in for all forms of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from egressd.formats.amounts import port_ranges
from egressd.formats.config_json import FIELD, SETTINGS_KEYS, read_fields
from egressd.formats.entries import PROTOCOLS
from egressd.formats.hosts import join_host_port
from egressd.formats.json_text import check_size, may_be_unclean, unclean_places, write_object
from egressd.formats.node_names import Names
from egressd.formats.rows import Unreadable
from egressd.model.drafts import NodeDraft
from egressd.model.errors import Invalid
from egressd.model.faults import Fault
from egressd.model.names import NODE_NAME_MAX, has_control_characters
from egressd.model.wording import Sentence, say

_WORD_MAX: Final = 60
"""Characters of a key that a message shows."""


class ParsedNode(msgspec.Struct, frozen=True):
    """A node as its text gives it, unchecked. ``name`` is empty when the text gives none.

    ``config`` has the keys of Clash's fields as in the tables of `entries`. ``notes`` list the
    parts of the text that had no effect, and those that were read as another value. ``words`` maps
    a field of ``config`` to its name in the text where the names differ; an empty name leaves the
    field out of the notes.
    """

    protocol: str
    config: dict[str, Any]
    name: str = ""
    notes: tuple[Sentence, ...] = ()
    words: Mapping[str, str] = {}


def no_effect(key: str) -> Sentence:
    """Return the note on a key, parameter or field that has no effect."""
    return say("no-effect", key=_shown(key))


def draft_of(
    parsed: ParsedNode, group: str, names: Iterator[str] | Names
) -> tuple[NodeDraft, tuple[Sentence, ...]]:
    """Return the checked draft, and the notes on it.

    The node is named by the next of `names`, or by `Names` from its own name; a missing one becomes
    ``server:port``, if that is not too long. Raises Unreadable.
    """
    if parsed.protocol not in PROTOCOLS:
        raise Unreadable(f"type must be one of {', '.join(PROTOCOLS)}")
    for key in SETTINGS_KEYS:
        if parsed.config.get(key):
            raise Unreadable(f"{key} must not be given in an import: set it on the node afterwards")
    text = write_object(parsed.config)
    _refuse_unclean(parsed.config, text)
    reading = read_fields(parsed.protocol, parsed.config)
    if reading.problems:
        raise Unreadable(*_in_words(reading.problems, parsed.words))
    notes = list(parsed.notes)
    for path in (*reading.unknown, *reading.idle):
        if word := parsed.words.get(path, path):
            notes.append(no_effect(word))
    for path, value in reading.taken.items():
        notes.append(say("taken-as", key=parsed.words.get(path, path), word=value))
    if isinstance(names, Names):
        name, changes = names.take(parsed.name, _address(reading.values))
        notes += changes
    else:
        name = next(names)
    draft = NodeDraft(name=name, protocol=parsed.protocol, config_json=text, group=group)
    return draft, tuple(dict.fromkeys(notes))


def _in_words(problems: Iterable[Fault], words: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the problems, with the text's own names of their fields."""
    for problem in problems:
        word = words.get(problem.field)
        yield problem.at(word) if word else problem


def _refuse_unclean(config: dict[str, Any], text: str) -> None:
    """Refuse a configuration that `config_json.read_config` would not read again. Raises
    Unreadable.
    """
    try:
        check_size(text, FIELD)
    except Invalid as invalid:
        raise Unreadable(*invalid.faults) from None
    if may_be_unclean(text) and (faults := unclean_places(config, FIELD)):
        raise Unreadable(*(str(fault).removeprefix(f"{FIELD}.") for fault in faults))


def _address(fields: Mapping[str, Any]) -> str:
    port = fields.get("port") or port_ranges(fields["ports"])[0][0]
    address = join_host_port(fields["server"], port)
    if len(address) > NODE_NAME_MAX:
        return ""
    return address


def _shown(word: str) -> str:
    shown = word if not has_control_characters(word) else ascii(word)[1:-1]
    return shown if len(shown) <= _WORD_MAX else f"{shown[:_WORD_MAX]}…"
