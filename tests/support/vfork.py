"""A program that waits in vfork() for its child, as shells and posix_spawn do for a moment.

subprocess.run([waits_for_its_child(folder)])
"""

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

SOURCE = """
    #define _DEFAULT_SOURCE
    #include <unistd.h>

    int main(void) {
        char go;
        for (;;) {
            write(1, ".", 1);
            if (vfork() == 0)
                _exit(read(0, &go, 1) != 1);
        }
    }
"""


def waits_for_its_child(folder: Path) -> Path:
    """The program, compiled there; it prints a dot before it waits, and its child ends with a byte of standard input.

    The test is skipped where there is no C compiler.
    """
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    source, program = folder / "waits.c", folder / "waits"
    source.write_text(textwrap.dedent(SOURCE))
    subprocess.run(["cc", "-w", "-o", program, source], check=True)
    return program
