"""nagle-lab guard --trace on programs that send by one helper of their own: its callers are named."""

import shutil
import subprocess
import sys

import pytest

from nagle_lab.guard.tracing import strace_command
from support.guarded import SERVER
from support.traced import NODE_ASKS, line, lines, program, traced, writes_of

pytestmark = pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why)

PYTHON = "def send(peer, size):\n    peer.sendall(b'x' * size)\n" + SERVER.replace(
    'peer.sendall(b"h" * 200)', "send(peer, 200)"
).replace('peer.sendall(b"b" * 600)', "send(peer, 600)")
NODE = """
const net = require("node:net");

const send = (socket, size) => socket.write(Buffer.alloc(size));

function reply(socket) {
  send(socket, 200);
  send(socket, 600);
}

const server = net.createServer({ noDelay: false }, (socket) => socket.on("data", () => reply(socket)));
"""
GO = """
package main

import (
	"io"
	"net"
)

//go:noinline
func send(peer *net.TCPConn, size int) {
	peer.Write(make([]byte, size))
}

func reply(peer *net.TCPConn) {
	send(peer, 200)
	send(peer, 600)
}

func serve(listener net.Listener) {
	peer, _ := listener.Accept()
	connection := peer.(*net.TCPConn)
	connection.SetNoDelay(false)
	for request := make([]byte, 100); ; reply(connection) {
		if _, err := io.ReadFull(connection, request); err != nil {
			return
		}
	}
}

func main() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go serve(listener)
	client, _ := net.Dial("tcp", listener.Addr().String())
	for i := 0; i < 30; i++ {
		client.Write(make([]byte, 100))
		io.ReadFull(client, make([]byte, 800))
	}
}
"""


def test_of_a_python_program(tmp_path):
    path = program(tmp_path, "server.py", PYTHON)
    assert lines(writes_of(tmp_path, [sys.executable, str(path), "two-writes"])) == [
        (line(path, "send(peer, 200)"), "serve", "sendall", 200),
        (line(path, "send(peer, 600)"), "serve", "sendall", 600),
    ]


@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node.js")
def test_of_a_node_program(tmp_path):
    path = program(tmp_path, "server.js", NODE + NODE_ASKS)
    assert lines(writes_of(tmp_path, ["node", str(path)])) == [
        (line(path, "send(socket, 200)"), "reply", "write", 200),
        (line(path, "send(socket, 600)"), "reply", "write", 600),
    ]


@pytest.mark.skipif(not shutil.which("go"), reason="there is no Go")
@pytest.mark.skipif(not strace_command.has_stacks(), reason="this strace prints no stacks")
def test_of_a_go_program(tmp_path):
    path = program(tmp_path, "server.go", GO)
    subprocess.run(["go", "build", "-o", tmp_path / "server", path], check=True)
    assert lines(writes_of(tmp_path, [str(tmp_path / "server")])) == [
        (line(path, "send(peer, 200)"), "main.reply", "write", 200),
        (line(path, "send(peer, 600)"), "main.reply", "write", 600),
    ]


@pytest.mark.skipif(not shutil.which("go"), reason="there is no Go")
@pytest.mark.skipif(not strace_command.has_stacks(), reason="this strace prints no stacks")
def test_of_a_go_program_that_is_deleted_when_it_ends(tmp_path):
    """As `go test` does with what it builds."""
    path = program(tmp_path, "server.go", GO)
    subprocess.run(["go", "build", "-ldflags=-s -w", "-o", tmp_path / "server", path], check=True)
    run = traced(
        tmp_path, ["sh", "-c", f"cp {tmp_path}/server {tmp_path}/made && {tmp_path}/made; rm {tmp_path}/made"]
    )
    assert run.writes and [place[:2] for place in lines(run.writes)] == [
        (line(path, "send(peer, 200)"), "main.reply"),
        (line(path, "send(peer, 600)"), "main.reply"),
    ]
    left = sorted(file.name for file in (run.guarded.folder / "stacks").iterdir())
    assert left == ["capture.pcapng", "outcome.json", "strace.txt"]
