"""Assembles eBPF programs: the instruction set of the kernel's ``bpf/standardization``.

A `Program` is written from top to bottom, in the mnemonics of bpf_asm and bpftool(8). Jumps name
labels that come further down, and calls name the kernel's helper functions by number or its own
functions by their type number in BTF.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, Literal

from egressd.netd.kernel import uapi


class Register(IntEnum):
    """R0: the result of a call; R1 to R5: its arguments, which it overwrites; R6 to R9 are
    preserved; FP (R10): the end of the stack, whose 512 bytes lie below it.
    """

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6
    R7 = 7
    R8 = 8
    R9 = 9
    FP = 10


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = Register

Bits = Literal[32, 64]
"""The part of a register that an operation or a comparison concerns; one of 32 bits makes the upper
half zero."""

_INSTRUCTION: Final = struct.Struct("<BBhi")  # opcode, source and destination, offset, immediate
_SIZES: Final = {1: uapi.BPF_B, 2: uapi.BPF_H, 4: uapi.BPF_W, 8: uapi.BPF_DW}


class Program:
    """A program under construction. A source is a register, or a signed number of 32 bits."""

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

    def ldx(self, size: int, dst: Register, base: Register, offset: int) -> None:
        """Emit dst = `size` bytes at base + offset, the rest of it zero."""
        self._add(uapi.BPF_LDX | uapi.BPF_MEM | _SIZES[size], dst, base, offset)

    def stx(self, size: int, base: Register, offset: int, src: Register) -> None:
        """Emit `size` bytes at base + offset = src."""
        self._add(uapi.BPF_STX | uapi.BPF_MEM | _SIZES[size], base, src, offset)

    def st(self, size: int, base: Register, offset: int, number: int) -> None:
        """Emit `size` bytes at base + offset = a signed number of 32 bits."""
        self._add(uapi.BPF_ST | uapi.BPF_MEM | _SIZES[size], base, R0, offset, number)

    def xadd(self, base: Register, offset: int, src: Register) -> None:
        """Emit an addition of src to the 8 bytes at base + offset, atomic with those of other
        CPUs.
        """
        self._add(uapi.BPF_STX | uapi.BPF_ATOMIC | uapi.BPF_DW, base, src, offset)

    def ld_map_fd(self, dst: Register, descriptor: int) -> None:
        """Emit dst = the map that is open as `descriptor`, in two instructions."""
        pseudo = Register(uapi.BPF_PSEUDO_MAP_FD)
        self._add(uapi.BPF_LD | uapi.BPF_IMM | uapi.BPF_DW, dst, pseudo, 0, descriptor)
        self._add(0, R0, R0)

    # --- Registers. ---------------------------------------------------------------------

    def mov(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst = src."""
        self._alu(uapi.BPF_MOV, dst, src, bits)

    def add(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst += src."""
        self._alu(uapi.BPF_ADD, dst, src, bits)

    def sub(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst -= src."""
        self._alu(uapi.BPF_SUB, dst, src, bits)

    def and_(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst &= src."""
        self._alu(uapi.BPF_AND, dst, src, bits)

    def or_(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst |= src."""
        self._alu(uapi.BPF_OR, dst, src, bits)

    def xor(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst ^= src."""
        self._alu(uapi.BPF_XOR, dst, src, bits)

    def lsh(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst <<= src."""
        self._alu(uapi.BPF_LSH, dst, src, bits)

    def rsh(self, dst: Register, src: Register | int, *, bits: Bits = 64) -> None:
        """Emit dst >>= src, of an unsigned number."""
        self._alu(uapi.BPF_RSH, dst, src, bits)

    # --- Jumps, calls and the end. ------------------------------------------------------

    def ja(self, label: str) -> None:
        """Emit a jump to a label."""
        self._jump(uapi.BPF_JMP | uapi.BPF_JA, R0, R0, 0, label)

    def jeq(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst == src."""
        self._jump_if(uapi.BPF_JEQ, dst, src, label, bits)

    def jne(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst != src."""
        self._jump_if(uapi.BPF_JNE, dst, src, label, bits)

    def jgt(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst > src, of unsigned numbers."""
        self._jump_if(uapi.BPF_JGT, dst, src, label, bits)

    def jge(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst >= src, of unsigned numbers."""
        self._jump_if(uapi.BPF_JGE, dst, src, label, bits)

    def jlt(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst < src, of unsigned numbers."""
        self._jump_if(uapi.BPF_JLT, dst, src, label, bits)

    def jle(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst <= src, of unsigned numbers."""
        self._jump_if(uapi.BPF_JLE, dst, src, label, bits)

    def jslt(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst < src, of signed numbers."""
        self._jump_if(uapi.BPF_JSLT, dst, src, label, bits)

    def jset(self, dst: Register, src: Register | int, label: str, *, bits: Bits = 64) -> None:
        """Emit a jump to a label if dst & src, that is if they have a bit in common."""
        self._jump_if(uapi.BPF_JSET, dst, src, label, bits)

    def call(self, helper: int) -> None:
        """Emit a call of one of bpf-helpers(7): BPF_FUNC_…."""
        self._add(uapi.BPF_JMP | uapi.BPF_CALL, R0, R0, 0, helper)

    def kfunc(self, function: int, module: int = 0) -> None:
        """Emit a call of one of the kernel's own functions by the number of its type; `module`: the
        index of its module's BTF among the program's, 0 for the kernel itself.
        """
        pseudo = Register(uapi.BPF_PSEUDO_KFUNC_CALL)
        self._add(uapi.BPF_JMP | uapi.BPF_CALL, R0, pseudo, module, function)

    def exit(self) -> None:
        """Emit the end of the program, with R0 as the result."""
        self._add(uapi.BPF_JMP | uapi.BPF_EXIT, R0, R0)

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

    def _alu(self, operation: int, dst: Register, src: Register | int, bits: Bits) -> None:
        opcode = operation | (uapi.BPF_ALU64 if bits == 64 else uapi.BPF_ALU)
        if isinstance(src, Register):
            self._add(opcode | uapi.BPF_X, dst, src)
        else:
            self._add(opcode | uapi.BPF_K, dst, R0, 0, src)

    def _jump_if(
        self, condition: int, dst: Register, src: Register | int, label: str, bits: Bits
    ) -> None:
        opcode = condition | (uapi.BPF_JMP if bits == 64 else uapi.BPF_JMP32)
        if isinstance(src, Register):
            self._jump(opcode | uapi.BPF_X, dst, src, 0, label)
        else:
            self._jump(opcode | uapi.BPF_K, dst, R0, src, label)

    def _jump(self, opcode: int, dst: Register, src: Register, number: int, label: str) -> None:
        self._jumps.append((self._at, label))
        self._add(opcode, dst, src, 0, number)

    def _add(
        self, opcode: int, dst: Register, src: Register, offset: int = 0, number: int = 0
    ) -> None:
        # The verifier distinguishes signed and unsigned numbers by the instruction.
        signed = number - (1 << 32) if number >= 1 << 31 else number
        self._code += _INSTRUCTION.pack(opcode, src << 4 | dst, offset, signed)
