"""``python -m soak``, with this folder's parent on the import path: what `make -C maintenance soak` calls."""

from nagle_lab.cli.main import main
from soak.command import soak

main(soak)
