"""The example scripts run, and what they compare is equal."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "scripts" / "examples").glob("gluon_*.py"))


def test_there_are_five_examples_of_blocks():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_print_that_nothing_differs(path, capsys):
    from compiler import partition

    before = set(partition.list_partitioners())
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in set(partition.list_partitioners()) - before:
            partition.unregister(name)
    differences = re.findall(r"largest difference: (\S+)", capsys.readouterr().out)
    assert differences and all(float(each) < 1e-5 for each in differences)
