"""Paste's HTTP server speaking HTTP/1.1, with its own request handler, or with one that sets TCP_NODELAY."""

import sys

from paste.httpserver import WSGIHandler, serve


class NoDelayHandler(WSGIHandler):
    disable_nagle_algorithm = True


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "300")])
    return [b"x" * 300]


handler = NoDelayHandler if sys.argv[1] == "nodelay" else WSGIHandler
serve(application, "127.0.0.1", "8000", handler=handler, protocol_version="HTTP/1.1")
