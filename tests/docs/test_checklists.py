"""Every line of a checklist names tests, and they exist."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "tests" / "compiler"
PAGES = ("document_statements.md", "gluon_checklist.md", "mxnet_libraries.md", "partitioner.md")
HEADS = ("| promise | test |", "| statement | state | test |")


def promises(page: str) -> list[tuple[str, list[str]]]:
    """The lines of a page's checklists, and the tests that each names."""
    found = []
    inside = False
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line in HEADS:
            inside = True
        elif inside and not line.startswith("|---"):
            promise, tests = line.strip("| ").rsplit(" | ", 1)
            found.append((promise, re.findall(r"`([^`]*)`", tests)))
    return found


@functools.cache
def functions(file: pathlib.Path) -> set[str]:
    """The functions that a file defines."""
    body = ast.parse(file.read_text()).body
    return {each.name for each in body if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_tests_that_exist(page):
    lines = promises(page)
    assert len(lines) > 20
    for promise, tests in lines:
        if " | not: " in promise and not tests:
            continue
        assert tests, f"{page}: no test of {promise!r}"
        for test in tests:
            path, _, name = test.partition("::")
            file = TESTS / f"{path}.py"
            assert file.is_file(), f"{page}: {test}: there is no {file}"
            assert name.startswith("test_") and name in functions(file), f"{page}: {test}"


def test_every_statement_of_a_document_has_a_state():
    for statement, tests in promises("document_statements.md"):
        said, state = statement.rsplit(" | ", 1)
        assert said and re.fullmatch(r"holds(, but .+)?|not: .+", state), statement
        assert tests or state.startswith("not: "), statement
