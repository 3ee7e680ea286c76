"""Analysis needs no privilege, no network and no disk to write on: a stranger's capture can do nothing through it."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.repository import REPOSITORY, STALLED
from support.rights import AS_ROOT, NOBODY, mount_refused, reachable

PROGRAM = "from nagle_lab.cli.main import main; main()"
LOOK = (  # what the process that analyses is, and what it can reach
    "import socket; s = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line);"
    "print([int(s[name], 16) for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapAmb')], s['NoNewPrivs'].strip(),"
    "s['Uid'].split()[0], [name for _, name in socket.if_nameindex()])\n"
    "for path in {paths!r}:\n"
    "    try: open(path, 'w'); print('written:', path)\n"
    "    except OSError: pass\n"
    "try: socket.create_connection(('127.0.0.1', 9), 1)\n"
    "except OSError as e: print(e.strerror)\n"
)


def as_nobody() -> bool:
    """Whether root can be asked to do it; root in a container that may not mount is no better than another user."""
    return mount_refused() is None


def confined(*arguments: str, out: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Python with no capability, in a network namespace with nothing up, nothing of the disk writable but ``out``.

    Root does it as nobody, here or by sudo; others in a user namespace, where the machine allows one.
    """
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    environment = {**os.environ, "TMPDIR": str(out or "/tmp")}
    environment.pop("HOME", None)
    if as_nobody():
        variables = [f"{name}={value}" for name, value in environment.items()]
        unshare = [*AS_ROOT, "env", "-i", *variables, "unshare", "--net", "--mount", "--propagation", "private"]
        drop += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        lines = reachable()
    else:
        unshare, lines = ["unshare", "--user", "--map-root-user", "--net", "--mount"], []
        asked = subprocess.run([*unshare, "mount", "--rbind", "/", "/"], capture_output=True, check=False)
        if asked.returncode:
            pytest.skip("this machine gives a user who is not root no namespace of his own (root can run this test)")
    each = "awk '{print $2}' /proc/mounts | sort -u | while read -r at"
    keep = shlex.quote(str(out))
    lines += ["mount --rbind / /", *([f"mount --bind {keep} {keep}"] if out else [])]
    lines += [
        f'{each}; do mount -o remount,bind,ro "$at" 2>/dev/null || true; done',
        *([f"mount -o remount,bind,rw {keep}"] if out else []),
    ]
    script = "\n".join(["set -eu", *lines, shlex.join([*drop, sys.executable, *arguments])])
    return subprocess.run([*unshare, "sh", "-c", script], capture_output=True, env=environment, check=False)


def test_who_analyses_here_can_do_nothing_else(tmp_path):
    """Else the test below would show nothing."""
    paths = [
        str(tmp_path / "x"),
        "/tmp/nagle-lab-x",
        "/var/tmp/nagle-lab-x",
        str(REPOSITORY / "x"),
        "/dev/shm/nagle-lab-x",
    ]
    tmp_path.chmod(0o777)
    done = confined("-c", LOOK.format(paths=paths))
    said = done.stdout.decode().splitlines()
    uid = NOBODY if as_nobody() else "0"  # of its own namespace
    assert said == [f"[0, 0, 0, 0] 1 {uid} ['lo']", "Network is unreachable"], done.stderr.decode()


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "text"])
def test_a_capture_is_diagnosed_without_privilege_network_or_disk(options):
    """The same bytes as with rights."""
    arguments = ["-c", PROGRAM, "analyze", str(STALLED), *options]
    plain = subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    assert b"STALL" in plain.stdout
    done = confined(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == plain.stdout


def test_a_report_needs_no_more_than_one_folder(tmp_path):
    """The one it is written to, which also takes Matplotlib's temporary files."""
    with tempfile.TemporaryDirectory() as name:  # that another user can reach
        out = Path(name)
        out.chmod(0o777)
        arguments = ["-c", PROGRAM, "analyze", str(STALLED), "--html"]
        subprocess.run([sys.executable, *arguments, tmp_path / "plain.html"], capture_output=True, check=True)
        done = confined(*arguments, str(out / "report.html"), out=out)
        assert (done.returncode, done.stderr) == (0, b"")
        assert (out / "report.html").read_bytes() == (tmp_path / "plain.html").read_bytes()
