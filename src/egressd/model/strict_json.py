"""Strict JSON: RFC 8259 without what two readers could understand differently.

Refused are a key twice in an object, of which readers take the first or the last (RFC 8259, 4), and
``NaN`` and ``Infinity``, which are not JSON and which Python's reader takes. The callers decide on
numbers, which have no bounds in JSON (RFC 8259, 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from egressd.model.wording import Value

_KEY_SHOWN: Final = 60
"""Characters of a repeated key in `NotStrict.values`."""


class NotStrict(ValueError):
    """A text is not strict JSON. `code` says why, with `values`:

    - ``syntax``: reason, line, column (both from 1)
    - ``depth``: most, levels of nested objects and arrays
    - ``key-twice``: key
    - ``number``: number, as it is written
    - ``number-size``
    """

    def __init__(self, code: str, **values: Value) -> None:
        super().__init__(code)
        self.code = code
        self.values = values


def json_decoder(
    *,
    integer: Callable[[str], Any] = int,
    real: Callable[[str], Any] = float,
    key: Callable[[str], str] | None = None,
) -> json.JSONDecoder:
    """Return a decoder. `integer` and `real` convert the text of a number without and with a
    fraction or an exponent, and `key` converts the keys of objects.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if key is not None:
            pairs = [(key(name), value) for name, value in pairs]
        document = dict(pairs)
        if len(document) != len(pairs):
            raise NotStrict("key-twice", key=_first_repeated(name for name, _ in pairs))
        return document

    return json.JSONDecoder(
        object_pairs_hook=once, parse_constant=_refuse, parse_float=real, parse_int=integer
    )


def decode(text: str, decoder: json.JSONDecoder, depth_max: int) -> Any:
    """Return the document that `text` holds, in at most `depth_max` levels. Raises NotStrict."""
    try:
        document = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotStrict("syntax", reason=error.msg, line=error.lineno, column=error.colno) from None
    except NotStrict:
        raise
    except ValueError:  # int() takes at most 4,300 digits (sys.get_int_max_str_digits)
        raise NotStrict("number-size") from None
    except RecursionError:
        raise NotStrict("depth", most=depth_max) from None
    # Few brackets cannot be nested deeper, and most texts have few.
    if text.count("[") + text.count("{") > depth_max and _is_deeper(document, depth_max):
        raise NotStrict("depth", most=depth_max)
    return document


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name[:_KEY_SHOWN]
        seen.add(name)
    raise AssertionError("no name is repeated")


def _refuse(text: str) -> NoReturn:
    raise NotStrict("number", number=text)


def _is_deeper(document: Any, levels: int) -> bool:
    if not isinstance(document, dict | list):
        return False
    if levels == 0:
        return True
    inner = document.values() if isinstance(document, dict) else document
    return any(_is_deeper(value, levels - 1) for value in inner)
