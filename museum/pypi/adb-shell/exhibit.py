"""Run a command 30 times on an Android device over TCP, with adb-shell."""

import asyncio
import socket
import struct
import sys
import threading

from adb_shell.adb_device import AdbDeviceTcp
from adb_shell.adb_device_async import AdbDeviceTcpAsync

HEADER = "<4s5I"


def message(command, argument0, argument1, data=b""):
    magic = struct.unpack("<I", command)[0] ^ 0xFFFFFFFF
    return struct.pack(HEADER, command, argument0, argument1, len(data), sum(data), magic) + data


def stand_in_for_a_device(listener):
    """Answer each "shell" with one line of output; one write per message."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as messages:
        while header := messages.read(24):
            command, theirs, _, length, _, _ = struct.unpack(HEADER, header)
            messages.read(length)
            if command == b"CNXN":
                connection.sendall(message(b"CNXN", 0x01000000, 4096, b"device::\0"))
            elif command == b"OPEN":
                connection.sendall(message(b"OKAY", 7, theirs))
                connection.sendall(message(b"WRTE", 7, theirs, b"42\n"))
            elif command == b"OKAY":
                connection.sendall(message(b"CLSE", 7, theirs))


async def run_asynchronously(host, port):
    device = AdbDeviceTcpAsync(host, port, default_transport_timeout_s=5)
    await device.connect()
    for _ in range(30):
        assert await device.shell("cat battery") == "42\n"
    await device.close()


def run(host, port):
    device = AdbDeviceTcp(host, port, default_transport_timeout_s=5)
    device.connect()
    for _ in range(30):
        assert device.shell("cat battery") == "42\n"
    device.close()


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=stand_in_for_a_device, args=[listener], daemon=True).start()
if sys.argv[1] == "asyncio":
    asyncio.run(run_asynchronously(*listener.getsockname()))
else:
    run(*listener.getsockname())
