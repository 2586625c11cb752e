"""Names of passes that `tvmc --disabled-pass` takes."""

from __future__ import annotations

import argparse

from ..pass_names import known


def parse_pass_list_str(text: str) -> list[str]:
    """The names in a text with commas between them.

    Raises argparse.ArgumentTypeError: a name is not that of a pass.
    """
    names = text.split(",")
    unknown = [name for name in names if name and name not in known()]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no pass {', '.join(unknown)}; there are {', '.join(sorted(known()))}"
        )
    return names
