"""gevent's WSGI server, given an address, or a listening socket of one's own that has TCP_NODELAY set."""

import sys

from gevent import pywsgi, socket

ADDRESS = ("127.0.0.1", 8000)


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "300")])
    return [b"x" * 300]


if sys.argv[1] == "listener":
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(ADDRESS)
    listener.listen()
    where = listener
else:
    where = ADDRESS
pywsgi.WSGIServer(where, application, log=None).serve_forever()
