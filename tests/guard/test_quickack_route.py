"""The lines that `analyze` gives for immediate ACKs, pasted into a shell: they take effect, and can be undone."""

import subprocess

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.reports.words.next_steps import commands
from support.rights import AS_ROOT
from support.stories import server_held, talk
from support.synthetic import pcap_bytes

pytestmark = pytest.mark.usefixtures("may_record")

HERE = {4: "192.0.2.1", 6: "2001:db8::1"}
HOST = f"""
ip link set lo up
ip link add d0 type veth peer name d1
ip address add {HERE[4]}/24 dev d0
ip address add {HERE[6]}/64 dev d0 nodad
ip link set d0 up
ip link set d1 up
until ip -6 route get 2001:db8::2 >/dev/null 2>&1; do sleep 0.01; done
"""


@pytest.mark.parametrize(
    ("held", "delayed"),
    [
        ("192.0.2.2", HERE[4]),
        ("2001:db8::2", HERE[6]),
        (HERE[4], HERE[4]),
        (HERE[6], HERE[6]),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "::1"),
    ],
)
def test_the_route_takes_effect_and_is_undone(tmp_path, held, delayed):
    path = tmp_path / "s.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, client=(delayed, 50_000), server=(held, 80)).segments))
    (*_, (_, (change, undo, *_))) = commands(analyze(path), None)
    show = f"ip route get {held} | tr '\\n' ' '; echo"
    script = "\n".join([HOST, show, change, show, undo.removeprefix("# to undo it: "), show])
    enter = [*AS_ROOT, "unshare", "--net", "bash", "-ec", script]
    done = subprocess.run(enter, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ["quickack 1" in route for route in done.stdout.splitlines()] == [False, True, False]
