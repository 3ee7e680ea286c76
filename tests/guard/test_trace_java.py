"""nagle-lab guard --trace on real Java programs: class, method, file and line of the two writes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import hooking, strace_command
from support.traced import line, lines, program, traced, writes_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why),
    pytest.mark.skipif(not shutil.which("javac"), reason="there is no JDK"),
]
QUICK = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")  # half the time for a tool of the JDK, which ends soon
SERVER = """
package org.example;

import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import javax.net.*;
import javax.net.ssl.*;

public class Server {
    static void reply(OutputStream out) throws IOException {
        out.write(new byte[200]);
        out.write(new byte[600]);
    }

    static void reply(SocketChannel out) throws IOException {
        out.write(ByteBuffer.allocate(200));
        out.write(new ByteBuffer[] {ByteBuffer.allocate(100), ByteBuffer.allocate(500)});
    }

    static void send(OutputStream out, int size) throws IOException {
        out.write(new byte[size]);
        out.flush();
    }

    static void buffered(OutputStream out) throws IOException {
        send(out, 200);
        send(out, 600);
    }

    static void serve(SocketChannel peer) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        for (; peer.read(buffer) > 0; buffer.clear()) reply(peer);
    }

    static void serve(Socket peer, String how) throws IOException {
        if (how.equals("lost")) {
            peer.setTcpNoDelay(true);
            peer.setTcpNoDelay(false);
        }
        OutputStream out = peer.getOutputStream();
        OutputStream buffered = new BufferedOutputStream(out);
        byte[] buffer = new byte[4096];
        while (peer.getInputStream().read(buffer) > 0)
            if (how.equals("buffered")) buffered(buffered);
            else if (how.equals("library")) com.library.Framing.send(out);
            else reply(out);
    }

    static void accept(Closeable listener, String how) {
        try {
            if (listener instanceof ServerSocketChannel) serve(((ServerSocketChannel) listener).accept());
            else serve(((ServerSocket) listener).accept(), how);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static void start(Runnable task, boolean virtual) throws Exception {
        if (virtual) {
            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
            return;
        }
        Thread thread = new Thread(task, "serving");
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        String how = arguments[0];
        SocketAddress at = new InetSocketAddress("127.0.0.1", 0);
        Closeable listener;
        if (how.equals("nio")) {
            ServerSocketChannel channel = ServerSocketChannel.open().bind(at);
            at = channel.getLocalAddress();
            listener = channel;
        } else {
            boolean secure = how.equals("tls");
            ServerSocketFactory servers =
                secure ? SSLServerSocketFactory.getDefault() : ServerSocketFactory.getDefault();
            ServerSocket socket = servers.createServerSocket();
            socket.bind(at);
            at = socket.getLocalSocketAddress();
            listener = socket;
        }
        start(() -> accept(listener, how), how.equals("virtual"));
        SocketFactory clients = how.equals("tls") ? SSLSocketFactory.getDefault() : SocketFactory.getDefault();
        try (Socket client = clients.createSocket()) {
            client.setTcpNoDelay(true);
            client.connect(at);
            DataInputStream in = new DataInputStream(client.getInputStream());
            for (int i = 0; i < 30; i++) {
                client.getOutputStream().write(new byte[100]);
                in.readFully(new byte[800]);
            }
        }
    }
}
"""
LIBRARY = """
package com.library;

public class Framing {
    public static void send(java.io.OutputStream out) throws java.io.IOException {
        out.write(new byte[200]);
        out.write(new byte[600]);
    }
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As Maven lays it out: sources, classes, and the jar of a library; "app one.jar" has them all."""
    folder = tmp_path_factory.mktemp("project")
    sources, classes = folder / "src" / "main" / "java" / "org" / "example", folder / "target" / "classes"
    sources.mkdir(parents=True)
    (folder / "library").mkdir()
    own, theirs = program(sources, "Server.java", SERVER), program(folder / "library", "Framing.java", LIBRARY)
    for command in (
        ["javac", *QUICK, "--release", "11", "-d", folder / "library", theirs],
        ["jar", "cf", folder / "library.jar", "-C", folder / "library", "com"],
        ["javac", *QUICK, "--release", "11", "-cp", folder / "library.jar", "-d", classes, own],
        ["jar", "cfe", folder / "app one.jar", "org.example.Server", "-C", classes, "."],
        ["jar", "uf", folder / "app one.jar", "-C", folder / "library", "com"],
    ):
        subprocess.run(command, check=True)
    return folder


def command(project: Path, how: str, *options: str) -> list[str]:
    return ["java", *options, "-cp", f"{project}/library.jar:{project}/target/classes", "org.example.Server", how]


def source(project: Path) -> Path:
    return project / "src" / "main" / "java" / "org" / "example" / "Server.java"


def of_java() -> int:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return int(found[1]) if (found := re.search(r'version "(\d+)', said)) else 0


@pytest.mark.parametrize(
    ("how", "method", "header", "body", "calls"),
    [
        ("streams", "reply", "out.write(new byte[200])", "out.write(new byte[600])", ["OutputStream.write"] * 2),
        ("nio", "reply", "allocate(200)", "allocate(500)", ["SocketChannelImpl.write", "SocketChannel.write"]),
        ("buffered", "buffered", "send(out, 200)", "send(out, 600)", ["BufferedOutputStream.flush"] * 2),
        ("virtual", "reply", "out.write(new byte[200])", "out.write(new byte[600])", ["OutputStream.write"] * 2),
    ],
)
def test_the_two_lines(tmp_path, project, how, method, header, body, calls):
    if how == "virtual" and of_java() < 21:
        pytest.skip(f"this is Java {of_java()}: virtual threads came with 21")
    writes = writes_of(tmp_path, command(project, how))
    path, (by_header, by_body) = source(project), calls
    if of_java() < 13:
        by_header, by_body = (call.replace("OutputStream", "SocketOutputStream") for call in calls)
    assert lines(writes) == [
        (line(path, header), f"Server.{method}", by_header, 200),
        (line(path, body), f"Server.{method}", by_body, 600),
    ]
    (group,) = writes.groups
    assert group.trigger.program.file == group.held.program.file == str(path), "the source, not the class"
    assert group.trigger.process != group.held.thread


def test_the_writes_of_the_program_before_tls_encrypts_them(tmp_path, project):
    keys = tmp_path / "keys"
    key = ["-alias", "a", "-keyalg", "EC", "-dname", "CN=a", "-storepass", "secret", "-keystore", keys]
    subprocess.run(["keytool", *QUICK, "-genkeypair", *key], check=True, capture_output=True)
    stores = [f"-Djavax.net.ssl.{what}Store={keys}" for what in ("key", "trust")]
    secrets = [f"-Djavax.net.ssl.{what}StorePassword=secret" for what in ("key", "trust")]
    writes = writes_of(tmp_path, command(project, "tls", *stores, *secrets))
    path = source(project)
    (header, _, _, header_size), (body, _, _, body_size) = lines(writes)
    assert (header, body) == (line(path, "out.write(new byte[200])"), line(path, "out.write(new byte[600])"))
    assert 200 < header_size < 300 and 600 < body_size < 700, "records, with their headers"


def test_a_jar_is_a_library(tmp_path, project):
    group = writes_of(tmp_path, command(project, "library")).groups[0]
    at = line(source(project), "Framing.send(out)")
    assert [(one.program.line, one.library.file, one.library.line, one.library.function) for one in
            (group.trigger, group.held)] == [
        (at, "com/library/Framing.java", 5, "Framing.send"), (at, "com/library/Framing.java", 6, "Framing.send"),
    ]  # fmt: skip


def test_the_jar_that_runs_is_the_program(tmp_path, project):
    writes = writes_of(tmp_path, ["java", "-jar", str(project / "app one.jar"), "streams"])
    assert writes.groups[0].held.program.file == str(source(project))
    assert lines(writes)[1][0] == line(source(project), "out.write(new byte[600])")


def test_a_single_file_of_source(tmp_path, project):
    (tmp_path / "com").mkdir()
    path = program(tmp_path, "Server.java", SERVER.replace("com.library.Framing.send", "reply"))
    writes = writes_of(tmp_path, ["java", str(path), "streams"])
    assert writes.groups[0].held.program.file == str(path)
    assert lines(writes)[1][:2] == (line(path, "out.write(new byte[600])"), "Server.reply")


def test_the_option_that_was_set_and_then_lost(tmp_path, project):
    writes = writes_of(tmp_path, command(project, "lost"))
    path, story = source(project), writes.nodelay
    set_at, cleared_at = line(path, "peer.setTcpNoDelay(true)"), line(path, "peer.setTcpNoDelay(false)")
    called = "(called at example/Server.java:"
    assert f"Server.java:{set_at} Server.serve {called}" in story
    assert f"Server.java:{cleared_at} Server.serve {called}" in story
    assert story.startswith("set at") and "and cleared at" in story


def test_options_that_the_program_has_are_kept_and_its_output_is_its_own(tmp_path, project):
    path = program(tmp_path, "Said.java", 'class Said { static { System.err.println(System.getProperty("mine")); } }')
    subprocess.run(["javac", *QUICK, "-d", tmp_path, path], check=True)
    text = 'class Main { public static void main(String[] a) throws Exception { Class.forName("Said"); ' \
           "org.example.Server.main(a); } }"  # fmt: skip
    main = program(tmp_path, "Main.java", text)
    classes = f"{tmp_path}:{project}/target/classes:{project}/library.jar"
    subprocess.run(["javac", *QUICK, "-cp", classes, "-d", tmp_path, main], check=True)
    output = tmp_path / "output.txt"
    run = traced(
        tmp_path, ["java", "-cp", classes, "Main", "streams"], environment={"JAVA_TOOL_OPTIONS": "-Dmine='a b'"},
        output=output,
    )  # fmt: skip
    assert run.writes and run.writes.named >= 15
    assert output.read_text().count("a b\n") >= 1


def test_where_the_hook_was_not_compiled(tmp_path, project, monkeypatch):
    monkeypatch.setattr(hooking, "agent_in", lambda _: None)
    group = writes_of(tmp_path, command(project, "streams")).groups[0]
    assert (group.held.call, group.held.bytes, group.held.program) == ("write", 600, None)
    if strace_command.has_stacks():
        assert group.held.why_no_line.startswith("Java's hook was not compiled: install a C compiler")


def test_a_java_that_takes_no_hook(tmp_path, project):
    group = writes_of(tmp_path, ["env", "-u", "JAVA_TOOL_OPTIONS", *command(project, "streams")]).groups[0]
    assert group.held.program is None
    if strace_command.has_stacks():
        assert "JAVA_TOOL_OPTIONS was unset" in group.held.why_no_line
