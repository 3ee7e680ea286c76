"""What the page shows, from the project's own files: scenarios and what was recorded, cases, museum."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cases
import families
import msgspec
import stack_cases

from nagle_lab import analyze
from nagle_lab.cli.workshop.script import DemoFile, MysteriesFile, workshop
from nagle_lab.evidence.excerpt import PacketWindow, Step, excerpts
from nagle_lab.experiments.software.museum import Exhibit, ExhibitHalf, exhibits
from nagle_lab.lab.scenarios.parameters import resolve
from nagle_lab.lab.scenarios.scenario import REPOSITORY, Scenario, Variant
from nagle_lab.lab.scenarios.scenario_file import scenarios
from nagle_lab.reports.experiments.museum import NAMES

Data = dict[str, Any]

MATRIX_ROW = re.compile(
    r"^\| (?P<variant>[\w-]+) \| (?P<verdict>STALL|CLEAN) \| \d+/\d+ \| (?P<share>\d+)% \| [^|]+\| [^|]+\| "
    r"(?P<packets>[\d.]+) \|",
    re.MULTILINE,
)
SERIES = re.compile(r"^(?P<series>[\w-]+): variant (?P<variant>[\w-]+), judged on", re.MULTILINE)
SWEEP_ROW = re.compile(r"^ +(?P<size>\d+) +(?P<share>\d+)%.* (?P<verdict>STALL|CLEAN)$", re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    """The parts of a page of docs/, by the heading (``## …``) above each."""
    parts = re.split(r"^## (.+)$", (REPOSITORY / "docs" / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def recorded_variants(section: str) -> dict[str, Data]:
    """What docs/matrix.md recorded of each variant: verdict, share of later exchanges that stalled, packets each."""
    return {
        row["variant"]: {
            "verdict": row["verdict"],
            "share": int(row["share"]) / 100,
            "packets": float(row["packets"]),
        }
        for row in MATRIX_ROW.finditer(section)
    }


def recorded_sizes(section: str) -> list[Data]:
    """Every row of a sweep in docs/sweeps.md: series, variant, size, and the share that stalled."""
    found = list(SERIES.finditer(section))
    ends = [match.start() for match in found[1:]] + [len(section)]
    return [
        {
            "series": series["series"],
            "variant": series["variant"],
            "size": int(row["size"]),
            "share": int(row["share"]) / 100,
            "verdict": row["verdict"],
        }
        for series, end in zip(found, ends, strict=True)
        for row in SWEEP_ROW.finditer(section, series.end(), end)
    ]


def variant_data(scenario: Scenario, variant: Variant, recorded: Data) -> Data:
    """A variant as scenarios.js takes it: lab, port, the value of every parameter; and what is known of it."""
    numbers = set(scenario.int_parameters())
    values = {k: int(v) if k in numbers else v for k, v in resolve(scenario, variant, {}, {}).items()}
    return {
        "lab": variant.lab,
        "port": variant.port,
        "values": values,
        "teaches": variant.teaches,
        "verdict": variant.verdict,
        "heldBy": variant.held_by,
        "recorded": recorded,
    }


def scenario_data(scenario: Scenario, matrix: str, sweep: str | None) -> Data:
    """A scenario with its variants, the story of its demo, and its recorded cliffs."""
    demo = msgspec.toml.decode((REPOSITORY / "scenarios" / scenario.name / "demo.toml").read_bytes(), type=DemoFile)
    recorded = recorded_variants(matrix)
    client, server = demo.programs.ends
    return {
        "title": scenario.title,
        "question": scenario.question,
        "incident": demo.number,
        "story": demo.story,
        "programs": {"client": client, "server": server},
        "stalled": scenario.stalled,
        "fixed": scenario.fixed,
        "lesson": {"stalled": demo.stalled.lesson, "fixed": demo.fixed.lesson},
        "variants": {name: variant_data(scenario, one, recorded[name]) for name, one in scenario.variants.items()},
        "parameter": scenario.sweep.parameter if scenario.sweep else None,
        "sizes": recorded_sizes(sweep) if sweep else [],
    }


# Columns of a recorded case (maintenance/recorder/cases.py) that the model has nothing for, and why.
BEYOND = {
    "drop": "segments are lost; on the model's path none is",
    "client_buffer": "the receive window fills; the model's never does",
    "server_send_buffer": "the send buffer fills; the model's never does",
    "limited": "the window or the congestion window holds data back, not Nagle's algorithm",
    "origin": "a third program takes part",
    "kinds": "exchanges of several kinds in one run; the model repeats one",
    "jitter_ms": "the path's delay varies; the model's does not",
    "credit": "the programs also speak over another connection",
    "md5": "segments with MD5 signatures",
    "ipv4_mtu": "a router on the way passes on only smaller packets",
}
STEPS = {
    cases.Poll: "a program waits in poll(); the model knows plain pauses",
    cases.Timeout: "SO_RCVTIMEO ends a wait; the model knows plain pauses",
    cases.Drained: "the program asks the kernel what is acknowledged (SIOCOUTQ)",
    cases.Credit: "the programs also speak over another connection",
    cases.Ticks: "both ends write at ticks of a clock, whether or not they have read",
    cases.Chat: "both ends write at times of their own, whether or not they have read",
    cases.Upstream: "a third program takes part",
}


def cannot(case: cases.Case) -> str | None:
    """Why the model cannot run a recorded case; None: it can."""
    for column, reason in BEYOND.items():
        if getattr(case, column):
            return reason
    if case.path.later_rtt_ms or case.path.queue_ms:
        return "the path's delay varies; the model's does not"
    if case.by_log:
        return "a race of the pause with the ACK timer: each recorded exchange says for itself how it ended"
    if "advmss" in case.server_route or "rto_min" in case.server_route:
        return "the two ends announce different segment sizes"
    return next((STEPS[type(step)] for step in (*case.client, *case.server) if type(step) in STEPS), None)


def step_text(step: cases.Step) -> str:
    """A step of a recorded case in the words of program.js."""
    if isinstance(step, cases.Write):
        return f"write {step.size}{' more' if step.more else ''}"
    if isinstance(step, cases.Read):
        return f"read {step.size}"
    if isinstance(step, cases.Cork):
        return f"cork {'on' if step.on else 'off'}"
    if isinstance(step, cases.Pause):
        return f"pause {step.shortest:g}" + (f"-{step.longest:g}" if step.longest is not None else "")
    raise ValueError(f"site/program.js has no words for {step}, and STEPS in site/collect.py no reason why")


def case_setup(case: cases.Case) -> Data:
    """A recorded case as a setup of the model."""
    ends: Data = {}
    for end, steps, route in (
        ("client", case.client, case.client_route),
        ("server", case.server, case.server_route),
    ):
        off = case.nodelay or end in case.nodelay_at
        ends[end] = {
            "program": ", ".join(map(step_text, steps)),
            "nagle": "off" if off else "minshall",
            "quickack": "quickack" in route,
        }
    mss = cases.MSS - (20 if case.ipv6 else 0)
    each = case.exchanges // case.connections
    return {"exchanges": each, "keepalive": case.keepalive, "rtt": case.rtt_ms or 0.1, "mss": mss, **ends}


def case_data(case: cases.Case, folder: str) -> Data:
    """A recorded case: its setup, or why there is none, and the truth that was recorded with it.

    The families' truth also counts the stalls, from the programs' socket timestamps: over all connections.
    """
    reason = cannot(case)
    truth = msgspec.json.decode((REPOSITORY / "captures" / folder / case.name / "truth.json").read_bytes())
    seen = truth["captures"]["server"] if folder == "families" else truth
    counted = {"stalls": seen["stalls"] / case.connections} if "stalls" in seen else {}
    return {
        "why": case.why,
        "folder": f"captures/{folder}/{case.name}",
        "recorded": {"verdict": "STALL" if seen["held_by"] else "CLEAN", "heldBy": seen["held_by"], **counted},
        **({"cannot": reason} if reason else {"setup": case_setup(case)}),
    }


NAGLE_OF = {"linux": "minshall"}  # the others: RFC 896
WORDS = {"w": "write", "r": "read", "p": "pause"}


def stack_cannot(case: stack_cases.Case) -> str | None:
    """Why the model cannot run a case with another TCP stack; None: it can."""
    if case.receiver == stack_cases.LWIP:
        return "lwIP acknowledges on a tick of 250 ms, after 0 to 250 ms; the model's timer starts with the data"
    if case.name in ("netstack-full-tail-one-write", "freebsd-full-tail-one-write"):
        return "this stack applies Nagle's algorithm between writes only; the model's queue does not know them"
    return None


def stack_setup(case: stack_cases.Case) -> Data:
    """A case with another TCP stack as a setup of the model: who sends follows RFC 896 unless it is Linux."""

    def program(steps: tuple[str, ...]) -> str:
        return ", ".join(f"{WORDS[step[0]]} {step[1:]}" for step in steps)

    receiver: Data = {"program": program(case.client_steps)}
    if case.receiver in (stack_cases.SMOLTCP, stack_cases.FREEBSD):
        receiver |= {"delack": case.ack_delay_of(case.receiver), "quick": 0, "pingpong": 0}
    elif case.receiver == stack_cases.NS3:
        receiver |= {"delack": 200, "quick": 0, "pingpong": 0}
    elif case.receiver == stack_cases.NETSTACK:
        receiver |= {"quickack": True}
    nagle = NAGLE_OF.get(case.sender.name, "rfc896") if case.nagle else "off"
    full = case.sender.full_sent or case.receiver.full_received
    server = {"program": program(case.steps), "nagle": nagle}
    return {"exchanges": stack_cases.EXCHANGES, "mss": full, "client": receiver, "server": server}


def stack_data(case: stack_cases.Case) -> Data:
    """A case recorded with another TCP stack, as :func:`case_data` gives those of Linux."""
    folder = f"captures/stacks/{case.name}"
    truth = msgspec.json.decode((REPOSITORY / folder / "truth.json").read_bytes())
    counted = {} if truth["stalls"] is None else {"stalls": truth["stalls"] / stack_cases.CONNECTIONS}
    reason = stack_cannot(case)
    return {
        "why": case.why,
        "folder": folder,
        "recorded": {"verdict": truth["verdict"], "heldBy": truth["held_by"], **counted},
        **({"cannot": reason} if reason else {"setup": stack_setup(case)}),
    }


MUSEUM_ROW = re.compile(r"\]\(\.\./museum/(?P<name>[\w/-]+)\) \|.*\*\*STALL\*\* \| (?P<share>\d+)% \|")


def half_setup(writes: Data, exhibit: Exhibit, half: ExhibitHalf) -> Data:
    """A half of an exhibit as a setup of the model.

    The end that does not hold sets TCP_NODELAY, as museum/README.md asks.
    """
    own = writes["exhibits"][exhibit.name]
    if half is exhibit.good:
        own = {**own, **own.get("good", {})}
    held = half is exhibit.bad or half.one_write
    ends = {
        end: {"program": own[end], "nagle": "minshall" if held and end == exhibit.held_by else "off"}
        for end in ("client", "server")
    }
    return {"exchanges": own.get("exchanges", writes["exchanges"]), "mss": writes["mss"], **ends}


def museum_data() -> Data:
    """The exhibits that museum.toml gives the writes of, with what exhibit.toml says of them; why not the others.

    The recorded share of stalled exchanges is that of docs/museum.md, or museum.toml has the number of stalls.
    """
    writes = tomllib.loads((Path(__file__).parent / "museum.toml").read_text(encoding="utf-8"))
    page = (REPOSITORY / "docs" / "museum.md").read_text(encoding="utf-8")
    shares = {row["name"]: int(row["share"]) / 100 for row in MUSEUM_ROW.finditer(page)}
    shown = {}
    for exhibit in exhibits():
        programs = writes["exhibits"].get(exhibit.name)
        if programs is None:
            continue
        halves = {"bad": exhibit.bad, "good": exhibit.good}
        shown[exhibit.name] = {
            **{key: getattr(exhibit, key) for key in ("software", "what", "why", "remedy")},
            "heldBy": exhibit.held_by,
            "halves": {key: ", ".join(filter(None, (half.version, half.setting))) for key, half in halves.items()},
            "recorded": {"stalls": programs["stalls"]} if "stalls" in programs else {"share": shares[exhibit.name]},
            **{key: half_setup(writes, exhibit, half) for key, half in halves.items()},
        }
    return {"registries": NAMES, "exhibits": shown, "cannot": writes["cannot"]}


def mysteries_data() -> list[Data]:
    """The captures of the workshop, with the frames to show: microseconds and byte numbers from the first of them."""
    file = REPOSITORY / "captures" / "mysteries.toml"
    entries = msgspec.toml.decode(file.read_bytes(), type=MysteriesFile)
    shown = []
    for entry, mystery in zip(entries.mysteries, workshop().mysteries, strict=True):
        (excerpt,) = excerpts(
            [mystery.capture], [PacketWindow(analyze(mystery.capture).connections[0], *mystery.frames)]
        )
        shown.append(
            {
                "name": mystery.capture.parent.name,
                "asks": entries.asks,
                "story": mystery.story,
                "lesson": mystery.question.lesson,
                "truth": mystery.truth,
                "choices": [{"text": guess.text, "truth": guess.truth} for guess in entry.choices],
                "frames": frames_of(excerpt.steps),
            }
        )
    return shown


def frames_of(steps: Sequence[Step]) -> list[Data]:
    """Packets as the page shows them; both directions count their bytes from the first of them that is shown."""
    first = {side: min((s.seq for s in steps if s.from_client == side), default=0) for side in (True, False)}
    return [
        {
            "frame": step.frame,
            "us": (step.ts - steps[0].ts) / 1000,
            "from": "client" if step.from_client else "server",
            "size": step.length,
            "flags": step.flags,
            "seq": step.seq - first[step.from_client],
            "ack": max(step.ack - first[not step.from_client], 0),
        }
        for step in steps
    ]


def collect() -> Data:
    """Everything, as data.js gives it to the page; a new scenario once docs/matrix.md has figures of it."""
    matrix, sweeps = sections("matrix.md"), sections("sweeps.md")
    recorded = {name: scenario for name, scenario in scenarios().items() if name in matrix}
    told = {name: scenario_data(scenario, matrix[name], sweeps.get(name)) for name, scenario in recorded.items()}
    return {
        "scenarios": dict(sorted(told.items(), key=lambda item: item[1]["incident"])),
        "cases": {
            **{name: case_data(case, "lookalikes") for name, case in cases.CASES.items()},
            **{name: case_data(case, "families") for name, case in families.FAMILIES.items()},
            **{name: stack_data(case) for name, case in stack_cases.CASES.items()},
        },
        "museum": museum_data(),
        "mysteries": mysteries_data(),
    }
