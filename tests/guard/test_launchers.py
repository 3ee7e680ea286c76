"""Where users may make no namespace: sudo, and else one line that says what to do; Docker is in tests/lab."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording import launchers, record_running
from nagle_lab.host import privileges
from support import forbid
from support.command import in_process
from support.guarded import GUARD, server
from support.rights import AS_ROOT, NOBODY, mount_refused, reachable


def as_user_without_namespaces(
    command: list[str], user: str = NOBODY, sudoers: str = ""
) -> subprocess.CompletedProcess:
    """Run a command as another user, where unshare(CLONE_NEWUSER) is refused; ``sudoers`` holds in there alone."""
    if refused := mount_refused():
        pytest.skip(refused)
    lines = reachable()
    if sudoers:
        lines += [
            "mount -t tmpfs -o mode=750 tmpfs /etc/sudoers.d",
            f"echo {shlex.quote(sudoers)} > /etc/sudoers.d/test",
        ]
        lines += ["chmod 440 /etc/sudoers.d/test"]
    drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", "HOME=/tmp", "TMPDIR=/tmp"]
    lines.append(shlex.join(["exec", sys.executable, forbid.__file__, *drop, *command]))
    whole = [*AS_ROOT, "unshare", "--mount", "sh", "-ec", "; ".join(lines)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)


def test_where_no_way_is_left_there_is_one_line(monkeypatch):
    """Exit code 2, and never a pass; the command is not run."""
    done = as_user_without_namespaces(["env", "DOCKER_HOST=unix:///nowhere", *GUARD, "--", "echo", "it ran"])
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("nagle-lab: no network namespace can be created here (Operation not permitted): ")


@pytest.mark.skipif(not shutil.which("sudo"), reason="sudo is not on this machine")
def test_sudo_without_a_password_is_the_next_way():
    """The command itself still runs as who asked."""
    name = pwd.getpwuid(int(NOBODY)).pw_name
    command = ["sh", "-c", "id -u; exec " + shlex.join(server("two-writes"))]
    done = as_user_without_namespaces([*GUARD, "--", *command], sudoers=f"{name} ALL=(ALL) NOPASSWD: ALL")
    assert (done.returncode, done.stdout) == (1, f"{NOBODY}\ndone\n"), done.stderr
    assert "ran in        sudo without a password" in done.stderr
    assert "STALL" in done.stderr


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1",
         "kernel.apparmor_restrict_unprivileged_userns = 1 forbids it; allow it (sudo sysctl "
         "kernel.apparmor_restrict_unprivileged_userns=0), or run this as root"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces = 0 forbids it"),
        ("user/max_user_namespaces", "100", "passwordless sudo"),
    ],
)  # fmt: skip
def test_what_forbids_it_is_named(tmp_path, monkeypatch, setting, value, says):
    file = tmp_path / setting
    file.parent.mkdir(parents=True)
    file.write_text(value + "\n")
    monkeypatch.setattr(launchers, "SETTINGS", tmp_path)
    monkeypatch.setattr(launchers, "is_container", lambda: False)
    assert says in launchers.why_no_namespace()


@pytest.mark.parametrize("missing", ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW"])
def test_root_without_a_capability_takes_a_user_namespace(monkeypatch, missing):
    """As in a container that is given SYS_ADMIN alone, or by Podman or CRI-O, which give no NET_RAW."""
    number = getattr(privileges, missing)
    monkeypatch.setattr(privileges, "has_capability", lambda asked: asked != number)
    assert next(launchers.ways()).name == "a user namespace, without root"


def test_elsewhere_than_on_linux_there_is_one_line(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(NagleLabError, match="guard needs Linux network namespaces"):
        next(launchers.ways())


def test_a_container_is_told_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(launchers, "SETTINGS", tmp_path)
    monkeypatch.setattr(launchers, "is_container", lambda: True)
    assert "--cap-add SYS_ADMIN --cap-add NET_ADMIN" in launchers.why_no_namespace()


@pytest.mark.parametrize("what", [("--", "true"), ("--pid", os.getpid(), "--seconds", 1)])
def test_a_python_that_may_not_be_executed_is_named(tmp_path, monkeypatch, what):
    """As a user who is not root has it, where Python is below /root."""
    python = tmp_path / "python"
    python.write_bytes(b"")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(launchers, "is_container", lambda: True)
    code, _, err = in_process("guard", *what)
    line = err.splitlines()[-1]
    assert code == 2 and f"({python}: Permission denied): this user cannot execute {python}, which" in line
    assert "or run this as root" in line and "--cap-add" not in line


@pytest.mark.parametrize(
    ("user", "lacking", "says"),
    [
        (1000, "", "run this as root"),
        (0, "CAP_SYS_PTRACE", "start that with --cap-add SYS_PTRACE, or run this on its host"),
        (0, "", "run this as root of its host"),
    ],
)
def test_a_process_that_may_not_be_recorded_has_a_next_step(monkeypatch, user, lacking, says):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(launchers, "has_capability", lambda asked: asked != getattr(privileges, lacking, None))
    problem = record_running._todo(launchers.Way("as root"), "Permission denied")
    assert problem.startswith(": ") and problem.endswith(says)
    assert record_running._todo(launchers.Way("as root"), "there is no interface eth9") == ""


def test_a_way_out_needs_pasta(tmp_path):
    """As root, which pasta does not serve, or without it: one line."""
    done = subprocess.run(
        [*GUARD, "--network", "--", "true"], capture_output=True, text=True, timeout=60, check=False
    )
    if shutil.which("pasta") and os.geteuid() != 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK):
        assert done.returncode == 3
        return
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("nagle-lab: --network ")


def test_a_way_out_for_an_ordinary_user(tmp_path):
    """The program reaches a server outside, and its loopback is judged."""
    if not shutil.which("pasta") or not Path("/dev/net/tun").exists() or mount_refused():
        pytest.skip("it takes pasta (package passt), /dev/net/tun and the right to mount")
    command = ["sh", "-c", "id -u; exec " + shlex.join(server("two-writes"))]
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", "HOME=/tmp", "TMPDIR=/tmp"]
    tun = "rm -rf /tmp/tun; mknod /tmp/tun c 10 200; chmod 666 /tmp/tun; mount --bind /tmp/tun /dev/net/tun"
    script = "; ".join([*reachable(), tun, shlex.join(["exec", *drop, *GUARD, "--network", "--", *command])])
    whole = [*AS_ROOT, "unshare", "--mount", "sh", "-ec", script]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, f"{NOBODY}\ndone\n"), done.stderr
    assert "a user namespace with a way out by pasta" in done.stderr
