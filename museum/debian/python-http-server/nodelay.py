"""What `python3 -m http.server --protocol HTTP/1.1` does, with TCP_NODELAY set on accepted connections."""

from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
