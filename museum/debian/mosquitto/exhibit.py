"""Start Mosquitto, then publish to a topic that the same connection subscribed to, with acknowledgement (QoS 1)."""

import socket
import subprocess
import sys
import time


def connect():
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", 1883))
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise SystemExit("the broker did not start")


def packet(kind, body):
    return bytes([kind, len(body)]) + body


def string(text):
    return len(text).to_bytes(2, "big") + text


def receive(reader):
    kind, length = reader.read(2)
    reader.read(length)
    return kind >> 4


def main():
    broker = subprocess.Popen(["mosquitto", "-c", sys.argv[1]], stderr=subprocess.DEVNULL)
    try:
        for name in b"one", b"two":
            with connect() as connection, connection.makefile("rb") as reader:
                connection.sendall(packet(0x10, string(b"MQTT") + bytes([4, 2, 0, 60]) + string(name)))
                assert receive(reader) == 2
                connection.sendall(packet(0x82, bytes([0, 1]) + string(b"topic") + bytes([0])))
                assert receive(reader) == 9
                for _ in range(30):
                    connection.sendall(packet(0x32, string(b"topic") + bytes([0, 2]) + b"hello"))
                    assert {receive(reader), receive(reader)} == {3, 4}
    finally:
        broker.terminate()
        broker.wait()


main()
