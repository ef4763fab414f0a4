"""eBPF programs as text, in the notation of the kernel's verifier (kernel/bpf/disasm.c).

So a line of a golden file can be found in a verifier's log, and in ``bpftool prog dump xlated``.
"""

from __future__ import annotations

import struct
from typing import Final

from egressd.netd.kernel.fast_path.program import Entrance, MapDescriptors, assemble
from egressd.netd.kernel.fast_path.tracking import FlowOffsets, Kernel, Timeouts

_INSTRUCTION: Final = struct.Struct("<BBhi")
_SIZES: Final = {0x00: "u32", 0x08: "u16", 0x10: "u8", 0x18: "u64"}
_OPERATIONS: Final = {
    0x00: "+=", 0x10: "-=", 0x40: "|=", 0x50: "&=", 0x60: "<<=", 0x70: ">>=", 0xA0: "^=", 0xB0: "=",
}  # fmt: skip
_CONDITIONS: Final = {
    0x10: "==", 0x20: ">", 0x30: ">=", 0x40: "&", 0x50: "!=", 0xA0: "<", 0xB0: "<=", 0xC0: "s<",
}  # fmt: skip
_HELPERS: Final = {
    1: "bpf_map_lookup_elem", 11: "bpf_l4_csum_replace", 118: "bpf_jiffies64",
    38: "bpf_skb_change_tail", 43: "bpf_skb_change_head", 125: "bpf_ktime_get_boot_ns",
    152: "bpf_redirect_neigh", 163: "bpf_check_mtu",
}  # fmt: skip
_WIDE, _CALL, _EXIT, _GO = 0x18, 0x85, 0x95, 0x05
_KFUNC: Final = 2

KERNEL: Final = Kernel(
    flow=FlowOffsets(
        mark=168,
        status=128,
        timeout=136,
        source=(32, 88),
        source_port=(48, 104),
        destination=(52, 108),
        destination_port=(68, 124),
    ),
    look_up=1001,
    release=1002,
    module=7,
    tick_hz=250,
    timeouts_s=Timeouts(established=432_000, unacknowledged=7440, stream=120, udp=30),
)
"""A kernel with connection tracking as a module. Each value differs from the others, so that none
can be taken for another unseen."""
MAPS: Final = MapDescriptors(clients=3, networks=4, egresses=5, counts=6, rule_counts=7)
WITH_LEASE: Final = MAPS._replace(lease=8)


def fast_path() -> dict[str, str]:
    """Return the fast path's programs, as text."""
    return {
        "fast_path": disassembled(assemble(KERNEL, MAPS, Entrance.FRAMES)),
        "fast_path_lan_only": disassembled(assemble(KERNEL, MAPS, Entrance.LAN)),
        "fast_path_leased": disassembled(assemble(KERNEL, WITH_LEASE, Entrance.FRAMES)),
        "fast_path_no_frames": disassembled(assemble(KERNEL, MAPS, Entrance.NO_FRAMES)),
    }


def disassembled(code: bytes) -> str:
    """Return a line for each instruction. Raises KeyError for one that `Program` does not emit."""
    lines = []
    instructions = enumerate(_INSTRUCTION.iter_unpack(code))
    for at, (opcode, registers, offset, number) in instructions:
        text = _instruction(opcode, registers & 0xF, registers >> 4, offset, number)
        lines.append(f"{at}: ({opcode:02x}) {text}\n")
        if opcode == _WIDE:
            next(instructions)  # its second half
    return "".join(lines)


def _instruction(opcode: int, to: int, of: int, offset: int, number: int) -> str:
    kind, upper = opcode & 0x07, opcode & 0xF0
    size, is_register = _SIZES.get(opcode & 0x18, ""), opcode & 0x08
    if opcode == _WIDE:
        return f"r{to} = map[fd:{number}]"
    if opcode == _CALL:
        return (
            f"call kfunc#{number} of module {offset}"
            if of == _KFUNC
            else (f"call {_HELPERS[number]}#{number}")
        )
    if opcode == _EXIT:
        return "exit"
    if opcode == _GO:
        return f"goto pc{offset:+d}"
    if kind == 0x01:
        return f"r{to} = *({size} *)(r{of} {offset:+d})"
    if kind == 0x02:
        return f"*({size} *)(r{to} {offset:+d}) = {number}"
    if kind == 0x03:
        lock, does = ("lock ", "+=") if opcode & 0xE0 == 0xC0 else ("", "=")
        return f"{lock}*({size} *)(r{to} {offset:+d}) {does} r{of}"
    name = "w" if kind in {0x04, 0x06} else "r"
    if kind in {0x04, 0x07}:
        return f"{name}{to} {_OPERATIONS[upper]} {f'{name}{of}' if is_register else number}"
    operand = f"{name}{of}" if is_register else f"{number & 0xFFFF_FFFF:#x}"
    return f"if {name}{to} {_CONDITIONS[upper]} {operand} goto pc{offset:+d}"
