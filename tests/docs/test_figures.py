"""Every measured figure of the documentation has the date on which it was recorded."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIGURE = re.compile(
    r"\bms\b|\bmicroseconds of|\d ?(?:us|GB/s|GFLOP/s|GOP/s)\b|times (?:faster|as (?:fast|long))"
    r"|\d ?% (?:faster|slower)|geometric mean"
)
"""A time, a rate or a comparison of times."""
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def undated(text: str) -> Iterator[str]:
    """Headings of sections with a figure and no date, in themselves or in a section around them."""
    around: list[tuple[int, bool]] = []
    for section in re.split(r"(?m)^(?=#+ )", re.sub(r"(?ms)^```.*?^```", "", text)):
        heading = section.partition("\n")[0]
        level = len(heading) - len(heading.lstrip("#"))
        around = [each for each in around if each[0] < level]
        around.append((level, DATE.search(section) is not None))
        if FIGURE.search(section) and not any(dated for _, dated in around):
            yield heading


def test_a_figure_without_a_date_is_found() -> None:
    text = "# A\n\n1.5 ms\n## B\n\n3 GB/s, 2026-11-21\n### C\n\n2 us\n## D\n\n7% slower\n"
    assert list(undated(text)) == ["# A", "## D"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_have_a_date(page: pathlib.Path) -> None:
    assert not list(undated(page.read_text(encoding="utf-8"))), "no date of a figure"
