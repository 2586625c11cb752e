"""Runs with extents that were there before take no new memory."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys

import pytest

COUNTER = r"""
#include <errno.h>
#include <stddef.h>
static long count;
long large_allocations(void) { return count; }
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
static void note(size_t bytes) {
  if (bytes >= 8192) __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
}
void *malloc(size_t n) { note(n); return __libc_malloc(n); }
void *calloc(size_t a, size_t b) { note(a * b); return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { note(n); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { note(n); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { note(n); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
  note(n);
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}
"""

PROGRAM = """
import ctypes, json, sys
import numpy as np
import tvm
from compiler import relay
from compiler.runtime import graph_executor

count = ctypes.CDLL(None).large_allocations
count.restype = ctypes.c_long
x = relay.var("x", shape=("batch", "seq", 64))
weights = [relay.const(np.ones(shape, "float32")) for shape in ((96, 64), (64, 96))]
y = relay.reshape(x, (-1, 64))
for weight in weights:
    y = relay.nn.softmax(relay.nn.dense(y, weight))
mod = relay.with_bounds(tvm.IRModule.from_expr(relay.Function([x], y)), json.loads(sys.argv[1]))
library = relay.build(mod, "llvm")
module = graph_executor.GraphModule(library["default"](tvm.cpu()))
rounds = []
for _ in range(3):
    for batch, seq in ((1, 300), (4, 50), (3, 7), (4, 300)):
        module.set_input("x", np.ones((batch, seq, 64), "float32"))
        before = count()
        module.run()
        rounds.append(count() - before)
print(json.dumps([library.report.activations_bytes, rounds]))
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library in front of glibc's that counts large allocations."""
    compiler = shutil.which("gcc")
    if compiler is None or not (ctypes.util.find_library("c") or "").startswith("libc.so.6"):
        pytest.skip("there is no gcc, or the C library is not glibc")
    folder = tmp_path_factory.mktemp("counter")
    (folder / "count.c").write_text(COUNTER)
    library = str(folder / "count.so")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, str(folder / "count.c")]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.mark.parametrize("bounds", [{}, {"batch": 4, "seq": 300}])
def test_extents_that_were_there_before_allocate_nothing(counter, bounds):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(bounds)],
        env={**os.environ, "LD_PRELOAD": counter},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    planned, rounds = json.loads(ran.stdout.splitlines()[-1])
    assert rounds[4:] == [0] * 8
    assert rounds[0] > 0
    if bounds:  # memory for the largest extents at once; beside it only the results are new
        assert max(rounds[1:4]) <= 1
        assert planned >= 4 * 300 * 96 * 4
