"""A git daemon whose connections have TCP_NODELAY; the client given on the command line fetches from it 30 times."""

import shutil
import socket
import subprocess
import sys
import time

LISTENER = ["tcpserver", "-D", "-H", "-R", "-l", "localhost", "127.0.0.1", "9418"]
DAEMON = ["git", "daemon", "--inetd", "--log-destination=none", "--export-all", "--base-path=repositories"]
AUTHOR = ["-c", "user.name=me", "-c", "user.email=me@example.org"]


def make_repositories():
    for folder in "repositories", "copy":
        shutil.rmtree(folder, ignore_errors=True)
    source = "repositories/hello"
    subprocess.run(["git", "init", "--quiet", source], check=True)
    subprocess.run(["git", *AUTHOR, "-C", source, "commit", "--quiet", "--allow-empty", "-m", "first"], check=True)
    subprocess.run(["git", "clone", "--quiet", source, "copy"], check=True)
    subprocess.run(["git", "-C", "copy", "remote", "set-url", "origin", "git://127.0.0.1/hello"], check=True)


def wait_for_daemon():
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", 9418)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the daemon did not start")


def main():
    make_repositories()
    daemon = subprocess.Popen([*LISTENER, *DAEMON])
    try:
        wait_for_daemon()
        for _ in range(30):
            subprocess.run([*sys.argv[1:], "-C", "copy", "fetch"], check=True)
    finally:
        daemon.terminate()
        daemon.wait()


main()
