"""The part of a Kubernetes API server that `kubectl debug` and `kubectl exec` need, with one pod."""

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

RUNNING = {"running": {"startedAt": "2026-11-23T00:00:00Z"}}
STATUS = {"name": "web", "image": "web:1", "imageID": "", "ready": True, "restartCount": 0, "state": RUNNING}
ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
STDOUT, ERROR = 1, 3  # channels of v5.channel.k8s.io


class ApiServer(ThreadingHTTPServer):
    """Its pod is web-0 in shop; every command executed in it except ``true`` prints ``printed``.

    Attributes
    ----------
    added : ephemeral containers, as requested
    executed : container and command
    """

    def __init__(self, printed: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.printed = printed
        self.added: list[dict[str, Any]] = []
        self.executed: list[tuple[str, list[str]]] = []

    def pod(self) -> dict[str, Any]:
        """As it is now."""
        spec = {"containers": [{"name": "web", "image": "web:1"}], "ephemeralContainers": self.added}
        status = {"phase": "Running", "containerStatuses": [STATUS]}
        about = {"name": "web-0", "namespace": "shop", "uid": "1", "resourceVersion": "1"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": status}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Describe the API and the pod, and execute commands."""
        path, pods = urlsplit(self.path).path, "/api/v1/namespaces/shop/pods/web-0"
        names = [{"name": name, "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get", "patch"]}
                 for name in ("pods", "pods/ephemeralcontainers")]  # fmt: skip
        answers = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": names},
            pods: self.server.pod(),
        }
        if path == f"{pods}/exec" and self.headers.get("Upgrade", "").lower() == "websocket":
            self._execute()
        elif path in answers:
            self._answer(200, answers[path])
        else:
            self._answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})

    def do_PATCH(self) -> None:
        """Ephemeral containers."""
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.added += patch["spec"]["ephemeralContainers"]
        self._answer(200, self.server.pod())

    def _answer(self, code: int, what: dict[str, Any]) -> None:
        body = json.dumps(what).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _execute(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        self.server.executed.append((asked["container"][0], asked["command"]))
        key = self.headers["Sec-WebSocket-Key"].encode() + ACCEPT
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        time.sleep(0.3)  # kubectl reads while it still makes its streams, and drops what is for one that is not there
        if asked["command"] != ["true"]:
            self._frame(2, bytes([STDOUT]) + self.server.printed)
        self._frame(2, bytes([ERROR]) + json.dumps({"metadata": {}, "status": "Success"}).encode())
        self._frame(8, (1000).to_bytes(2, "big"))
        while self.rfile.read(1):  # read the answer, too, because unread data resets the connection
            pass
        self.close_connection = True

    def _frame(self, kind: int, content: bytes) -> None:
        """Of RFC 6455, 5.2."""
        size = len(content)
        short, more = (size, 0) if size < 126 else (126, 2) if size < 1 << 16 else (127, 8)
        self.wfile.write(bytes([0x80 | kind, short]) + (size.to_bytes(more, "big") if more else b"") + content)


@contextmanager
def api_server(printed: bytes, folder: Path) -> Iterator[tuple[ApiServer, Path]]:
    """A running one, and the file for KUBECONFIG."""
    with ApiServer(printed) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = folder / "kubeconfig"
        address = f"http://127.0.0.1:{server.server_port}"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }))  # fmt: skip
        try:
            yield server, config
        finally:
            server.shutdown()
