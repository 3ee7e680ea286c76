"""The software that names itself in the packets, and the name of TCP_NODELAY in that software."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.take import records
from nagle_lab.diagnosis.result.result import Endpoint, NamedEnd, Result
from nagle_lab.diagnosis.result.which_connections import LOOKED_AT, busiest
from nagle_lab.packet.segment import decode, packed_address

_MOST_FRAMES = 2_000  # that are looked through for a header
_WINDOW = 1 << 16  # bytes looked through at once: the header is mostly among the first packets


@dataclass(frozen=True)
class NodelaySetting:
    """What sets TCP_NODELAY in some software or language."""

    software: str
    setting: str


# How a reply's Server or a request's User-Agent begins, or the first line of SSH (RFC 4253 §4.2) or of rsync; a
# short snaplen leaves enough of it.
_NAMES = re.compile(
    rb"(?:\r\n(?:server|user-agent|x-powered-by): *|(?=SSH-2\.0-)|(?=@RSYNCD: ))([\x20-\x7e]{2,40})", re.IGNORECASE
)
NGINX = NodelaySetting("nginx", "tcp_nodelay on;  # for static files sendfile on; tcp_nopush on; as well")
APACHE = NodelaySetting("Apache httpd", "on by default: look for a module or proxy that switches it off")
PYTHON = NodelaySetting("Python", "sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
# Who wrote an application for a server has no socket. What its listening one has set, those that it accepts inherit.
HTTP_SERVER = NodelaySetting("http.server", "disable_nagle_algorithm = True  # in the handler's class")
GEVENT = NodelaySetting(
    "gevent", "server.init_socket(); server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)"
)
UVICORN = NodelaySetting("uvicorn", "uvicorn --loop uvloop  # pip install uvloop, which sets it by itself")
HYPERCORN = NodelaySetting("Hypercorn", "set by itself from 0.17.3 on, and in 0.17.0: upgrade")
NODE = NodelaySetting("Node.js", "socket.setNoDelay(true)  // in an agent: new http.Agent({ noDelay: true })")
GO = NodelaySetting("Go", "on by default: look for conn.SetNoDelay(false)")
JAVA = NodelaySetting("Java", "socket.setTcpNoDelay(true)  // HttpServer: -Dsun.net.httpserver.nodelay=true")
DOTNET = NodelaySetting(".NET", "socket.NoDelay = true")
RUBY = NodelaySetting("Ruby", "socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)")
WEBRICK = NodelaySetting("WEBrick", "server.listeners.each { |one| one.setsockopt(:TCP, :NODELAY, 1) }")
RUST = NodelaySetting("Rust", "stream.set_nodelay(true)  // also in tokio; hyper-util: HttpConnector::set_nodelay")
PHP = NodelaySetting(
    "PHP", "stream context option tcp_nodelay of socket; or socket_set_option($socket, SOL_TCP, TCP_NODELAY, 1)"
)
PERL = NodelaySetting("Perl", "setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1)  # use Socket qw(:all)")
ERLANG = NodelaySetting("Erlang and Elixir", "gen_tcp options: {nodelay, true}  % nodelay: true")
C = NodelaySetting("C and C++", "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);")
SSH = NodelaySetting("OpenSSH", "set by itself for a session; by older releases not for forwarding alone (ssh -N -L)")
RSYNC = NodelaySetting("rsync", "rsync --sockopts=TCP_NODELAY; in rsyncd.conf: socket options = TCP_NODELAY")
HAPROXY = NodelaySetting("HAProxy", "on by default; option http-no-delay for interactive traffic")
COMMON = (NGINX, HAPROXY, PYTHON, NODE, JAVA, GO, RUST, C, RUBY)
"""The settings that are named if the software is not known."""

_SUFFIXES = {
    ".py": PYTHON, ".js": NODE, ".cjs": NODE, ".mjs": NODE, ".ts": NODE, ".go": GO, ".rs": RUST, ".java": JAVA,
    ".rb": RUBY, ".php": PHP, ".pl": PERL, ".pm": PERL, ".erl": ERLANG, ".ex": ERLANG, ".exs": ERLANG,
    ".c": C, ".cc": C, ".cpp": C, ".cxx": C, ".h": C, ".hpp": C,
}  # fmt: skip


def setting_by_file(name: str) -> NodelaySetting | None:
    """The setting in the language of a source file; None for an unknown language."""
    return _SUFFIXES.get(Path(name).suffix)


_LIBRARIES = {
    "uvicorn/": UVICORN,
    "hypercorn/": HYPERCORN,
    "gevent/pywsgi.py": GEVENT,
    "webrick": WEBRICK,
    "http/server.py": HTTP_SERVER,
}


def setting_by_library(name: str) -> NodelaySetting | None:
    """The setting in the library whose source file has this name; None for a library without one of its own."""
    return next((setting for library, setting in _LIBRARIES.items() if name.startswith(library)), None)


_PYTHON = (
    "python|pytest|uvicorn|hypercorn|gunicorn|werkzeug|wsgi|aiohttp|waitress|gevent|tornado|cherrypy|cheroot|daphne|"
    "twisted"
)
_SAY = tuple(
    (re.compile(rf"\b(?:{names})", re.IGNORECASE | re.ASCII), setting)
    for names, setting in (
        ("nginx|openresty|tengine", NGINX),
        ("apache-httpclient|apache-sshd|apache-coyote|java|okhttp|jetty|tomcat|netty", JAVA),
        ("apache", APACHE),
        (_PYTHON, PYTHON),
        ("node\\b|npm|npx|express|axios|undici|next\\.js", NODE),
        ("go-http-client|caddy|traefik|fasthttp", GO),
        ("kestrel|dotnet", DOTNET),
        ("ruby|webrick|puma|thin\\b|unicorn", RUBY),
        ("hyper\\b|reqwest|actix|rocket\\b(?!\\.chat)|ureq|rust|cargo", RUST),
        ("php|guzzle", PHP),
        ("perl|mojolicious|starman", PERL),
        ("erlang|elixir|beam\\.smp|erts_|cowboy|mochiweb|yaws", ERLANG),
        ("openssh|sshd?(?:-session|-auth)?$", SSH),
        ("rsync", RSYNC),
    )
)


def software_seen(files: Sequence[Path], result: Result) -> NodelaySetting | None:
    """The software of the end that held most, or without a stall of the busiest server; None if it is not known.

    Data that the end itself sent names it: an HTTP header, or the first line of SSH or rsync. A relay may only have
    passed it on. Raises NagleLabError if the capture cannot be read.
    """
    end = _end(result)
    if not files or end is None:
        return None
    senders = {(packed_address(each.ip), each.port) for each in (end, *_translated(result, end))}
    with open_capture([str(file) for file in files], window_bytes=_WINDOW, sha256=False) as capture:
        for record in islice(records(capture), _MOST_FRAMES):
            segment = decode(*record)
            if isinstance(segment, int) or not segment.length:
                continue
            if not senders.isdisjoint(((segment.src, None), (segment.src, segment.sport))):
                for said in _NAMES.findall(record.data):
                    if setting := setting_by_name(said.decode("ascii")):
                        return setting
    return None


def _end(result: Result) -> NamedEnd | Endpoint | None:
    if result.summary.held_ends:
        return result.summary.held_ends[0]
    connection = busiest(result)
    return connection.server if connection else None


def _translated(result: Result, end: NamedEnd | Endpoint) -> Iterator[Endpoint]:
    """The addresses and ports that a server's segments carry where they are translated."""
    for connection in islice(result.connections, LOOKED_AT):
        if connection.answers_as and (connection.server.ip, connection.server.port) == (end.ip, end.port):
            yield connection.answers_as


def setting_by_name(command: str) -> NodelaySetting | None:
    """The setting for a process of that name, such as "python3"; None for an unknown one."""
    return next((setting for pattern, setting in _SAY if pattern.search(command)), None)
