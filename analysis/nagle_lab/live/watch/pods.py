"""A Kubernetes pod, recorded by tcpdump in an ephemeral container beside its own, through kubectl.

It runs the kubectl commands that docs/watch.md shows. An ephemeral container cannot be removed: it stays with its
pod, and does nothing after its ``sleep`` ends.
"""

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.errors import NagleLabError, last_line, tell

RIGHTS = {
    "securityContext": {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
    }
}
LONGEST_S = 24 * 3600  # the time a container sleeps if no end is known
STARTS_S = 60.0  # the time it may take to start, as its image may have to be fetched
_TCPDUMP = ("tcpdump", "-i", "any", "-s", "128", "-B", "16384", "-n", "-U", "-w", "-")


@contextmanager
def pod_stream(pod: str, image: str, ports: Sequence[int], seconds: float | None) -> Iterator[int]:
    """A descriptor from which to read a pod's packets (pcap); ``pod`` may be NAMESPACE/POD.

    Raises NagleLabError if kubectl is missing or refuses, or the container does not start.
    """
    namespace, _, name = pod.rpartition("/")
    kubectl = ["kubectl", *(["--namespace", namespace] if namespace else [])]
    container = f"nagle-lab-{secrets.token_hex(3)}"
    _add_container(kubectl, name, container, image, round((seconds or LONGEST_S) + STARTS_S))
    inside = ["exec", name, "-c", container, "--"]
    _wait_until_it_runs([*kubectl, *inside, "true"], pod, container)
    only = " or ".join(f"tcp port {port}" for port in ports) or "tcp"
    with tempfile.TemporaryFile() as said:
        command = [*kubectl, *inside, *_TCPDUMP, only]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, process_group=0
        )
        assert child.stdout
        try:
            yield child.stdout.fileno()
        finally:
            failed = child.poll()
            child.terminate()
            child.wait()
            child.stdout.close()
            if failed:
                said.seek(0)
                why = last_line(said.read().decode(errors="replace"), "without a word")
                tell(f"pod {pod}: tcpdump in container {container} ended: {why}")


def _add_container(kubectl: Sequence[str], pod: str, container: str, image: str, seconds: int) -> None:
    """Ask for the ephemeral container."""
    with tempfile.TemporaryDirectory(prefix="nagle-lab-pod-") as folder:
        custom = Path(folder) / "container.json"
        custom.write_text(json.dumps(RIGHTS))
        options = [f"--image={image}", "--profile=general", f"--custom={custom}", "-c", container]
        done = _run([*kubectl, "debug", pod, *options, "--", "sleep", str(seconds)])
    if done.returncode:
        raise NagleLabError(f"pod {pod}: kubectl debug refused: {_why(done)}")


def _wait_until_it_runs(probe: Sequence[str], pod: str, container: str) -> None:
    until = time.monotonic() + STARTS_S
    while (done := _run(probe)).returncode:
        if time.monotonic() >= until:
            raise NagleLabError(
                f"pod {pod}: container {container} did not start in {STARTS_S:.0f} s ({_why(done)}): "
                "kubectl describe pod says why"
            )
        time.sleep(1)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise NagleLabError(f"kubectl: {why}: --pod needs it, with access to the cluster") from None


def _why(done: subprocess.CompletedProcess[str]) -> str:
    return last_line(done.stderr, f"exit code {done.returncode}")
