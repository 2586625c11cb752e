"""The pages of the reference name what is there, under the names that scripts import."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import re
from typing import Any

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
ENTRY = re.compile(r"^::: (\S+)\n(?:    options:\n)?(?:      heading: (\S+)\n)?", re.M)


def find(path: str) -> Any:
    """The module, class or function of a dotted name."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"there is no {path}")


@pytest.mark.parametrize("page", sorted((DOCS / "reference").glob("*.md")), ids=lambda p: p.stem)
def test_each_entry_is_what_its_heading_says(page):
    entries = ENTRY.findall(page.read_text())
    assert entries
    for defined, public in entries:
        assert (find(defined).__doc__ or "").strip(), f"{defined} has no docstring"
        if public:
            assert find(public) is find(defined), public


def test_the_command_page_has_every_command():
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.command_page()
    for command in ("compile", "profile", "partitioner build", "runtime build", "tune"):
        assert f"## `baton {command}`" in page
    assert "--dot" in page
