"""BTF of a small made-up kernel and module, and the running kernel's own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from egressd.netd.kernel.ebpf.btf import Btf

INT, POINTER, ARRAY, STRUCT, UNION, TYPEDEF, FUNCTION = 1, 2, 3, 4, 5, 8, 12


class Types:
    """Writes BTF: types in the order of their numbers, from `first` on."""

    def __init__(self, first_text: int = 0) -> None:
        self._types = b""
        self._strings = b"" if first_text else b"\0"
        self._first_text = first_text
        self._known = {"": 0}

    def text(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self.strings_end
            self._strings += text.encode() + b"\0"
        return self._known[text]

    def add(self, kind: int, name: str, size: int, parts: int = 0, behind: bytes = b"") -> None:
        self._types += struct.pack("=III", self.text(name), kind << 24 | parts, size) + behind

    def struct(self, kind: int, name: str, size: int, *members: tuple[str, int, int]) -> None:
        behind = b"".join(struct.pack("=III", self.text(n), t, at * 8) for n, t, at in members)
        self.add(kind, name, size, len(members), behind)

    @property
    def strings_end(self) -> int:
        return self._first_text + len(self._strings)

    def encoded(self) -> bytes:
        sizes = (0, len(self._types), len(self._types), len(self._strings))
        return struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, *sizes) + self._types + self._strings


def kernel() -> Types:
    types = Types()
    types.add(INT, "u32", 4, behind=bytes(4))  # 1
    types.add(TYPEDEF, "__be32", 1)  # 2
    types.struct(UNION, "address", 16, ("all", 1, 0), ("ip", 2, 0))  # 3
    types.struct(STRUCT, "", 20, ("kind", 1, 0), ("u3", 3, 4))  # 4, without a name
    types.struct(STRUCT, "tuple", 24, ("number", 1, 0), ("", 4, 4))  # 5
    types.add(ARRAY, "", 0, behind=struct.pack("=III", 5, 1, 2))  # 6
    types.add(POINTER, "", 5)  # 7
    types.struct(STRUCT, "flow", 64, ("next", 7, 0), ("tuples", 6, 8), ("mark", 1, 56))  # 8
    types.add(FUNCTION, "flow", 0)  # 9: with the name of a structure
    return types


@pytest.mark.parametrize(
    ("path", "offset"),
    [
        (("next",), 0),
        (("mark",), 56),
        (("tuples", 0, "number"), 8),
        (("tuples", 1, "number"), 32),
        (("tuples", 1, "u3", "ip"), 40),  # through a field without a name
    ],
)
def test_offsets_of_fields_are_found(path: tuple[str | int, ...], offset: int) -> None:
    assert Btf(kernel().encoded(), names=["flow"]).offset("flow", *path) == offset


def test_a_function_and_a_structure_may_share_a_name() -> None:
    assert Btf(kernel().encoded(), names=["flow"]).function("flow") == 9


def test_a_modules_types_and_names_continue_the_kernels() -> None:
    base = kernel()
    module = Types(first_text=base.strings_end)
    module.add(ARRAY, "", 0, behind=struct.pack("=III", 8, 1, 3))  # 10: of the kernel's flows
    module.struct(STRUCT, "table", 200, ("size", 1, 0), ("flows", 10, 8))  # 11
    module.add(FUNCTION, "look_up", 0)  # 12
    btf = Btf(base.encoded(), module.encoded(), names=["table", "look_up", "flow"])
    assert btf.offset("table", "flows", 2, "mark") == 8 + 2 * 64 + 56
    assert btf.function("look_up") == 12
    assert btf.offset("flow", "mark") == 56


@pytest.mark.parametrize(
    "path", [("nothing",), ("mark", "ip"), ("tuples", "number"), ("mark", 0), ("tuples", 0, "ip")]
)
def test_a_missing_field_is_an_error(path: tuple[str | int, ...]) -> None:
    with pytest.raises(KeyError):
        Btf(kernel().encoded(), names=["flow"]).offset("flow", *path)


def test_an_unknown_name_is_an_error() -> None:
    btf = Btf(kernel().encoded(), names=["flow", "absent"])
    with pytest.raises(KeyError):
        btf.function("absent")
    with pytest.raises(KeyError):
        btf.offset("absent", "mark")


@pytest.mark.parametrize("data", [b"", b"\x9f", bytes(64)])
def test_invalid_btf_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no BTF"):
        Btf(data, names=[])


def test_types_of_the_running_kernel_are_found() -> None:
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("this kernel tells nothing of its types")
    btf = Btf(path.read_bytes(), names=["__sk_buff", "iphdr", "bpf_redir_neigh"])
    # The stable parts of the kernel's interface (linux/bpf.h, linux/ip.h).
    assert btf.offset("__sk_buff", "data") == 76
    assert btf.offset("__sk_buff", "ifindex") == 40
    assert btf.offset("iphdr", "protocol") == 9
    assert btf.offset("bpf_redir_neigh", "ipv4_nh") == 4
