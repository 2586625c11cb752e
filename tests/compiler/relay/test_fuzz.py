import importlib.util
import pathlib
import random

import pytest

from tests.compiler.relay.oracle import FOLDER, programs

_SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "fuzz_relay_readers.py"
_SPEC = importlib.util.spec_from_file_location("fuzz_relay_readers", _SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
fuzz = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fuzz)

MATERIAL = {
    "text": [case["text"] for case in programs() if len(case["text"]) < 4_000],
    "json": [case["json"] for case in programs() if len(case.get("json", "")) in range(1, 4_000)],
    "params": [(FOLDER / "mlp.params").read_bytes()],
}


@pytest.mark.parametrize("kind", MATERIAL)
def test_damaged_files_end_in_clean_errors(kind):
    rng = random.Random(7)
    outcomes = {fuzz.attempt(kind, rng.choice(MATERIAL[kind]), rng) for _ in range(1500)}
    assert outcomes <= {"read", "RelaySyntaxError", "SavedModuleError"}
    assert len(outcomes) > 1
