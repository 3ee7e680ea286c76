"""A WSGI application that yields its answer in two parts."""


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "600")])
    yield b"x" * 300
    yield b"y" * 300
