"""Make a repository, start the server given on the command line (on port 8000), then ask it what hg asks first."""

import shutil
import subprocess
from pathlib import Path

import http_client


def make_repository():
    shutil.rmtree("repository", ignore_errors=True)
    subprocess.run(["hg", "init", "repository"], check=True)
    Path("repository", "file.txt").write_text("Hello, world\n")
    subprocess.run(["hg", "--cwd", "repository", "commit", "-q", "-A", "-m", "first", "-u", "me"], check=True)


make_repository()
http_client.main("/?cmd=capabilities")
