"""Record one variant in a process of its own, as the command line would: what the tests send signals to.

Usage: driver.py SCENARIOS_FOLDER RUNS_FOLDER VARIANT; one line per stage on stdout, at last the run folder.
TEST_SECONDS in the environment changes how long the lab waits: "session._PATIENCE_S=4 docker._AWAY_S=1".
"""

import os
import sys
from pathlib import Path

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import recorder, session
from nagle_lab.lab.containers import docker
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.session import record

WAITING = {"docker": docker, "recorder": recorder, "session": session}


def main() -> int:
    scenarios_folder, runs_dir, variant = sys.argv[1:]
    # Each worker is a host of its own: runs leave alone what those of another host, that is worker, have left.
    system, _, *rest = os.uname()
    os.uname = lambda: os.uname_result((system, f"worker-{os.getppid()}", *rest))
    scenario = find_scenario("nginx-static", Path(scenarios_folder))
    for setting in os.environ.get("TEST_SECONDS", "").split():
        module, name, seconds = setting.replace("=", ".", 1).split(".", 2)
        assert hasattr(WAITING[module], name), setting
        setattr(WAITING[module], name, float(seconds))
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
