"""Where Baton keeps what it may lose: $XDG_CACHE_HOME/baton, else ~/.cache/baton."""

from __future__ import annotations

import os
from pathlib import Path

MISSING = "there is no home folder; set XDG_CACHE_HOME to a folder that can be written"


def cache_folder() -> Path | None:
    """This user's cache folder, which need not exist; None for a user without a home folder.

    As the XDG specification has it, a relative XDG_CACHE_HOME is ignored: the cache holds code,
    and the current folder may be anybody's.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):
        home = os.path.expanduser("~")  # "~" itself where neither HOME nor a passwd entry tells
        if not os.path.isabs(home):
            return None
        root = os.path.join(home, ".cache")
    return Path(root, "baton")
