"""Both ends of a recorded case in the simulator ns-3.

    main.py CAPTURE nagle|nodelay CONNECTIONS EXCHANGES STEP… -- STEP…

The steps of the server come first, then those of the client (stack_cases.py explains them). It prints what the server
wrote, as linux_peer.py does, in virtual time: ns-3's clock begins at 0. In programs time passes only in pauses, and
COST for each write, because ns-3 would send two writes of one moment together. Needs the package ns3.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import cppyy
from ns import ns  # noqa: F401 - loads the libraries

cppyy.cppdef(Path(__file__).with_name("ends.h").read_text())


def steps(words: list[str]) -> object:
    """The steps in C++ form."""
    made = cppyy.gbl.std.vector["Step"]()
    for word in words:
        made.push_back(cppyy.gbl.Step(word[0], int(word[1:])))
    return made


def main(capture: str, nagle: str, connections: str, exchanges: str, *words: str) -> None:
    """Run it, and print the log."""
    middle = words.index("--")
    case = cppyy.gbl.Case()
    case.server, case.client = steps(list(words[:middle])), steps(list(words[middle + 1 :]))
    case.connections, case.exchanges = int(connections), int(exchanges)
    with TemporaryDirectory() as folder:
        case.Run(folder, nagle == "nodelay")
        (made,) = Path(folder).glob("*.pcap")
        Path(capture).write_bytes(made.read_bytes())
    by_port: dict[int, list[tuple[int, int, int]]] = {}
    for write in case.served:
        by_port.setdefault(write.port, []).append((write.end, write.bytes, write.at))
    print(json.dumps([{"port": port, "writes": writes} for port, writes in by_port.items()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
