"""Lets the tests of this folder import its templates, which worker processes get by value."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
