#!/usr/bin/env python3
"""Run MXNet's own tests of blocks, subgraphs and deferred compute over Baton, and count.

    python scripts/dev/mxnet_tests.py CHECKOUT                        # the files of DEFAULT
    python scripts/dev/mxnet_tests.py CHECKOUT test_deferred_compute.py
    python scripts/dev/mxnet_tests.py CHECKOUT --results out          # resumes what out/ lacks
    python scripts/dev/mxnet_tests.py CHECKOUT --results out --failed # runs again what failed

CHECKOUT is a source tree of MXNet 1.9 or 2.0; its files are read, none is copied or changed.
`mxnet_shim.py` has the names that they import. "Refused by design" are the tests that ask for
training, gradients or sparse arrays and get the error that says that Baton has none.
"""

from __future__ import annotations

import pathlib
import sys

import foreign_tests
import mxnet_shim

DEFAULT = (
    "test_subgraph_op.py",
    "test_deferred_compute.py",
    "test_gluon.py",
    "test_extensions.py",
)
LIBRARIES = {
    "libcustomop_lib.so": "lib_custom_op/gemm_lib.cc",
    "libsubgraph_lib.so": "lib_subgraph/subgraph_lib.cc",
}
"""What test_extensions.py loads, and its sources below `example/extensions`."""


def prepare(checkout: str) -> list[str]:
    """Install the old names of MXNet."""
    mxnet_shim.install()
    return []


def build_libraries(
    checkout: pathlib.Path, folder: pathlib.Path, files: list[pathlib.Path]
) -> None:
    """Compile the examples of libraries that test_extensions.py loads, unchanged."""
    if all(file.name != "test_extensions.py" for file in files):
        return
    sys.path.insert(0, str(foreign_tests.ROOT))
    from compiler import library

    for name, source in LIBRARIES.items():
        path = checkout / "example" / "extensions" / source
        if path.exists() and not (folder / name).exists():
            library.build([path], folder / name, ["-O1"])


SUITE = foreign_tests.Suite(
    script=__file__,
    description=__doc__,
    checkout="a source tree of MXNet 1.9 or 2.0",
    folders=(pathlib.Path("tests/python/unittest"),),
    default=DEFAULT,
    prepare=prepare,
    set_up=build_libraries,
)

if __name__ == "__main__":
    sys.exit(foreign_tests.main(SUITE))
