"""What makes it hard to say which call wrote which segment, in real programs: named right, or not named."""

import platform
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.experiments.writes.joining import UNORDERED
from nagle_lab.experiments.writes.recorded import with_recorded
from nagle_lab.guard.tracing import strace_command
from support.traced import traced

pytestmark = [pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why), pytest.mark.long]

# Asks whatever listens; what listens is put in by each test, or is a program that is given the listening socket.
CLIENT = """
import os, socket, subprocess, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
BYTES, TLS = {bytes}, {tls}

def ask():
    with socket.create_connection(listener.getsockname()) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s = plain
        if TLS:
            import ssl
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            s = context.wrap_socket(plain)
        for _ in range(30):
            s.sendall(bytes(100))
            got = 0
            while got < BYTES:
                got += len(s.recv(65536))
        if TLS:
            os._exit(0)  # without the closing words of TLS

"""
SERVED = """
if os.fork() == 0:
    ask()
    os._exit(0)
{server}
"""
C = """
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static char buffer[4096];
"""


def named(folder: Path, text: str) -> Writes:
    (folder / "program.py").write_text(text)
    run = traced(folder, [sys.executable, str(folder / "program.py")], limit_s=60)
    assert run.writes, (run.result.verdict, run.result.reason)
    return run.writes


def writes(folder: Path, server: str, *, size: int = 800, tls: bool = False) -> Writes:
    client = CLIENT.replace("{bytes}", str(size)).replace("{tls}", str(tls))
    return named(folder, client + SERVED.replace("{server}", textwrap.dedent(server)))


def writes_of_c(folder: Path, source: str, *options: str, tls: bool = False) -> Writes:
    """Of a program in C that is given the number of its listening socket."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    (folder / "server.c").write_text(C + textwrap.dedent(source))
    built = ["cc", "-g", "-O0", "-w", "-o", folder / "server", folder / "server.c", *options]
    subprocess.run(built, check=True, capture_output=True)
    start = f"subprocess.Popen([{str(folder / 'server')!r}, str(listener.fileno())], pass_fds=[listener.fileno()])"
    client = CLIENT.replace("{bytes}", "800").replace("{tls}", str(tls))
    return named(folder, f"{client}\n{start}\nask()\n")


def places(found: Writes, file: Path) -> list[tuple[str, str]]:
    """Of the most frequent pair: the call, and the text of its line."""
    lines = file.read_text().splitlines()
    ends = (found.groups[0].trigger, found.groups[0].held)
    return [(one.by or one.call, lines[one.program.line - 1].strip()) for one in ends if one.program]


def all_named(found: Writes, sizes: tuple[int, int]) -> None:
    assert found.named == found.stalls >= 15 and not found.problem, found.problem
    assert (found.groups[0].trigger.bytes, found.groups[0].held.bytes) == sizes


def test_a_socket_that_is_passed_to_a_process_that_is_not_a_child(tmp_path):
    """SCM_RIGHTS: the one that accepts is not the one that writes."""
    found = writes(
        tmp_path,
        """
        here, there = socket.socketpair(socket.AF_UNIX)
        if os.fork() == 0:
            _, (fd,), _, _ = socket.recv_fds(there, 1, 1)
            peer = socket.socket(fileno=fd)
            while peer.recv(4096):
                peer.sendall(bytes(200))
                peer.sendall(bytes(600))
            os._exit(0)
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        socket.send_fds(here, [b"!"], [peer.fileno()])
        peer.close()
        os.wait()
        """,
    )
    all_named(found, (200, 600))
    assert places(found, tmp_path / "program.py") == [
        ("sendall", "peer.sendall(bytes(200))"), ("sendall", "peer.sendall(bytes(600))"),
    ]  # fmt: skip
    (cleared,) = [one for one in found.options if one.on == "socket"]
    assert cleared.write.process != found.groups[0].held.process, "who accepted did not write"


def test_threads_that_write_to_one_socket_at_once(tmp_path):
    """Each pair that is named is right: header and body are known by their size."""
    found = writes(
        tmp_path,
        """
        peer, _ = listener.accept()
        both = threading.Barrier(3)
        def write(size):
            while True:
                both.wait()
                peer.sendall(bytes(size))
                both.wait()
        for size in (200, 600):
            threading.Thread(target=write, args=[size], daemon=True).start()
        while peer.recv(4096):
            both.wait()
            both.wait()
        """,
    )
    assert found.stalls >= 15
    assert found.pairs or UNORDERED in found.problem
    for pair in found.pairs:
        assert {pair.trigger.bytes, pair.held.bytes} == {200, 600}
        assert pair.trigger.thread != pair.held.thread and pair.between_ms >= 0


def test_splice_from_a_pipe(tmp_path):
    if not hasattr(__import__("os"), "splice"):
        pytest.skip("this Python has no os.splice")
    found = writes(
        tmp_path,
        """
        peer, _ = listener.accept()
        out, into = os.pipe()
        while peer.recv(4096):
            peer.sendall(bytes(200))
            os.write(into, bytes(600))
            os.splice(out, peer.fileno(), 600)
        """,
    )
    all_named(found, (200, 600))
    assert found.groups[0].held.call == "splice"


def test_writes_that_the_kernel_takes_in_part(tmp_path):
    """A small send buffer: of a body of 300 kB each send() takes a part; the stalls' bytes are still known."""
    found = writes(
        tmp_path,
        """
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        peer, _ = listener.accept()
        peer.setblocking(False)
        import select
        def all_of(data):
            while data:
                select.select([], [peer], [])
                data = data[peer.send(data):]
        while select.select([peer], [], []) and peer.recv(4096):
            all_of(bytes(300_000))
            all_of(bytes(200))
            all_of(bytes(600))
        """,
        size=300_800,
    )
    assert found.named >= 0.9 * found.stalls > 0, found.problem
    sizes = {write.bytes for pair in found.pairs for write in (pair.trigger, pair.held)}
    assert sizes & {200, 600}


# Drops every eighth segment with data that arrives: requests, triggers and what was held.
LOSES = """
table inet lossy {
  chain in { type filter hook input priority 0; meta length > 130 numgen inc mod 8 == 0 drop; }
}
"""


def loss_refused() -> str:
    """Why no segment can be dropped here; empty where that works."""
    command = ["unshare", "--net", "nft", LOSES]
    missing = next((name for name in ("unshare", "nft") if not shutil.which(name)), "")
    if missing:
        return f"{missing} is not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["nft failed"])[0] if done.returncode else ""


@pytest.mark.skipif(bool(why := loss_refused()), reason=why)
def test_segments_that_the_network_loses(tmp_path):
    """Retransmissions have bytes that were counted already: all stalls are named, by the guard and by --strace."""
    found = writes(
        tmp_path,
        f"""
        peer, _ = listener.accept()
        subprocess.run(["nft", {LOSES!r}], check=True)
        while peer.recv(4096):
            peer.sendall(bytes(200))
            peer.sendall(bytes(600))
        """,
    )
    all_named(found, (200, 600))
    capture, trace = (tmp_path / "recorded" / "traced" / name for name in ("capture.pcapng", "strace.txt"))
    result = analyze(capture)
    (connection,) = result.connections
    sent = {end: connection.sent[end].payload_bytes for end in ("client", "server")}
    assert sent["client"] > 30 * 100 and sent["server"] >= 30 * 800 + 2 * 200, f"not retransmitted: {sent}"
    beside = with_recorded([capture], result, trace).writes
    assert beside and (beside.named, beside.pairs) == (found.named, found.pairs)


@pytest.fixture
def certificate(tmp_path):
    """A self-signed one with its key, in one file."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    key, file = tmp_path / "key.pem", tmp_path / "both.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=here",
        "-keyout",
        key,
        "-out",
        file,
    ]
    subprocess.run(made, check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    return file


def test_tls_in_python(tmp_path, certificate):
    """The program's line is that of its write, and the bytes are those that the kernel got: more."""
    found = writes(
        tmp_path,
        f"""
        import ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain({str(certificate)!r})
        plain, _ = listener.accept()
        peer = context.wrap_socket(plain, server_side=True)
        while peer.recv(4096):
            peer.sendall(bytes(200))
            peer.sendall(bytes(600))
        """,
        tls=True,
    )
    assert found.named >= 15 and not found.problem, found.problem
    group = found.groups[0]
    assert 200 < group.trigger.bytes < 300 and 600 < group.held.bytes < 700, "records of TLS"
    texts = [text for _, text in places(found, tmp_path / "program.py")]
    assert texts == ["peer.sendall(bytes(200))", "peer.sendall(bytes(600))"]
    both = [(one.by, one.program) for group in found.groups for one in (group.trigger, group.held)]
    assert all(program for _, program in both), f"also what the handshake wrote: {both}"


def test_tls_by_openssl_in_c(tmp_path, certificate):
    if not Path("/usr/include/openssl/ssl.h").exists() or not strace_command.has_stacks():
        pytest.skip("there are no headers of OpenSSL, or this strace prints no stacks")
    found = writes_of_c(
        tmp_path,
        """
        #include <openssl/ssl.h>
        static void header(SSL *s) { SSL_write(s, buffer, 200); }
        static void body(SSL *s) { SSL_write(s, buffer, 600); }
        int main(int count, char **words) {
            SSL_CTX *c = SSL_CTX_new(TLS_server_method());
            SSL_CTX_use_certificate_file(c, "CERTIFICATE", SSL_FILETYPE_PEM);
            SSL_CTX_use_PrivateKey_file(c, "CERTIFICATE", SSL_FILETYPE_PEM);
            SSL *s = SSL_new(c);
            SSL_set_fd(s, accept(atoi(words[1]), 0, 0));
            SSL_accept(s);
            while (SSL_read(s, buffer, sizeof buffer) > 0) {
                header(s);
                body(s);
            }
        }
        """.replace("CERTIFICATE", str(certificate)),
        "-lssl", "-lcrypto", tls=True,
    )  # fmt: skip
    assert found.named >= 15 and not found.problem, found.problem
    functions = [write.program.function for write in (found.groups[0].trigger, found.groups[0].held) if write.program]
    assert functions == ["header", "body"], "before the encryption"


def test_messages_that_sendmmsg_sends_together_have_their_lengths(tmp_path):
    """Of two messages in one call the second is held, and the body with it: so one call made both segments."""
    found = writes_of_c(
        tmp_path,
        """
        #include <sys/uio.h>
        int main(int count, char **words) {
            int peer = accept(atoi(words[1]), 0, 0);
            struct iovec parts[2] = {{buffer, 120}, {buffer, 80}};
            while (read(peer, buffer, sizeof buffer) > 0) {
                struct mmsghdr messages[2] = {{{.msg_iov = parts, .msg_iovlen = 1}},
                                              {{.msg_iov = parts + 1, .msg_iovlen = 1}}};
                sendmmsg(peer, messages, 2, 0);
                send(peer, buffer, 600, 0);
            }
        }
        """,
        "-D_GNU_SOURCE",
    )
    all_named(found, (200, 200))
    assert found.groups[0].trigger.call == found.groups[0].held.call == "sendmmsg"


def test_io_uring_is_said(tmp_path):
    """The header by a call, the body by io_uring: no pair is named, and the line says why."""
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the numbers of these calls are those of x86-64 and arm64")
    probe = "import ctypes, sys; b = (ctypes.c_char * 120)(); sys.exit(ctypes.CDLL(None).syscall(425, 4, b) < 0)"
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        pytest.skip("this kernel allows no io_uring")
    found = writes_of_c(
        tmp_path,
        """
        #include <linux/io_uring.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        int main(int count, char **words) {
            struct io_uring_params p = {0};
            int ring = syscall(__NR_io_uring_setup, 4, &p);
            char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED, ring, IORING_OFF_SQ_RING);
            char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * 16, 3, MAP_SHARED, ring, IORING_OFF_CQ_RING);
            struct io_uring_sqe *sqe = mmap(0, p.sq_entries * 64, 3, MAP_SHARED, ring, IORING_OFF_SQES);
            int peer = accept(atoi(words[1]), 0, 0);
            while (read(peer, buffer, sizeof buffer) > 0) {
                send(peer, buffer, 200, 0);
                memset(sqe, 0, sizeof *sqe);
                sqe->opcode = IORING_OP_SEND;
                sqe->fd = peer;
                sqe->addr = (unsigned long)buffer;
                sqe->len = 600;
                unsigned *tail = (unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask);
                ((unsigned *)(sq + p.sq_off.array))[*tail & mask] = 0;
                __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
                syscall(__NR_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
                unsigned *head = (unsigned *)(cq + p.cq_off.head);
                __atomic_store_n(head, *(unsigned *)(cq + p.cq_off.tail), __ATOMIC_RELEASE);
            }
        }
        """,
    )
    assert found.stalls >= 15 and found.named == 0
    assert "io_uring was used, whose writes strace does not see" in found.problem
