"""Publish with QoS 0 and then with QoS 1, 30 times on each of two connections, with paho-mqtt."""

import socket
import struct
import sys
import threading
import time

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion


def stand_in_for_a_broker(listener):
    """Acknowledge a connection and every message of QoS 1; one write per acknowledgement."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as packets:
        while head := packets.read(2):
            kind, length = head[0] >> 4, head[1]
            content = packets.read(length)
            if kind == 1:  # CONNECT, answered by CONNACK
                connection.sendall(b"\x20\x02\x00\x00")
            elif kind == 3 and head[0] & 6:  # PUBLISH with QoS 1, answered by PUBACK
                topic_length = struct.unpack_from("!H", content)[0]
                connection.sendall(b"\x40\x02" + content[2 + topic_length : 4 + topic_length])


def set_nodelay(client, userdata, sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


listener = socket.create_server(("127.0.0.1", 0))
for _ in range(2):
    threading.Thread(target=stand_in_for_a_broker, args=[listener], daemon=True).start()
    client = Client(CallbackAPIVersion.VERSION2)
    if sys.argv[1] == "nodelay":
        client.on_socket_open = set_nodelay
    client.connect(*listener.getsockname())
    client.loop_start()
    while not client.is_connected():
        time.sleep(0.01)
    for number in range(30):
        client.publish("boiler/temperature", number, qos=0)
        alarm = client.publish("boiler/alarm", number, qos=1)
        alarm.wait_for_publish(5)
        assert alarm.is_published()
    client.disconnect()
    client.loop_stop()
