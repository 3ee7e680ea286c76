"""Store 30 short messages with imaplib; with the argument "nodelay", set TCP_NODELAY on the connection first."""

import imaplib
import socket
import sys
import time

client = imaplib.IMAP4("127.0.0.1", 8143)
if sys.argv[1:] == ["nodelay"]:
    client.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.login("me", "secret")
for _ in range(30):
    status, _ = client.append(
        "INBOX", None, imaplib.Time2Internaldate(time.time()), b"Subject: hello\r\n\r\nHello\r\n"
    )
    assert status == "OK"
client.logout()
