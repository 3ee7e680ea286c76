"""Which conditions of the proof does no capture need? Each is fixed at true and at false, and the changes are
reported.

`conditions.py [FOLDER …] [--only MODULE] [--at-most N]` judges the committed captures whose truth is known, those of
captures/held-out, and the random conversations in FOLDERs. A condition is the test of an `if`, a returned comparison,
or a part of either joined by `and` or `or`. Only captures for which it had the other value are judged again, at most
N of them (200). A condition that nothing needs may be removed, unless a unit test or captures that are not here need
it.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "maintenance" / "random")]

PACKAGE = "nagle_lab.diagnosis."
ROOMS = ("proof.", "observed.observed", "observed.programs", "observed.candidates", "result.verdict")
ASK = "ask_condition"  # the name of :meth:`Conditions.ask` in instrumented modules


@dataclass
class Conditions:
    """The conditions of the imported modules, their latest values, and which are fixed at what."""

    where: list[tuple[str, int, str]] = field(default_factory=list)  # module, line, source
    said: set[tuple[int, bool]] = field(default_factory=set)
    held: dict[int, bool] = field(default_factory=dict)

    def ask(self, number: int, value: Any) -> Any:
        """The condition's result: the value at which it is fixed, otherwise its own ``value``."""
        if number in self.held:
            return self.held[number]
        self.said.add((number, bool(value)))
        return value


CONDITIONS = Conditions()


class _Instrument(ast.NodeTransformer):
    """Makes a module ask for each of its conditions."""

    def __init__(self, module: str, source: str) -> None:
        self._module, self._source = module, source

    def _asked(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.BoolOp):
            node.values = [self._asked(part) for part in node.values]
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._asked(node.operand)
            return node
        self.generic_visit(node)
        text = " ".join((ast.get_source_segment(self._source, node) or "").split())
        CONDITIONS.where.append((self._module, node.lineno, text))
        number = ast.Constant(len(CONDITIONS.where) - 1)
        return ast.copy_location(ast.Call(ast.Name(ASK, ast.Load()), [number, node], []), node)

    def visit_If(self, node: ast.If) -> ast.If:
        node.test = self._asked(node.test)
        node.body = [self.visit(one) for one in node.body]
        node.orelse = [self.visit(one) for one in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        node.test = self._asked(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A returned comparison is a condition if the function is declared to return a bool."""
        self.generic_visit(node)
        if isinstance(node.returns, ast.Name) and node.returns.id == "bool":
            for one in ast.walk(node):
                if isinstance(one, ast.Return) and isinstance(one.value, ast.BoolOp | ast.Compare):
                    one.value = self._asked(one.value)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        source = self.get_data(self.path).decode()
        tree = _Instrument(fullname.removeprefix(PACKAGE), source).visit(ast.parse(source))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: Any) -> None:
        setattr(module, ASK, CONDITIONS.ask)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not fullname.startswith(tuple(PACKAGE + room for room in ROOMS)):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


Judge = Callable[[], str]  # the judgement on a capture, in a word


def captures(folders: Sequence[Path]) -> Iterator[Judge]:
    """The judges of committed captures and of random conversations."""
    from judge import judge as judge_random  # noqa: PLC0415 - they import what is to be instrumented first

    from nagle_lab.diagnosis.analysis import analyze  # noqa: PLC0415
    from support import truth  # noqa: PLC0415

    for of in (*truth.references(), *truth.lookalikes(), *truth.families(), *truth.stacks()):
        yield lambda of=of: str(of.judge(analyze(of.path)).name).lower()  # type: ignore[misc]
    held_out = ROOT / "captures" / "held-out"
    for one in json.loads((held_out / "truth.json").read_text()):
        yield lambda one=one: _worth(analyze(held_out / f"{one['name']}.pcap.gz"), one)  # type: ignore[misc]
    for folder in folders:
        for path in sorted(folder.glob("*/*.pcap.gz")):
            yield lambda path=path: judge_random(path)["judged"]  # type: ignore[misc]


def _worth(result: Any, truth: dict[str, Any]) -> str:
    least, most = truth["stalls"] or (0, result.summary.stalls)
    if result.verdict == truth["verdict"] and least <= result.summary.stalls <= most:
        return "right"
    return "unsure" if result.verdict in truth["also_acceptable"] else "wrong"


def judged(one: Judge) -> tuple[str, set[tuple[int, bool]]]:
    """The judgement on a capture, and the conditions' values on the way."""
    CONDITIONS.said.clear()
    try:
        return one(), set(CONDITIONS.said)
    except Exception as error:  # a condition fixed at the wrong value may break anything
        return type(error).__name__, set()


def _judged_as(job: tuple[int, bool | None, list[int]]) -> list[tuple[str, set[tuple[int, bool]]]]:
    """The judgement with a condition fixed; None: with none fixed."""
    number, value, places = job
    CONDITIONS.held = {} if value is None else {number: value}
    return [judged(ALL[place]) for place in places]


ALL: list[Judge] = []


def main() -> None:
    """Print each condition that changes nothing, and what the others change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="conditions of this module: near_sender, say")
    parser.add_argument("--at-most", type=int, default=200)
    options = parser.parse_args()
    sys.meta_path.insert(0, _Finder())
    ALL.extend(captures(options.folders))
    import nagle_lab.diagnosis.summary  # noqa: F401, PLC0415 - all that is instrumented, before the workers are forked

    with Pool(2) as pool:
        found = [one for (one,) in pool.map(_judged_as, [(0, None, [place]) for place in range(len(ALL))], 8)]
        worth_of_all = dict(Counter(worth for worth, _ in found))
        print(f"{len(ALL)} captures, {len(CONDITIONS.where)} conditions: {worth_of_all}")
        jobs = []
        for number, (module, _, _) in enumerate(CONDITIONS.where):
            for value in (False, True):
                places = [place for place, (_, said) in enumerate(found) if (number, not value) in said]
                if places and options.only in module:
                    chosen = random.Random(0).sample(places, min(len(places), options.at_most))
                    jobs.append((number, value, sorted(chosen)))
        for (number, value, places), again in zip(jobs, pool.imap(_judged_as, jobs), strict=True):
            pairs = ((found[place][0], worth) for place, (worth, _) in zip(places, again, strict=True))
            changed = Counter(f"{one} → {other}" for one, other in pairs if one != other)
            module, line, text = CONDITIONS.where[number]
            what = ", ".join(f"{count} {change}" for change, count in changed.most_common()) or "NOTHING CHANGES"
            print(f"{module}:{line} held at {value}, {len(places)} judged again: {what} | {text[:90]}", flush=True)


if __name__ == "__main__":
    main()
