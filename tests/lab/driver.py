"""Record one variant in a process of its own, as the command line would: what the tests send signals to.

Usage: driver.py SCENARIOS_FOLDER RUNS_FOLDER VARIANT; one line per stage on stdout, at last the run folder.
With TEST_PATIENCE_S in the environment, nothing is waited for longer than that many seconds.
"""

import os
import sys
from pathlib import Path

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import docker, find_scenario, record, session


def main() -> int:
    scenarios_folder, runs_dir, variant = sys.argv[1:]
    scenario = find_scenario("nginx-static", Path(scenarios_folder))
    if "TEST_PATIENCE_S" in os.environ:
        docker._AWAY_S = session._PATIENCE_S = float(os.environ["TEST_PATIENCE_S"])
        session._ASK_S = 0.2
    try:
        print(record(scenario, scenario.variant(variant), {}, Path(runs_dir), lambda line: print(line, flush=True)))
    except NagleLabError as error:
        print(f"nagle-lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
