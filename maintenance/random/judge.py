"""Judge the analyzer by random conversations, made by record_random.py: `judge.py FOLDER [--json FILE]`.

Per capture: right, few (INCONCLUSIVE: fewer than ten exchanges), unsure (INCONCLUSIVE or INVALID for another
reason), either (the truth is doubtful: not counted), partly (STALL, and what is missing is said to be open), or one
of the mistakes:

    false      STALL where nothing was held
    missed     CLEAN where it was
    accused STALL, and rightly so, but an end whose kernel held nothing is among those that held
    count      STALL, but too many or too few at an end: more than 2, and more than 5 % off
"""

import argparse
import gzip
import json
import struct
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.analysis import analyze

STALLS = 3  # so many holds are a STALL; one or two may be
OFF, OFF_SHARE = 2, 0.05
PORTS = {7000: "front", 8000: "back"}  # a server's port → its hop
LOSSY = "lossy"  # a capture that lacks frames is not counted
PARTIAL = ("late", "from", LOSSY)
MISTAKES = ("false", "missed", "accused", "count")

TOO_FEW = "are needed to say so"

Known = dict[str, tuple[int, int]]  # end → how many segments it held, at least and at most


def known(truth: dict[str, Any], position: str, begins: int) -> Known:
    """The truth about a capture that begins at that time."""
    hops = truth["hops"][position]
    found = {}
    for end, holds in truth["ends"].items():
        if end.split()[0] in hops:
            within = [certain for triggered, _, _, _, certain, _ in holds if triggered >= begins]
            found[end] = sum(within), len(within)
    return found


def first_time(path: Path) -> int:
    """Of a capture, ns."""
    with gzip.open(path) as file:
        seconds, ns = struct.unpack("<II", file.read(32)[24:32])
    return int(seconds * 1_000_000_000 + ns)


def judge(path: Path) -> dict[str, Any]:
    """One capture."""
    truth = json.loads((path.parent / "truth.json").read_text())
    name = path.name.removesuffix(".pcap.gz")
    position, _, disturbance = name.partition("+")
    result = json.loads(analyze(path).to_json())
    ends = known(truth, position, first_time(path) if disturbance == "late" else 0)
    said: Counter[str] = Counter()
    for stall in result["stalls"]:  # by ports, because without a handshake the roles may be confused
        holder, delayer = (stall[end]["port"] for end in ("held_by", "delayed_by"))
        said[f"{PORTS[holder]} server" if holder in PORTS else f"{PORTS[delayer]} client"] += 1
    verdict, is_open = result["verdict"], sum(result["quality"]["unresolved"].values())
    return {
        "name": f"{path.parent.name}/{name}",
        "verdict": verdict,
        "judged": "few" if TOO_FEW in result["reason"] else worth(verdict, said, ends, disturbance, is_open),
        "said": dict(said),
        "known": ends,
        "reason": result["reason"],
    }


def worth(verdict: str, said: Counter[str], ends: Known, disturbance: str, is_open: int) -> str:
    """How right the verdict is; so many candidates were left open."""
    least, most = (sum(numbers) for numbers in zip(*ends.values(), strict=True))
    if most > 0 and least < STALLS:
        return "either"
    if not most:
        return {"STALL": "false", "CLEAN": "right"}.get(verdict, "unsure")
    if verdict != "STALL":
        return "missed" if verdict == "CLEAN" else "unsure"
    for end, count in said.items():
        if count > OFF and not ends.get(end, (0, 0))[1]:
            return "accused"
    return "right" if disturbance.startswith(PARTIAL) else worth_of_count(said, ends, is_open)


def worth_of_count(said: Counter[str], ends: Known, is_open: int) -> str:
    """How right the numbers of stalls are; so many candidates were left open."""
    missing = 0
    for end, (low, high) in ends.items():
        if said[end] > high + max(OFF, high * OFF_SHARE):
            return "count"
        if said[end] < low - max(OFF, low * OFF_SHARE):
            missing += low - said[end]
    return "right" if not missing else "partly" if missing <= is_open else "count"


def main(folder: Path, into: Path | None) -> None:
    """Print the mistakes, the unsure verdicts, and the totals."""
    paths = sorted(folder.glob("*/*.pcap.gz"))
    with ProcessPoolExecutor(2) as pool:
        judged = list(pool.map(judge, paths, chunksize=8))
    if into:
        into.write_text(json.dumps(judged, indent=1))
    for one in judged:
        if one["judged"] in (*MISTAKES, "unsure"):
            print(f"{one['judged']:8} {one['name']:18} {one['verdict']:12} said {one['said']} known {one['known']}")
    for kind, chosen in (("undisturbed", False), ("disturbed", True)):
        counts = Counter(one["judged"] for one in judged if ("+" in one["name"]) == chosen)
        print(f"{kind}: {sum(counts.values())} captures: {dict(counts.most_common())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.json)
