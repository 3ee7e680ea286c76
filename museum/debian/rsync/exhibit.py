"""Start an rsync daemon that sets TCP_NODELAY, then fetch from it 30 times; the client is on the command line."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path


def make_files():
    shutil.rmtree("files", ignore_errors=True)
    Path("files").mkdir()
    for number in range(10):
        Path("files", f"file{number}.txt").write_text("Hello, world\n" * number)


def wait_for_daemon():
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", 8730)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the daemon did not start")


def main():
    make_files()
    daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", "--config=rsyncd.conf"])
    try:
        wait_for_daemon()
        for _ in range(30):
            shutil.rmtree("copy", ignore_errors=True)
            subprocess.run([*sys.argv[1:], "rsync://127.0.0.1:8730/files/", "copy"], check=True)
            assert len(list(Path("copy").iterdir())) == 10
    finally:
        daemon.terminate()
        daemon.wait()


main()
