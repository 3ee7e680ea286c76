"""A WebSocket server on Tornado that answers each message with two: that it was accepted, and the result."""

import asyncio
import sys

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketHandler


class Handler(WebSocketHandler):
    def open(self):
        if sys.argv[1] == "nodelay":
            self.set_nodelay(True)

    def on_message(self, message):
        self.write_message("accepted")
        self.write_message(message)


async def main():
    sockets = bind_sockets(0, "127.0.0.1")
    HTTPServer(Application([("/", Handler)])).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
