"""The hook for Ruby: the line that writes, said right before the write."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import hooking

PROGRAM = """\
require "socket"
one, other = UNIXSocket.pair
def header(to) = to.write("abc", "de")
def body(to) = to.puts("fg")
def options(to) = to.setsockopt(:SOCKET, :KEEPALIVE, true)
header(one)
body(one)
one.send("hi", 0)
one.write_nonblock("j")
options(one)
File.open(__FILE__) { |file| IO.copy_stream(file, one, 1) }
$stdout.puts("no socket #{other.readpartial(20)}")
"""


@pytest.mark.skipif(not shutil.which("ruby") or not shutil.which("strace"), reason="there is no Ruby, or no strace")
def test_the_hook_names_the_line_and_changes_nothing(tmp_path):
    program = tmp_path / "server.rb"
    program.write_text(PROGRAM)
    marks = tmp_path / "marks"
    options = hooking.loading({}, stacks=False)["RUBYOPT"]
    command = ["strace", "-f", "-e", "trace=rmdir", "-o", marks, "-E", f"RUBYOPT={options}", "ruby", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no socket abcdefg\nhijr\n", "")
    said = [mark.split(";") for mark in re.findall(r'/proc/nagle-lab;([^"]+)"', marks.read_text())]
    assert said.pop(0) == ["hook", "ruby"]
    assert [(words[2], words[1], words[3], words[4], words[5]) for words in said] == [
        ("write", "5", str(program), "3", "header"),
        ("write", "3", str(program), "4", "body"),
        ("send", "0", str(program), "8", "<main>"),
        ("write_nonblock", "0", str(program), "9", "<main>"),
        ("setsockopt", "0", str(program), "5", "options"),
        ("copy_stream", "0", str(program), "11", "<main>"),
    ]


def test_the_options_of_ruby_that_are_set_stay():
    assert hooking.hooked({"RUBYOPT": "-w"}, Path("/hooks"), None)["RUBYOPT"] == "-w -r/hooks/ruby.rb"
