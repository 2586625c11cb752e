"""The oracle's loader under a name that every test of this folder can import."""

import importlib.util
import pathlib
import sys

_FILE = pathlib.Path(__file__).with_name("oracle.py")
_NAME = "tests_relay_oracle"

if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, _FILE)
    assert _spec is not None and _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])
