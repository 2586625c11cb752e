"""Whether this machine can compile for a target, and what it lacks if not."""

from __future__ import annotations

import tvm
from tvm.target import Target

from compiler.errors import UnavailableTargetError
from compiler.runtime import cuda_runtime

from . import nvcc
from .config import to_cli


def check_buildable(target: Target) -> None:
    """Raise UnavailableTargetError unless this machine can compile for a target from `parse`.

    The error names what is missing: the code generator, the CUDA compiler or its support for the
    architecture, a C compiler, or TVM's runtime for the device.
    """
    kind = str(target.kind.name)
    shown = repr(to_cli(target))
    if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        raise UnavailableTargetError(f"{shown}: this TVM has no code generator for {kind!r}")
    if kind == "cuda":
        try:
            nvcc.require(str(target.attrs["arch"]))
        except UnavailableTargetError as error:
            raise UnavailableTargetError(f"{shown}: {error}") from error
        cuda_runtime.missing()  # loaded where it can be, so that tvm.cuda() is there afterwards
    elif kind == "c":
        if tvm.support.cc.get_cc() is None:
            raise UnavailableTargetError(f"{shown}: no C compiler; install gcc or set CXX")
    elif kind != "llvm":
        loader = f"ffi.Module.load_from_bytes.{kind}"
        if tvm.get_global_func(loader, allow_missing=True) is None:
            raise UnavailableTargetError(
                f"{shown}: this TVM has no runtime for {kind!r}, so that nothing compiled for it "
                "could be loaded; build for llvm or cuda"
            )
    if target.host is not None:
        check_buildable(target.host)
