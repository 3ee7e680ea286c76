"""The workshop: a guided walk through the incidents (predict, run, reveal), then captures to diagnose."""

from nagle_lab.demo.answers import Answers, Person, Prepared, prepared
from nagle_lab.demo.script import MYSTERIES, Incident, Mystery, Question, Workshop, workshop
from nagle_lab.demo.walk import Walk

__all__ = [
    "MYSTERIES",
    "Answers",
    "Incident",
    "Mystery",
    "Person",
    "Prepared",
    "Question",
    "Walk",
    "Workshop",
    "prepared",
    "workshop",
]
