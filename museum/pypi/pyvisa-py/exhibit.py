"""Set an instrument's voltage and ask for it, 30 times on each of two connections, with PyVISA-py."""

import socket
import sys
import threading

import pyvisa


def stand_in_for_a_power_supply(listener):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=[connection], daemon=True).start()


def serve(connection):
    """Know how to set the voltage and to tell it; one write per answer."""
    voltage = b"0"
    with connection, connection.makefile("rb") as commands:
        for line in commands:
            for command in line.strip().split(b";"):
                if command == b"VOLT?":
                    connection.sendall(voltage + b"\n")
                else:
                    voltage = command.removeprefix(b"VOLT ")


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=stand_in_for_a_power_supply, args=[listener], daemon=True).start()
manager = pyvisa.ResourceManager("@py")
for _ in range(2):
    supply = manager.open_resource(
        f"TCPIP::127.0.0.1::{listener.getsockname()[1]}::SOCKET", read_termination="\n", write_termination="\n"
    )
    for number in range(30):
        if sys.argv[1] == "separately":
            supply.write(f"VOLT {number}")
            answer = supply.query("VOLT?")
        else:
            answer = supply.query(f"VOLT {number};VOLT?")
        assert answer == str(number)
    supply.close()
