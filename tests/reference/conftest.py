"""For all captures that these tests analyze: each candidate is decided once, or not at all."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from nagle_lab.diagnosis.findings import Findings
from nagle_lab.diagnosis.proof.outcomes import Judged


def rows_of(judged: Judged) -> list[int]:
    """The rows of all candidates that something was decided of."""
    rows = [*judged.stalls, *(rows for _, rows in judged.rejected), *(rows for _, rows in judged.unresolved)]
    return [int(row) for some in rows for row in some]


@pytest.fixture(scope="module", autouse=True)
def no_candidate_is_decided_twice() -> Iterator[None]:
    """Said at the end of a module, where no test that is expected to fail hides it."""

    def add(self, some) -> None:
        if max(Counter(rows_of(some.judged)).values(), default=1) > 1:
            twice.append(os.environ["PYTEST_CURRENT_TEST"])
        original(self, some)

    original, twice = Findings.add, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Findings, "add", add)
        yield
    assert twice == []
