"""The bytes of eBPF programs, as in the kernel's instruction set."""

from __future__ import annotations

import pytest

from egressd.netd.kernel.ebpf.assembler import FP, R0, R1, R2, R6, Program
from tests.support.disassembly import disassembled


def lines(program: Program) -> list[str]:
    code = program.assembled()
    return [code[at : at + 8].hex(" ") for at in range(0, len(code), 8)]


def test_instructions_are_encoded_as_the_kernel_documents_them() -> None:
    it = Program()
    it.mov(R6, R1)
    it.ldx(2, R2, R6, 12)
    it.stx(4, FP, -16, R2)
    it.st(8, FP, -24, -1)
    it.and_(R2, 0xFFFF)
    it.sub(R2, R1, bits=32)
    it.xadd(R0, 8, R2)
    it.ld_map_fd(R1, 5)
    it.call(1)
    it.kfunc(65_669, module=1)
    it.exit()
    assert lines(it) == [
        "bf 16 00 00 00 00 00 00",  # r6 = r1
        "69 62 0c 00 00 00 00 00",  # r2 = *(u16 *)(r6 + 12)
        "63 2a f0 ff 00 00 00 00",  # *(u32 *)(r10 - 16) = r2
        "7a 0a e8 ff ff ff ff ff",  # *(u64 *)(r10 - 24) = -1
        "57 02 00 00 ff ff 00 00",  # r2 &= 0xffff
        "1c 12 00 00 00 00 00 00",  # w2 -= w1
        "db 20 08 00 00 00 00 00",  # lock *(u64 *)(r0 + 8) += r2
        "18 11 00 00 05 00 00 00",  # r1 = map[fd:5]
        "00 00 00 00 00 00 00 00",
        "85 00 00 00 01 00 00 00",  # call bpf_map_lookup_elem
        "85 20 01 00 85 00 01 00",  # call of the kernel's own function
        "95 00 00 00 00 00 00 00",  # exit
    ]


def test_a_program_prints_as_in_the_verifiers_log() -> None:
    it = Program()
    it.mov(R6, R1)
    it.ldx(2, R2, R6, 12)
    it.stx(4, FP, -16, R2)
    it.st(8, FP, -24, -1)
    it.and_(R2, 0xFFFF)
    it.sub(R2, R1, bits=32)
    it.xadd(R0, 8, R2)
    it.ld_map_fd(R1, 5)
    it.call(1)
    it.kfunc(65_669, module=1)
    it.jle(R2, 250, "end", bits=32)
    it.jslt(R1, R2, "end")
    it.ja("end")
    it.label("end")
    it.exit()
    assert disassembled(it.assembled()).splitlines() == [
        "0: (bf) r6 = r1",
        "1: (69) r2 = *(u16 *)(r6 +12)",
        "2: (63) *(u32 *)(r10 -16) = r2",
        "3: (7a) *(u64 *)(r10 -24) = -1",
        "4: (57) r2 &= 65535",
        "5: (1c) w2 -= w1",
        "6: (db) lock *(u64 *)(r0 +8) += r2",
        "7: (18) r1 = map[fd:5]",
        "9: (85) call bpf_map_lookup_elem#1",
        "10: (85) call kfunc#65669 of module 1",
        "11: (b6) if w2 <= 0xfa goto pc+2",
        "12: (cd) if r1 s< r2 goto pc+1",
        "13: (05) goto pc+0",
        "14: (95) exit",
    ]


@pytest.mark.parametrize(
    ("mnemonic", "opcode"),
    [
        ("mov", 0xB7),
        ("add", 0x07),
        ("sub", 0x17),
        ("or_", 0x47),
        ("and_", 0x57),
        ("lsh", 0x67),
        ("rsh", 0x77),
        ("xor", 0xA7),
    ],
)
def test_an_operation_takes_a_number_or_a_register_of_64_or_32_bits(
    mnemonic: str, opcode: int
) -> None:
    it = Program()
    operation = getattr(it, mnemonic)
    operation(R2, 6)
    operation(R2, R6)
    operation(R2, 6, bits=32)
    operation(R2, R6, bits=32)
    assert lines(it) == [
        f"{opcode:02x} 02 00 00 06 00 00 00",
        f"{opcode | 0x08:02x} 62 00 00 00 00 00 00",
        f"{opcode & 0xF0 | 0x04:02x} 02 00 00 06 00 00 00",
        f"{opcode & 0xF0 | 0x0C:02x} 62 00 00 00 00 00 00",
    ]


@pytest.mark.parametrize(
    ("mnemonic", "opcode"),
    [
        ("jeq", 0x15),
        ("jgt", 0x25),
        ("jge", 0x35),
        ("jset", 0x45),
        ("jne", 0x55),
        ("jlt", 0xA5),
        ("jle", 0xB5),
        ("jslt", 0xC5),
    ],
)
def test_a_comparison_takes_a_number_or_a_register_of_64_or_32_bits(
    mnemonic: str, opcode: int
) -> None:
    it = Program()
    jump = getattr(it, mnemonic)
    jump(R2, 6, "end")
    jump(R2, R6, "end")
    jump(R2, 6, "end", bits=32)
    jump(R2, R6, "end", bits=32)
    it.label("end")
    assert lines(it) == [
        f"{opcode:02x} 02 03 00 06 00 00 00",
        f"{opcode | 0x08:02x} 62 02 00 00 00 00 00",
        f"{opcode & 0xF0 | 0x06:02x} 02 01 00 06 00 00 00",
        f"{opcode & 0xF0 | 0x0E:02x} 62 00 00 00 00 00 00",
    ]


def test_jump_offsets_count_the_instructions_in_between() -> None:
    it = Program()
    it.jne(R1, 0x0800, "end")
    it.jslt(R1, R2, "end", bits=32)
    it.ld_map_fd(R1, 3)  # this takes two instructions
    it.ja("end")
    it.mov(R0, 1)
    it.label("end")
    it.exit()
    assert [line[:11] for line in lines(it)] == [
        "55 01 05 00",
        "ce 21 04 00",
        "18 11 00 00",
        "00 00 00 00",
        "05 00 01 00",
        "b7 00 00 00",
        "95 00 00 00",
    ]


def test_a_32_bit_number_may_have_its_highest_bit_set() -> None:
    it = Program()
    it.mov(R1, 0xFFFF_FFFE)
    it.mov(R2, -2)
    first, second = lines(it)
    assert first[12:] == second[12:] == "fe ff ff ff"


def test_a_jump_backwards_or_to_no_label_is_refused() -> None:
    it = Program()
    it.label("start")
    it.ja("start")
    with pytest.raises(ValueError, match="start"):
        it.assembled()
    it = Program()
    it.ja("nowhere")
    with pytest.raises(ValueError, match="nowhere"):
        it.assembled()


def test_a_label_is_unique() -> None:
    it = Program()
    it.label("end")
    with pytest.raises(ValueError, match="end"):
        it.label("end")
