"""``python -m nagle_lab``: the command line."""

from nagle_lab.cli.main import main

main()
