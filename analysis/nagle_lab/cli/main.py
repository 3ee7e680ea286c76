"""Entry point of the command line: how every command ends."""

import gc
import io
import os
import sys
import traceback
from pathlib import Path

import click

from nagle_lab.cli.commands import NoReaderError, cli
from nagle_lab.errors import Exit, NagleLabError, os_problem, tell


def main(command: click.Command = cli) -> None:
    """Entry point of ``command``: every way to end has its exit code and at most one line on stderr."""
    _prepare_output()
    # The garbage collector has hardly anything to find except ended connections, some 20 objects each. Its default,
    # a search after every 700 new objects, takes a twentieth of the time in plain Python.
    gc.set_threshold(50_000)
    try:
        code = command(prog_name="nagle-lab" if command is cli else None, standalone_mode=False)
        sys.stdout.flush()
    except NagleLabError as e:
        tell(str(e))
        code = e.exit_code
    except click.ClickException as e:
        usage = e.ctx.command_path if isinstance(e, click.UsageError) and e.ctx else "nagle-lab"
        if e.format_message().startswith("Usage: "):  # called without arguments: print the whole help
            click.echo(e.format_message(), err=True)
        else:
            said = " ".join(e.format_message().split())  # click lists choices in lines
            tell(f"{said.replace(' valid integer range.', ' whole number.')} (try {usage} --help)")
        code = Exit.UNUSABLE
    except (KeyboardInterrupt, click.Abort):
        tell("interrupted")
        code = Exit.INTERRUPTED
    except (NoReaderError, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for output that is still to be flushed
        code = Exit.NO_READER
    except OSError as e:  # a path without the right to look at it, a full disk
        tell(str(os_problem(e)))
        code = Exit.UNUSABLE
    except MemoryError as e:
        tell(f"{str(e) or 'out of memory'}: name fewer files at once, or use a machine with more memory")
        code = Exit.UNUSABLE
    except Exception:  # Python's own exit code 1 would be a verdict here
        traceback.print_exc()
        tell("this is a fault of nagle-lab: please report it with the lines above")
        code = Exit.UNUSABLE
    if "duckdb" not in sys.modules:  # which complains if its objects are not released one by one
        gc.freeze()  # no last search at exit, when everything is freed anyway
    sys.exit(int(code or 0))


def _prepare_output() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by our parent: output is lost, nothing else
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes in a file name that are not text: written as in JSON
        sys.stdout.reconfigure(errors="backslashreplace")
