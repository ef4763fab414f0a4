"""Assembles eBPF programs: the instruction set of the kernel's ``bpf/standardization``.

A `Program` is written from top to bottom. Jumps name labels that come further down, and calls name
the kernel's helper functions by number or its own functions by their type number in BTF.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = range(11)
"""The registers. R0: the result of a call; R1 to R5: its arguments, which it overwrites; R6 to R9
are preserved; FP: the end of the stack, whose 512 bytes lie below it."""

_INSTRUCTION: Final = struct.Struct("<BBhi")  # opcode, source and destination, offset, immediate

# linux/bpf_common.h, linux/bpf.h
_SIZES: Final = {1: 0x10, 2: 0x08, 4: 0x00, 8: 0x18}
_LOAD, _STORE_NUMBER, _STORE, _ATOMIC = 0x61, 0x62, 0x63, 0xC3
_WIDE, _MAP = 0x18, 1
_ALU32, _ALU64, _JUMP32, _JUMP64 = 0x04, 0x07, 0x06, 0x05
_REGISTER: Final = 0x08
_OPERATIONS: Final = {
    "+": 0x00, "-": 0x10, "|": 0x40, "&": 0x50, "<<": 0x60, ">>": 0x70, "^": 0xA0, "=": 0xB0
}  # fmt: skip
_CONDITIONS: Final = {
    "==": 0x10, ">": 0x20, ">=": 0x30, "&": 0x40, "!=": 0x50, "<": 0xA0, "<=": 0xB0,
    "signed <": 0xC0,
}  # fmt: skip
_GO, _CALL, _EXIT = 0x05, 0x85, 0x95
_OF_THE_KERNEL: Final = 2  # BPF_PSEUDO_KFUNC_CALL

Operation = Literal["+", "-", "|", "&", "<<", ">>", "^", "="]
Condition = Literal["==", ">", ">=", "&", "!=", "<", "<=", "signed <"]


class Program:
    """A program under construction."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def label(self, name: str) -> None:
        """Make jumps to `name` lead to the next instruction."""
        if name in self._labels:
            raise ValueError(f"there are two labels {name}")
        self._labels[name] = self._at

    # --- Memory. ------------------------------------------------------------------------

    def load(self, size: int, register: int, base: int, offset: int) -> None:
        """Emit register = `size` bytes at base + offset, the rest of it zero."""
        self._add(_LOAD | _SIZES[size], register, base, offset)

    def store(self, size: int, base: int, offset: int, register: int) -> None:
        """Emit `size` bytes at base + offset = register."""
        self._add(_STORE | _SIZES[size], base, register, offset)

    def store_number(self, size: int, base: int, offset: int, number: int) -> None:
        """Emit `size` bytes at base + offset = a signed number of 32 bits."""
        self._add(_STORE_NUMBER | _SIZES[size], base, 0, offset, number)

    def add_to(self, base: int, offset: int, register: int) -> None:
        """Emit an addition of register to the 8 bytes at base + offset, atomic with those of other
        CPUs.
        """
        self._add(_ATOMIC | _SIZES[8], base, register, offset)

    # --- Registers. ---------------------------------------------------------------------

    def set_map(self, register: int, descriptor: int) -> None:
        """Emit register = the map that is open as `descriptor`."""
        self._add(_WIDE, register, _MAP, 0, descriptor)
        self._add(0, 0, 0)

    def number(self, register: int, operation: Operation, number: int, *, bits: int = 64) -> None:
        """Emit an operation on a register with a signed number of 32 bits."""
        self._add(_alu(bits) | _OPERATIONS[operation], register, 0, 0, number)

    def register(self, register: int, operation: Operation, other: int, *, bits: int = 64) -> None:
        """Emit an operation on a register with another register."""
        self._add(_alu(bits) | _OPERATIONS[operation] | _REGISTER, register, other)

    # --- Jumps, calls and the end. -----------------------------------------------------

    def go(self, label: str) -> None:
        """Emit a jump to a label."""
        self._jump(_GO, 0, 0, 0, label)

    def go_if(
        self, register: int, condition: Condition, number: int, label: str, *, bits: int = 64
    ) -> None:
        """Emit a jump to a label if the comparison of a register with a number is true; ``&``: if
        the register has one of the number's bits.
        """
        self._jump(_jump(bits) | _CONDITIONS[condition], register, 0, number, label)

    def go_if_register(
        self, register: int, condition: Condition, other: int, label: str, *, bits: int = 64
    ) -> None:
        """Emit a jump to a label if the comparison of a register with another is true."""
        self._jump(_jump(bits) | _CONDITIONS[condition] | _REGISTER, register, other, 0, label)

    def call(self, helper: int) -> None:
        """Emit a call of one of bpf-helpers(7) by its number."""
        self._add(_CALL, 0, 0, 0, helper)

    def call_kernel(self, function: int, module: int = 0) -> None:
        """Emit a call of one of the kernel's own functions by the number of its type; `module`: the
        index of its module's BTF among the program's, 0 for the kernel itself.
        """
        self._add(_CALL, 0, _OF_THE_KERNEL, module, function)

    def exit(self) -> None:
        """Emit the end of the program, with R0 as the result."""
        self._add(_EXIT, 0, 0)

    def assembled(self) -> bytes:
        """Return the program. Raises ValueError if a jump leads nowhere, or back."""
        code = bytearray(self._code)
        for at, label in self._jumps:
            distance = self._labels.get(label, -1) - at - 1
            if distance < 0:
                raise ValueError(f"nothing below leads on from the jump to {label}")
            struct.pack_into("<h", code, at * _INSTRUCTION.size + 2, distance)
        return bytes(code)

    @property
    def _at(self) -> int:
        return len(self._code) // _INSTRUCTION.size

    def _jump(self, opcode: int, register: int, other: int, number: int, label: str) -> None:
        self._jumps.append((self._at, label))
        self._add(opcode, register, other, 0, number)

    def _add(self, opcode: int, to: int, of: int, offset: int = 0, number: int = 0) -> None:
        # The verifier distinguishes signed and unsigned numbers by the instruction.
        signed = number - (1 << 32) if number >= 1 << 31 else number
        self._code += _INSTRUCTION.pack(opcode, of << 4 | to, offset, signed)


def _alu(bits: int) -> int:
    return _ALU64 if bits == 64 else _ALU32


def _jump(bits: int) -> int:
    return _JUMP64 if bits == 64 else _JUMP32
