#!/usr/bin/env python3
"""Run what a reader copies from a page of the documentation, in the current folder.

    run_page.py docs/tutorial.md
    run_page.py docs/how_to/tune.md --parse "baton tune"   # such commands are only parsed

Python blocks run in order in this process. A Python or C++ block that begins with the name of a
file, `# mine.py` or `// mine.cc`, is saved under it instead; other C++ is left out. Each line of a
shell block that starts with `baton` or `python` runs as its own process, with this Python's
packages. Other lines install packages or build C++, and are left out. A block behind
`<!--- skip: next if(not has_gpu, ...) -->` needs what this machine may lack, and one behind
`<!--- skip: next "..." -->` never runs.
Needs the standard library only, so that it runs where nothing but Baton is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

BLOCK = re.compile(
    r"(?:<!--- skip: next (?:if\(not (?P<needs>\w+),|(?P<never>\"))[^\n]*-->\s*)?"
    r"^```(?P<language>python|cpp|sh)\n(?P<text>.*?)^```",
    re.M | re.S,
)
FILE = re.compile(r"(?:#|//) (\w+\.(?:py|cc))\n")
"""The first line of a block that is a file."""
NEEDS: dict[str, Callable[[], bool]] = {
    "has_cross_compiler": lambda: shutil.which("aarch64-linux-gnu-g++") is not None,
    "has_gpu": lambda: shutil.which("nvidia-smi") is not None,
    "has_nvcc": lambda: shutil.which("nvcc") is not None,
    "has_torch": lambda: importlib.util.find_spec("torch") is not None,
}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each block that this machine can run."""
    for found in BLOCK.finditer(text):
        if found["never"] is None and (found["needs"] is None or NEEDS[found["needs"]]()):
            yield found["language"], found["text"]


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of each line of a shell block, without comments and optional arguments."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(re.sub(r"\[[^']*?\]", "", line), comments=True)
        if words:
            yield words


def run_command(words: list[str], parse: Sequence[str]) -> None:
    """Run a command line, or only ask for its help; raises CalledProcessError if it fails."""
    if words[0] not in ("baton", "python"):
        return
    line = shlex.join(words)
    if any(line.startswith(start) for start in parse):
        words = [*words[:2], "--help"]
    module = ["-m", "compiler"] if words[0] == "baton" else []
    print(f"$ {line}", flush=True)
    subprocess.run([sys.executable, *module, *words[1:]], check=True)


def run_page(page: pathlib.Path, parse: Sequence[str]) -> int:
    """Run all blocks of a page, in order; returns how many there were."""
    sys.path.insert(0, str(pathlib.Path.cwd()))  # as for a program in this folder
    namespace = {"__name__": "__main__"}
    count = 0
    for language, text in blocks(page.read_text(encoding="utf-8")):
        count += 1
        name = FILE.match(text)
        if language == "sh":
            for words in command_lines(text):
                run_command(words, parse)
        elif name:
            pathlib.Path(name[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, f"{page.name}, block {count}", "exec"), namespace)
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one page."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument(
        "--parse", action="append", default=[], metavar="START", help="only parse such commands"
    )
    options = parser.parse_args(arguments)
    print(f"{options.page.name}: {run_page(options.page, options.parse)} blocks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
