"""docs/nodes.md names every field, cipher and scheme that is read."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.formats.config_json import SETTINGS_KEYS, read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.fields import Kind, Table
from egressd.formats.nodes import NODE_IMPORT_TYPES
from egressd.formats.share_links import SCHEMES

TEXT = (Path(__file__).parents[2] / "docs" / "nodes.md").read_text()


def section(begin: str, end: str) -> str:
    return TEXT[TEXT.index(begin) : TEXT.index(end)]


SHARED = section("## Fields of every protocol", "## Fields of each protocol")
ROWS = section("## Fields of each protocol", "Ciphers of `ss`")
PLUGINS = section("Plugins of `ss`", "### TLS")
LAYERS = section("### TLS", "### Refused")


def row(protocol: str) -> str:
    (found,) = (line for line in ROWS.splitlines() if line.startswith(f"| `{protocol}` | "))
    return found


def keys(table: Table) -> Iterator[str]:
    for key, kind in table.keys.items():
        yield key
        if not isinstance(kind, Kind):
            yield from keys(kind)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_field_is_documented(protocol: str) -> None:
    described = row(protocol) + SHARED + LAYERS + (PLUGINS if protocol == "ss" else "")
    for key in keys(PROTOCOLS[protocol].table):
        assert f"`{key}`" in described, key


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_required_fields_are_bold(protocol: str) -> None:
    bold = set(re.findall(r"\*\*`([^`]+)`\*\*", row(protocol)))
    assert bold == PROTOCOLS[protocol].table.required - {"server", "port"}


@pytest.mark.parametrize("word", [*SETTINGS_KEYS, *NODE_IMPORT_TYPES, *SCHEMES])
def test_settings_import_types_and_schemes_are_documented(word: str) -> None:
    assert f"`{word}`" in TEXT or f"`{word}://`" in TEXT


def test_the_example_is_a_valid_configuration() -> None:
    (example,) = re.findall(r"```json\n(.*?)\n```", TEXT, re.DOTALL)
    assert read_config("socks5", example).unknown == ()
