"""Programs for the kernel's filters, run by the kernel."""

import ctypes
import socket
from struct import pack

import pytest

from nagle_lab.host import bpf

SO_ATTACH_FILTER = 26


def passed(program: bytes, *messages: bytes) -> list[bytes]:
    """The messages that pass through a socket with that filter."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    instructions = ctypes.create_string_buffer(program)
    with ours, theirs:
        argument = pack("HP", len(program) // 8, ctypes.addressof(instructions))
        theirs.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, argument)
        return [message for message in messages if _arrives(message, ours, theirs)]


def _arrives(message: bytes, ours: socket.socket, theirs: socket.socket) -> bool:
    ours.send(message)
    try:
        return theirs.recv(100, socket.MSG_DONTWAIT) == message
    except BlockingIOError:
        return False


@pytest.mark.parametrize("count", [1, 1000])
def test_a_jump_leads_to_its_label_however_far_that_is(count):
    far = [step for value in range(count) for step in bpf.if_equal(value, "take")]
    program = bpf.assembled(
        bpf.load_byte(0), bpf.unless_equal(7, "leave"), bpf.load_half(1), far,
        "leave", bpf.result(0),
        "take", bpf.result(9),
    )  # fmt: skip
    messages = [b"\x07" + number.to_bytes(2, "big") for number in (0, count - 1, count)]
    assert passed(program, *messages, b"\x08\0\0") == messages[:2]


def test_bytes_behind_a_header_of_any_length():
    program = bpf.assembled(
        bpf.load_half_behind_ipv4(1, 2), bpf.if_equal(80, "take"), bpf.result(0), "take", bpf.result(100)
    )  # fmt: skip
    short, long = (bytes([0, 0x40 + words]) + bytes(4 * words - 1 + 2) + b"\0\x50" for words in (5, 15))
    assert passed(program, short, long, short[:-1] + b"\x51", b"\0\x46" + short[2:]) == [short, long]
