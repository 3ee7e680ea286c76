"""Filters that the kernel runs on packets or system calls: classic BPF (filter.rst of Linux).

A program consists of what the functions below return, and of labels; jumps go to labels, and only forward.
"""

from collections.abc import Sequence
from struct import pack

Instruction = tuple[int, int, int, int | str]  # code, jump if true, jump if false, value or the label jumped to
_JUMP, _IF_EQUAL, _RETURN = 0x05, 0x15, 0x06


def assembled(*parts: Sequence[Instruction] | str) -> bytes:
    """The program in the kernel's form: a struct sock_filter of eight bytes for each instruction."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for part in parts:
        if isinstance(part, str):
            labels[part] = len(instructions)
        else:
            instructions += part
    return b"".join(
        pack("HBBI", code, yes, no, labels[value] - at - 1 if isinstance(value, str) else value)
        for at, (code, yes, no, value) in enumerate(instructions)
    )


def load_word(at: int) -> list[Instruction]:
    """Load four bytes of the filtered data."""
    return [(0x20, 0, 0, at)]


def load_half(at: int) -> list[Instruction]:
    """Load two bytes."""
    return [(0x28, 0, 0, at)]


def load_byte(at: int) -> list[Instruction]:
    """Load one."""
    return [(0x30, 0, 0, at)]


def load_half_behind_ipv4(header: int, at: int) -> list[Instruction]:
    """Load two bytes behind an IPv4 header, which contains its own length."""
    return [(0xB1, 0, 0, header), (0x48, 0, 0, header + at)]


def if_equal(value: int, label: str) -> list[Instruction]:
    """Jump if the loaded value is that one. A separate instruction jumps, because a test reaches at most 255
    instructions.
    """
    return [(_IF_EQUAL, 0, 1, value), *jump(label)]


def unless_equal(value: int, label: str) -> list[Instruction]:
    """Jump if the loaded value is another one."""
    return [(_IF_EQUAL, 1, 0, value), *jump(label)]


def jump(label: str) -> list[Instruction]:
    """Jump."""
    return [(_JUMP, 0, 0, label)]


def result(value: int) -> list[Instruction]:
    """End the program with that result."""
    return [(_RETURN, 0, 0, value)]
