"""bpf(2): maps, programs, and the kernel's information about them. Needs CAP_SYS_ADMIN, or CAP_BPF
with CAP_PERFMON and CAP_NET_ADMIN.

Structures are those of linux/bpf.h; omitted fields of a call are zero.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Self

from egressd.netd.kernel import uapi

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280}
"""Numbers of the system call, by machine (asm/unistd.h)."""
_ATTRIBUTES_BYTES: Final = 160

_MAP_ATTRIBUTES: Final = struct.Struct("=IIIII8x16s")
_ELEMENT: Final = struct.Struct("=I4xQQQ")
_LOAD_ATTRIBUTES: Final = struct.Struct("=IIQQIIQII16s4xI48xQ")
_LINK_ATTRIBUTES: Final = struct.Struct("=IIII")  # link_create: program, target, type, flags
_INFO_ATTRIBUTES: Final = struct.Struct("=IIQ")
_PROGRAM_INFO: Final = struct.Struct("=52xIQ16s")
"""struct bpf_prog_info: number and address of maps, name."""
_ATTACH_ATTRIBUTES: Final = struct.Struct("=6IQ")
"""Interface, descriptor, place, flags, descriptor of the replaced program, of the one beside it;
revision."""
_QUERY_ATTRIBUTES: Final = struct.Struct("=4IQI4x3QQ")
"""Interface, place, two sorts of flags, address for the programs' numbers, its capacity, addresses
for flags and links; revision."""
_MAP_INFO: Final = struct.Struct("=8xIII4x16s")  # struct bpf_map_info
_BTF_INFO: Final = struct.Struct("=QIIQII")  # struct bpf_btf_info

_LOAD_TRIES: Final = 5
"""Number of attempts: the verifier gives up if a signal arrives (EAGAIN)."""
_LICENSE: Final = b"Dual MIT/GPL\0"
"""The license that the kernel's functions require of a program that calls them
(include/linux/license.h)."""
_BTF_FOLDER: Final = Path("/sys/kernel/btf")


class Map:
    """A map in the kernel, with keys and values of fixed sizes in bytes."""

    def __init__(self, descriptor: int) -> None:
        """Own the descriptor. Raises OSError, and closes it then."""
        self.descriptor = descriptor
        with _closed_on_failure(descriptor):
            info = _info(descriptor, _MAP_INFO.size)
        self.key_size, self.value_size, self.room, name = _MAP_INFO.unpack(info)
        self.name: str = name.rstrip(b"\0").decode()
        self._value = ctypes.create_string_buffer(self.value_size)

    @classmethod
    def make(
        cls,
        name: str,
        *,
        key_size: int,
        value_size: int,
        room: int,
        kind: int = uapi.BPF_MAP_TYPE_HASH,
    ) -> Self:
        """Return a new map for at most `room` elements; memory is allocated per element. `kind` is
        one of ``enum bpf_map_type``. Raises OSError.
        """
        attributes = _MAP_ATTRIBUTES.pack(
            kind,
            key_size,
            value_size,
            room,
            uapi.BPF_F_NO_PREALLOC,
            name.encode(),
        )
        return cls(_call(uapi.BPF_MAP_CREATE, attributes))

    def close(self) -> None:
        """Close the descriptor: the map is gone once no program uses it either."""
        os.close(self.descriptor)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None. Raises OSError."""
        value = ctypes.create_string_buffer(self.value_size)
        try:
            self._element(uapi.BPF_MAP_LOOKUP_ELEM, key, value)
        except FileNotFoundError:
            return None
        return value.raw

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key, replacing an earlier one. Raises OSError."""
        value_at = ctypes.create_string_buffer(value, self.value_size)
        self._element(uapi.BPF_MAP_UPDATE_ELEM, key, value_at)

    def put_new(self, key: bytes, value: bytes) -> None:
        """Set the value of a key unless it has one. Raises OSError."""
        with suppress(FileExistsError):
            value_at = ctypes.create_string_buffer(value, self.value_size)
            self._element(uapi.BPF_MAP_UPDATE_ELEM, key, value_at, uapi.BPF_NOEXIST)

    def drop(self, key: bytes) -> None:
        """Remove a key, if it is present. Raises OSError."""
        with suppress(FileNotFoundError):
            self._element(uapi.BPF_MAP_DELETE_ELEM, key, None)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all keys. Nothing else may add or remove keys meanwhile. Raises OSError."""
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_size)
        while True:
            try:
                self._element(uapi.BPF_MAP_GET_NEXT_KEY, key, following)
            except FileNotFoundError:
                return
            key = following.raw
            yield key

    def _element(
        self,
        command: int,
        key: bytes | None,
        value: ctypes.Array[ctypes.c_char] | None,
        flags: int = 0,
    ) -> None:
        key_at = ctypes.create_string_buffer(key, self.key_size) if key is not None else None
        attributes = _ELEMENT.pack(self.descriptor, _address(key_at), _address(value), flags)
        _call(command, attributes)


def load(
    name: str,
    code: bytes,
    modules: tuple[int, ...] = (),
    *,
    kind: int = uapi.BPF_PROG_TYPE_SCHED_CLS,
    attach_type: int = 0,
) -> int:
    """Load a program after the kernel has verified it; return its descriptor.

    `kind` is one of ``enum bpf_prog_type``, a classifier (tc-bpf(8)) by default; `attach_type` is
    one of ``enum bpf_attach_type``, for kinds that need it at this point. `modules`: descriptors of
    the BTF of modules whose functions it calls, of which the first has the number 1. Raises
    OSError, whose text ends with the last lines of the verifier's log.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    license_at = ctypes.create_string_buffer(_LICENSE)
    array = (ctypes.c_int * (1 + len(modules)))(0, *modules)

    def attempt(log: ctypes.Array[ctypes.c_char] | None) -> int:
        attributes = _LOAD_ATTRIBUTES.pack(
            kind,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(license_at),
            1 if log else 0,
            len(log) if log else 0,
            _address(log),
            0,
            0,
            name.encode(),
            attach_type,
            ctypes.addressof(array) if modules else 0,
        )
        return _call(uapi.BPF_PROG_LOAD, attributes)

    for tries_left in reversed(range(_LOAD_TRIES)):
        try:
            return attempt(None)
        except OSError as error:
            if error.errno == errno.EAGAIN and tries_left:
                continue
            if error.errno not in (errno.EACCES, errno.EINVAL):
                raise
            break
    log = ctypes.create_string_buffer(1 << 20)
    try:
        return attempt(log)
    except OSError as error:
        said = log.value.decode(errors="replace").strip().splitlines()[-4:]
        raise OSError(error.errno, f"{error.strerror}: {' / '.join(said)}") from None


def link(program: int, target: int, attach_type: int) -> int:
    """Attach a program to the target open as `target`, for as long as the returned descriptor stays
    open. Raises OSError.
    """
    return _call(uapi.BPF_LINK_CREATE, _LINK_ATTRIBUTES.pack(program, target, attach_type, 0))


def attached(interface: int, place: int) -> list[int]:
    """Return the numbers of the programs at an interface's BPF_TCX_INGRESS or BPF_TCX_EGRESS, in
    the order in which they see packets: ahead of all filters (tc(8)). Raises OSError, EINVAL on a
    kernel before 6.6.
    """
    numbers = (ctypes.c_uint32 * uapi.BPF_MPROG_MAX)()
    at = ctypes.addressof(numbers)
    asked = _QUERY_ATTRIBUTES.pack(interface, place, 0, 0, at, uapi.BPF_MPROG_MAX, 0, 0, 0, 0)
    count = _QUERY_ATTRIBUTES.unpack_from(_answer(uapi.BPF_PROG_QUERY, asked))[5]
    return numbers[:count]


def attach(interface: int, descriptor: int, replaced: int | None = None) -> None:
    """Put a program at an interface's BPF_TCX_INGRESS, behind all present ones, or in place of the
    one with the number `replaced`. It stays when its process ends. Raises OSError.
    """
    if replaced is None:
        _call(uapi.BPF_PROG_ATTACH, _attachment(interface, descriptor))
        return
    with _program(replaced) as old:
        _call(uapi.BPF_PROG_ATTACH, _attachment(interface, descriptor, uapi.BPF_F_REPLACE, old))


def detach(interface: int, program: int) -> None:
    """Remove the program with that number from an interface's BPF_TCX_INGRESS. Raises OSError."""
    with _program(program) as descriptor:
        _call(uapi.BPF_PROG_DETACH, _attachment(interface, descriptor))


def _attachment(interface: int, descriptor: int, flags: int = 0, replaced: int = 0) -> bytes:
    place = uapi.BPF_TCX_INGRESS
    return _ATTACH_ATTRIBUTES.pack(interface, descriptor, place, flags, replaced, 0, 0)


def name_of(program: int) -> str:
    """Return the name of the program with that number. Raises OSError."""
    with _program(program) as descriptor:
        info = _info(descriptor, _PROGRAM_INFO.size)
    name: bytes = _PROGRAM_INFO.unpack(info)[2]
    return name.rstrip(b"\0").decode(errors="replace")


def maps_of(program: int) -> list[Map]:
    """Return the maps that the program with that number uses. Raises OSError."""
    with _program(program) as descriptor:
        numbers = (ctypes.c_uint32 * 16)()
        asked = _PROGRAM_INFO.pack(len(numbers), ctypes.addressof(numbers), b"")
        count = _PROGRAM_INFO.unpack(_info(descriptor, _PROGRAM_INFO.size, asked))[0]
    with ExitStack() as undo:
        maps = []
        for number in numbers[:count]:
            maps.append(Map(_call(uapi.BPF_MAP_GET_FD_BY_ID, struct.pack("=I", number))))
            undo.callback(maps[-1].close)
        undo.pop_all()
    return maps


def kernel_types() -> bytes:
    """Return the BTF of the kernel itself. Raises OSError if it has none."""
    return (_BTF_FOLDER / "vmlinux").read_bytes()


def module_types(module: str) -> tuple[bytes, int] | None:
    """Return the BTF of a module, and its descriptor; None if it is not a module, or has no BTF."""
    path = _BTF_FOLDER / module
    if not path.exists():
        return None
    return path.read_bytes(), _module_descriptor(module)


def _module_descriptor(module: str) -> int:
    number = 0
    while True:
        # At the end of the list the kernel raises FileNotFoundError.
        answer = _answer(uapi.BPF_BTF_GET_NEXT_ID, struct.pack("=I", number))
        (number,) = struct.unpack_from("=4xI", answer)
        descriptor = _call(uapi.BPF_BTF_GET_FD_BY_ID, struct.pack("=I", number))
        name = ctypes.create_string_buffer(64)
        asked = _BTF_INFO.pack(0, 0, 0, ctypes.addressof(name), len(name), 0)
        with _closed_on_failure(descriptor):
            is_kernels = _BTF_INFO.unpack(_info(descriptor, _BTF_INFO.size, asked))[5]
        if is_kernels and name.value == module.encode():
            return descriptor
        os.close(descriptor)


@contextmanager
def _program(number: int) -> Iterator[int]:
    """Yield a descriptor of the program with that number. Raises OSError."""
    descriptor = _call(uapi.BPF_PROG_GET_FD_BY_ID, struct.pack("=I", number))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _closed_on_failure(descriptor: int) -> Iterator[None]:
    try:
        yield
    except OSError:
        os.close(descriptor)
        raise


def _info(descriptor: int, size: int, asked: bytes = b"") -> bytes:
    info = ctypes.create_string_buffer(asked, size)
    attributes = _INFO_ATTRIBUTES.pack(descriptor, size, ctypes.addressof(info))
    _call(uapi.BPF_OBJ_GET_INFO_BY_FD, attributes)
    return info.raw


@cache
def _syscall() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def _answer(command: int, attributes: bytes) -> bytes:
    """Return the attributes of a call as the kernel leaves them."""
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    _enter(command, buffer)
    return buffer.raw


def _call(command: int, attributes: bytes) -> int:
    return _enter(command, ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES))


def _enter(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no known number on {platform.machine()}")
    answer: int = _syscall()(
        ctypes.c_long(number), ctypes.c_int(command), attributes, ctypes.c_uint(_ATTRIBUTES_BYTES)
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def _address(buffer: ctypes.Array[ctypes.c_char] | None) -> int:
    return 0 if buffer is None else ctypes.addressof(buffer)
