"""Everything that a reader can copy from README.md and docs/ runs.

`make journey` runs the pages of users, each in a fresh process of an environment with the wheel and
in an empty folder; here their code must parse, and nothing of it may be hidden. The Python of other
pages runs here in order in one namespace, with the blocks that are not shown,
`<!--- invisible-code-block: python`; a block that begins with the name of a file, `# mine.py`, is
saved under it instead. Commands of `baton` are parsed. Programs of `scripts/` and targets of `make`
must exist.
"""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import re
import shlex
import sys
import unittest
from typing import Any

import pytest
import typer.main
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from compiler.cli.app import app
from schedules import strategy
from schedules.anchor import ANCHOR_RULES
from scripts.release import journey
from scripts.release.run_page import blocks

from .not_run import BLOCKS, COMMANDS, PAGES_ELSEWHERE

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_THE_JOURNEY = [page for page in PAGES if journey.has_page(page)]
LANGUAGES = ("python", "sh", "cmake", "cpp", "text", "")
"""Of blocks: the first two are run, the others are not Baton's to run."""


def run_python(example: Example) -> None:
    """Run a block, or save it."""
    name = re.match(r"# (\w+\.py)\n", example.parsed)
    if name:
        pathlib.Path(name[1]).write_text(example.parsed)
    else:
        PythonEvaluator()(example)


def command_lines(text: str) -> list[list[str]]:
    """The words of each line of a shell's block, without comments and optional arguments."""
    text = text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", each).strip() for each in text.splitlines())
    return [shlex.split(re.sub(r"\[.*?\]", "", line).removeprefix("$ ")) for line in lines if line]


def check_commands(example: Example) -> None:
    """Parse the command lines of a block, or look for what they start."""
    for words in command_lines(str(example.parsed)):
        line = shlex.join(words)
        if words[0] == "baton":
            parse(words[1:])
        elif words[0] == "make" and len(words) > 1:
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), line
        elif words[:2] == ["python", "-m"] and words[2].startswith("scripts."):
            assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file(), line


def parse(words: list[str]) -> None:
    """Raise if the command or one of its words does not exist."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("baton", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


PARSERS = (
    CodeBlockParser("python", run_python),
    CodeBlockParser("sh", check_commands),
    SkipParser(),
)


@pytest.mark.parametrize("page", OF_THE_JOURNEY, ids=lambda page: page.name)
def test_pages_of_the_journey_parse_and_hide_nothing(page: pathlib.Path) -> None:
    page_text = page.read_text(encoding="utf-8")
    assert "invisible-code-block" not in page_text
    for language, text in blocks(page_text):
        if language == "python":
            ast.parse(text)
        elif language == "sh":
            for words in command_lines(text):
                assert words[:2] != ["python", "-m"] or not words[2].startswith("scripts."), words
                if words[0] == "baton":
                    parse(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_whose_code_needs_a_checkout_says_so_first(page: pathlib.Path) -> None:
    before, code, _ = page.read_text(encoding="utf-8").partition("\n```")
    if code and any(page.match(pattern) for pattern in journey.IN_A_CHECKOUT):
        assert re.search(r"\bcheckout\b", before)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in OF_THE_JOURNEY],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_a_page_shows_runs(
    page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in PAGES_ELSEWHERE:
        pytest.skip(f"its code is run by {PAGES_ELSEWHERE[page.name]}")
    monkeypatch.setenv("TVM_NUM_THREADS", os.environ.get("TVM_NUM_THREADS", "1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = Document.parse(str(page), *PARSERS)
    document.namespace["__name__"] = "__main__"
    schedules = {key: [*known] for key, known in strategy._STRATEGIES.items()}
    rules, modules = {*ANCHOR_RULES}, {*sys.modules}
    try:
        for example in document.examples():
            with contextlib.suppress(unittest.SkipTest):  # of a block with a reason
                example.evaluate()
    finally:
        strategy._STRATEGIES.update(schedules)
        for name in ANCHOR_RULES.keys() - rules:
            del ANCHOR_RULES[name]
        for name in sys.modules.keys() - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_what_is_not_run_is_in_one_table() -> None:
    blocks, commands = set(), []
    for page in PAGES:
        text = page.read_text()
        for skipped in re.findall(r"<!--- skip: (.*?) ?-->", text):
            reason = re.search(r'"([^"]+)"\)?$', skipped)
            assert reason, f"{page.name}: skip: {skipped} gives no reason"
            blocks.add((page.relative_to(ROOT).as_posix(), reason[1]))
        for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S):
            assert language in LANGUAGES, f"{page.name}: a block of {language!r}"
            if language == "sh":
                commands += [shlex.join(words) for words in command_lines(block)]
            else:
                assert not re.search(r"^(\$ )?baton ", block, re.M), f"{page.name}: {block}"
    assert blocks == BLOCKS
    assert sorted(COMMANDS) == sorted(journey.ONLY_PARSED)
    for start, (reason, test) in COMMANDS.items():
        assert any(each.startswith(start) for each in commands), f"no page has {start!r}"
        assert reason and (ROOT / "tests" / test).is_file(), start
    for page_name, test in PAGES_ELSEWHERE.items():
        assert any(page.name == page_name for page in PAGES)
        assert list((ROOT / "tests").rglob(test)), test
