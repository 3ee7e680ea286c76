"""The programs of docs/guard.md and of the pages for each language stall as shown, and the fix shown mends them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.guarded import guard
from support.repository import REPOSITORY

pytestmark = pytest.mark.long
DOCS = REPOSITORY / "docs"
_FILE = re.compile(
    r"`([\w/]+\.[\w.]+)`[^\n]*:\n\n```(?:python|js|go|rust|java)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


def write_program(page: str, folder: Path) -> None:
    """Write the files that a page shows, each under the name in the line above its listing; the first of a name."""
    for name, text in _FILE.findall((DOCS / page).read_text()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text)


def mend(folder: Path, file: str, before: str, after: str) -> None:
    """Replace what the page says is to be replaced."""
    text = (folder / file).read_text()
    assert text.count(before) == 1
    (folder / file).write_text(text.replace(before, after))


def make(folder: Path, *command: str) -> None:
    """What has to be done outside, before the guard."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def need(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not on this machine")


def assert_red_then_green(tmp_path: Path, folder: Path, command: list[str], *fix: str) -> None:
    """The program stalls; with the fix it does not, and the option is what protects it."""
    stalls = guard(tmp_path, command=command, cwd=folder)
    assert (stalls.code, stalls.report["verdict"], stalls.report["status"]) == (1, "STALL", 0), stalls.err
    mend(folder, *fix)
    mended = guard(tmp_path, "--both-sides", command=command, cwd=folder)
    assert (mended.code, mended.report["verdict"], mended.report["status"]) == (0, "CLEAN", 0), mended.err
    assert mended.report["both_sides"]["protection"] == "option"


def test_five_minutes(tmp_path):
    folder = tmp_path / "five"
    write_program("guard.md", folder)
    line = "class Handler(socketserver.StreamRequestHandler):\n"
    fix = ("server.py", line, f"{line}    disable_nagle_algorithm = True  # sets TCP_NODELAY\n")
    assert_red_then_green(tmp_path, folder, [sys.executable, "test_server.py"], *fix)


def test_node(tmp_path):
    need("node")
    folder = tmp_path / "node"
    write_program("guard-node.md", folder)
    line = "net.createServer((socket) => {"
    fix = ("server.js", line, "net.createServer({ noDelay: true }, (socket) => {")
    assert fix[2] in (DOCS / "guard-node.md").read_text()
    assert_red_then_green(tmp_path, folder, ["node", "--test"], *fix)


def test_go(tmp_path):
    need("go")
    folder = tmp_path / "go"
    write_program("guard-go.md", folder)
    (folder / "go.mod").write_text("module greeter\n\ngo 1.22\n")
    make(folder, "go", "vet", "./...")
    fix = ("server.go", '\t\tconn.(*net.TCPConn).SetNoDelay(false) // "fewer packets"\n', "")
    assert_red_then_green(tmp_path, folder, ["go", "test", "-count=1", "./..."], *fix)


def test_rust(tmp_path):
    need("cargo")
    folder = tmp_path / "rust"
    write_program("guard-rust.md", folder)
    (folder / "Cargo.toml").write_text('[package]\nname = "greeter"\nversion = "0.1.0"\nedition = "2021"\n')
    make(folder, "cargo", "test", "--no-run")
    line = "pub fn serve(mut stream: TcpStream) -> Result<()> {\n"
    fix = ("src/lib.rs", line, f"{line}    stream.set_nodelay(true)?;\n")
    assert_red_then_green(tmp_path, folder, ["cargo", "test", "--offline"], *fix)


def test_java(tmp_path):
    """Without Maven and JUnit, which come from a registry: the page's server, asked as the page's test does."""
    need("javac")
    folder = tmp_path / "java"
    write_program("guard-java.md", folder)
    server = folder / "src/main/java/Greeter.java"
    test = (folder / "src/test/java/GreeterTest.java").read_text()
    body = re.search(r"void answersOnOneConnection\(\) throws Exception \{\n(.*?)\n    \}", test, re.DOTALL)
    assert body
    imports = "".join(line + "\n" for line in test.splitlines() if line.startswith("import java."))
    asks = re.sub(r'assertEquals\("hello", (.*)\);', r'if (!"hello".equals(\1)) throw new Error();', body[1])
    assert asks != body[1]
    main = f"public static void main(String[] none) throws Exception {{\n{asks}\n}}"
    (folder / "Ask.java").write_text(f"{imports}class Ask {{ {main} }}\n")
    make(folder, "javac", "-d", str(folder), str(server), "Ask.java")
    stalls = guard(tmp_path, command=["java", "-cp", str(folder), "Ask"], cwd=folder)
    assert (stalls.code, stalls.report["verdict"]) == (1, "STALL"), stalls.err
    option = "-Dsun.net.httpserver.nodelay=true"
    assert f"<argLine>{option}</argLine>" in (DOCS / "guard-java.md").read_text()
    mended = guard(tmp_path, "--both-sides", command=["java", option, "-cp", str(folder), "Ask"], cwd=folder)
    assert (mended.code, mended.report["verdict"]) == (0, "CLEAN"), mended.err
