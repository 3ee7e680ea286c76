"""Set an instrument's voltage and ask for it, 30 times in each of two sessions, with PyVISA-py.

"socket" speaks to the instrument's raw socket, "hislip" to its HiSLIP port, for which PyVISA-py sets TCP_NODELAY.
"""

import socket
import struct
import sys
import threading

import pyvisa

HEADER = "!2sBBIQ"  # of a HiSLIP message: "HS", its type, control code, parameter, length of its payload
INITIALIZE, INITIALIZED, DATA_END = 0, 1, 7
ASYNC_SIZE, ASYNC_SIZE_IS, ASYNC_INITIALIZE, ASYNC_INITIALIZED = 15, 16, 17, 18


class PowerSupply:
    """Stand in for one; each answer leaves in one write."""

    voltage = b"0"

    def obey(self, command):
        """Set the voltage, or tell it."""
        if command == b"VOLT?":
            return self.voltage + b"\n"
        self.voltage = command.removeprefix(b"VOLT ")
        return b""

    def serve_socket(self, connection):
        with connection, connection.makefile("rb") as commands:
            for line in commands:
                connection.sendall(self.obey(line.strip()))

    def serve_hislip(self, connection):
        """Serve one of the two connections of a session: commands come on the synchronous one."""
        with connection, connection.makefile("rb") as messages:
            while header := messages.read(struct.calcsize(HEADER)):
                _, kind, _, parameter, length = struct.unpack(HEADER, header)
                payload = messages.read(length)
                if kind == INITIALIZE:
                    reply = INITIALIZED, 0x0100_0001, b""
                elif kind == ASYNC_INITIALIZE:
                    reply = ASYNC_INITIALIZED, 0, b""
                elif kind == ASYNC_SIZE:
                    reply = ASYNC_SIZE_IS, 0, payload
                elif answer := self.obey(payload.strip()):
                    reply = DATA_END, parameter, answer
                else:
                    continue
                kind, parameter, payload = reply
                connection.sendall(struct.pack(HEADER, b"HS", kind, 0, parameter, len(payload)) + payload)


def listen(listener, serve):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=[connection], daemon=True).start()


instrument = PowerSupply()
serve, name = {
    "socket": (instrument.serve_socket, "TCPIP::127.0.0.1::{}::SOCKET"),
    "hislip": (instrument.serve_hislip, "TCPIP::127.0.0.1::hislip0,{}::INSTR"),
}[sys.argv[1]]
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=listen, args=[listener, serve], daemon=True).start()
manager = pyvisa.ResourceManager("@py")
for _ in range(2):
    supply = manager.open_resource(
        name.format(listener.getsockname()[1]), read_termination="\n", write_termination="\n"
    )
    for number in range(30):
        supply.write(f"VOLT {number}")
        assert supply.query("VOLT?") == str(number)
    supply.close()
