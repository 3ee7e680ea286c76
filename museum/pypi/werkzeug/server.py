"""Werkzeug's development server, with its own request handler, or with one that sets TCP_NODELAY."""

import sys

from werkzeug.serving import WSGIRequestHandler, run_simple


class NoDelayHandler(WSGIRequestHandler):
    disable_nagle_algorithm = True


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "300")])
    return [b"x" * 300]


handler = NoDelayHandler if sys.argv[1] == "nodelay" else WSGIRequestHandler
run_simple("127.0.0.1", 8000, application, threaded=True, request_handler=handler)
