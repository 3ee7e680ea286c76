"""The schema of bills of materials."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_SCHEMA = json.loads(Path(__file__).with_name("sbom.schema.json").read_text())


def check_bill(bill: dict[str, Any]) -> None:
    """Fail, naming field and reason, if `bill` is not valid by our subset of CycloneDX, or names a thing twice."""
    Draft202012Validator.check_schema(_SCHEMA)
    faults = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(_SCHEMA).iter_errors(bill)]
    assert not faults, faults
    references = [component["bom-ref"] for component in bill["components"]]
    assert references == sorted(set(references))
