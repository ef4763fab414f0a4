"""Values of a TOML file, read into dataclasses: each field has a function that checks its value.

All faults are reported at once, each with its key. netd keeps no library of schemas in memory for
the few keys of its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from ipaddress import IPv4Address
from typing import Any, ClassVar, Final, Protocol, TypeVar

from egressd.model.names import is_interface_name

T = TypeVar("T")
Read = Callable[[Any], T]
"""A function that returns a checked value. Raises ValueError, which may be `Faults`."""


_UNKNOWN: Final = "is not a key of the configuration"


class Faults(ValueError):
    """The faults of a value, each with the path that leads to it from the value."""

    def __init__(self, *found: tuple[tuple[str, ...], str]) -> None:
        super().__init__(*found)
        self.found = found


class IsTable(Protocol):
    """A dataclass whose fields have `reads` as metadata."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


TableT = TypeVar("TableT", bound=IsTable)


def reads(read: Read[Any], key: str = "") -> dict[str, Any]:
    """Return the metadata of a field that `read` reads, of the field's name or of `key`."""
    return {"read": read, "key": key}


def keys(table: type[IsTable]) -> dict[str, str]:
    """Return each key of a table -> the field's name."""
    return {each.metadata["key"] or each.name: each.name for each in fields(table)}


def table(made: type[TableT]) -> Read[TableT]:
    """Return a function that reads a table into `made`."""

    def read(given: Any) -> TableT:
        if not isinstance(given, dict):
            raise ValueError("must be a table")  # noqa: TRY004 - a fault of the file
        names, found = keys(made), _Found()
        readers = {each.name: each.metadata["read"] for each in fields(made)}
        values = {
            name: found.value(key, readers[name], given[key])
            for key, name in names.items()
            if key in given
        }
        found.faults += [((key,), _UNKNOWN) for key in given if key not in names]
        found.report()
        return made(**values)

    return read


def listed(read: Read[T]) -> Read[tuple[T, ...]]:
    """Return a function that reads a list into a tuple, each item by `read`."""

    def read_all(given: Any) -> tuple[T, ...]:
        if not isinstance(given, list | tuple):
            raise ValueError("must be a list in brackets")  # noqa: TRY004 - see `table`
        found = _Found()
        values = [found.value(str(number), read, each) for number, each in enumerate(given)]
        found.report()
        return tuple(values)

    return read_all


def mapped(read_key: Read[str], read: Read[T]) -> Read[dict[str, T]]:
    """Return a function that reads a table of any keys into a dictionary."""

    def read_all(given: Any) -> dict[str, T]:
        if not isinstance(given, dict):
            raise ValueError("must be a table")  # noqa: TRY004 - see `table`
        found = _Found()
        values = {}
        for name, each in given.items():
            key = found.value(f"{name}.[key]", read_key, name)
            values[key] = found.value(name, read, each)
        found.report()
        return values

    return read_all


def text(given: Any) -> str:
    """Read a text."""
    if not isinstance(given, str):
        raise ValueError("must be text in quotes")  # noqa: TRY004 - see `table`
    return given


def switch(given: Any) -> bool:
    """Read true or false."""
    if not isinstance(given, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - see `table`
    return given


def choice(*values: str) -> Read[str]:
    """Return a reader of one of `values`."""

    def read(given: Any) -> str:
        if given not in values:
            raise ValueError(f"Input should be {' or '.join(map(repr, values))}")
        return str(given)

    return read


def number(least: int, most: int) -> Read[int]:
    """Return a function that reads a whole number of these bounds."""

    def read(given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError("must be a whole number")  # noqa: TRY004 - see `table`
        if given < least:
            raise ValueError(f"Input should be greater than or equal to {least}")
        if given > most:
            raise ValueError(f"Input should be less than or equal to {most}")
        return given

    return read


def address(given: Any) -> IPv4Address:
    """Read an IPv4 address; `IPv4Address` would accept numbers, too."""
    if isinstance(given, IPv4Address):
        return given
    try:
        return IPv4Address(text(given))
    except ValueError:
        raise ValueError("must be an IPv4 address in quotes") from None


def interface(given: Any) -> str:
    """Read the name of an interface."""
    if not isinstance(given, str) or not is_interface_name(given):
        raise ValueError("must be the name of an interface")
    return given


def sentences(faults: Faults) -> Iterator[str]:
    """Yield a sentence about each fault of a configuration."""
    for path, fault in faults.found:
        key = ".".join(path)
        if not key:  # a sentence about several keys, which it names
            yield fault
        elif fault is _UNKNOWN:
            yield f"{key} {fault}"
        else:
            yield f"{key}: {fault}"


class _Found:
    """The faults of one value, as they are found."""

    def __init__(self) -> None:
        self.faults: list[tuple[tuple[str, ...], str]] = []

    def value(self, key: str, read: Read[T], given: Any) -> Any:
        """Return the value that `read` returns, or None and keep its faults."""
        try:
            return read(given)
        except Faults as inner:
            self.faults += [((key, *path), fault) for path, fault in inner.found]
        except ValueError as error:
            self.faults.append(((key,), str(error)))
        return None

    def report(self) -> None:
        """Raise Faults if there are any."""
        if self.faults:
            raise Faults(*self.faults)
