"""Words that views share, and the page that explains the fields of a result."""

import re

from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.result import Summary
from nagle_lab.lab.scenarios.scenario import REPOSITORY
from nagle_lab.reports.words.numbers import cause_name


def test_every_cause_of_an_idle_gap_has_a_name_for_people():
    names = {cause: cause_name(cause) for cause in Cause}
    assert not [name for name in names.values() if re.search("[a-z]_", name)]
    assert len(set(names.values())) == len(Cause)


def test_the_page_explains_every_field_of_a_summary():
    page = (REPOSITORY / "docs" / "result.md").read_text()
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `summary."))
    explained = set(re.findall(r"`(?:summary\.)?([a-z_]+)`", rows))
    assert set(Summary.__struct_fields__) - explained == set()
