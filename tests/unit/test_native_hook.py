"""The hook for native code: who called what writes, said right before the write."""

import re
import shutil
import subprocess

import pytest

from nagle_lab.guard.tracing import hooking

PROGRAM = """
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int pair[2];
__attribute__((noinline)) int header(void) { return write(pair[0], "a", 1) + 1; }
__attribute__((noinline)) int body(void) { return send(pair[0], "bc", 2, 0) + 1; }
int main(void) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    return header() + body() + write(1, "no socket", 9) != 14;
}
"""


@pytest.mark.skipif(
    not shutil.which("cc") or not shutil.which("strace"), reason="there is no C compiler, or no strace"
)
def test_the_hook_names_who_called(tmp_path):
    (tmp_path / "program.c").write_text(PROGRAM)
    program = tmp_path / "program"
    subprocess.run(["cc", "-O2", "-rdynamic", "-o", program, f"{program}.c"], check=True)
    preload = hooking.loading({"LD_PRELOAD": ""}, stacks=True)["LD_PRELOAD"]
    command = ["strace", "-e", "trace=rmdir", "-o", tmp_path / "marks", "-E", f"LD_PRELOAD={preload}", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no socket", "")
    marks = re.findall(r"/proc/nagle-lab;stack;\d+;([^\"]+)", (tmp_path / "marks").read_text())
    innermost = [re.match(rf"{program}\+[0-9a-f]+,(\w+)\+", mark) for mark in marks]
    assert [found and found[1] for found in innermost] == ["header", "body"]
    assert all(";+" in mark and ",main+" in mark for mark in marks)


def test_what_is_preloaded_already_stays_first():
    preload = hooking.loading({"LD_PRELOAD": "/lib/other.so"}, stacks=True)["LD_PRELOAD"]
    assert preload.startswith("/lib/other.so:/")
