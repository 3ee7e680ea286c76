"""maintenance/conditions.py: each condition of a module asked, and held."""

import ast
import importlib.util
import sys

import pytest

from support.repository import REPOSITORY

FILE = REPOSITORY / "maintenance" / "conditions.py"
SOURCE = """
def which(n: int) -> str:
    if n > 1 and not n > 5:
        return "some"
    return "many" if n > 5 else "few"

def is_some(n: int) -> bool:
    return n > 1 and n <= 5
"""


@pytest.fixture
def conditions(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("conditions", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "conditions", module)
    spec.loader.exec_module(module)
    return module


def test_each_condition_is_asked_and_can_be_held(conditions):
    tree = conditions._Instrument("a", SOURCE).visit(ast.parse(SOURCE))
    names = {conditions.ASK: conditions.CONDITIONS.ask}
    exec(compile(ast.fix_missing_locations(tree), "a", "exec"), names)
    texts = [text for _, _, text in conditions.CONDITIONS.where]
    assert texts == ["n > 1", "n > 5", "n > 5", "n > 1", "n <= 5"]
    assert [names["which"](n) for n in (0, 3, 9)] == ["few", "some", "many"]
    assert conditions.CONDITIONS.said == {(0, True), (0, False), (1, True), (1, False), (2, True), (2, False)}
    conditions.CONDITIONS.held = {1: False, 4: True}
    assert [names["which"](n) for n in (0, 3, 9)] == ["few", "some", "some"]
    assert [names["is_some"](n) for n in (0, 3, 9)] == [False, True, True]
