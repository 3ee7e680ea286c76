#!/usr/bin/python3
"""An application server: reads a request's whole body, then answers 200 in one write, on a connection kept alive."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 9000


class Upload(BaseHTTPRequestHandler):
    """One connection from the proxy."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the body, however slowly it arrives, and answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()  # status and headers leave here, in one write

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Log nothing for a successful request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Upload).serve_forever()
