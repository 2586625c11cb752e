"""`tvm.testing` of TVM 0.18: the decorators that say where a test runs, and with which targets.

TVM's own `tvm.testing` is kept; what it no longer has is added to it when it is imported.
`compiler.legacy.testing_plugin` is the pytest plugin that gives tests `target` and `dev`.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import tvm

from ..support.noop_api import install_request_hook
from .patches import Patches

DEFAULT_TARGETS = (
    "llvm",
    "cuda",
    "nvptx",
    "vulkan -from_device=0",
    "opencl",
    "opencl -device=mali",
    "opencl -device=intel_graphics",
    "metal",
    "rocm",
    "hexagon",
)

_GPUS = ("cuda", "rocm", "opencl", "metal", "vulkan")
_groups = itertools.count()


def targets() -> list[str]:
    """The targets of the environment variable TVM_TEST_TARGETS, or all that TVM 0.18 tested."""
    listed = os.environ.get("TVM_TEST_TARGETS", "")
    chosen = [entry.strip() for entry in listed.split(";") if entry.strip()]
    return list(dict.fromkeys(chosen)) or list(DEFAULT_TARGETS)


def kind_of(target: Any) -> str:
    """ "cuda" of "cuda -arch=sm_80", of a dict or of a Target."""
    if isinstance(target, str) and not target.startswith("{"):
        return target.split()[0]
    return str(tvm.target.Target(target).kind.name)


@functools.cache
def runs(kind: str) -> bool:
    """Whether this TVM has the target kind and this machine the device."""
    if not tvm.runtime.enabled(kind):
        return False
    try:
        return bool(tvm.device(kind).exist)
    except (ValueError, RuntimeError):
        return False


def device_enabled(target: Any) -> bool:
    """Whether tests use the target's kind, and this machine can run it."""
    kind = kind_of(target)
    return runs(kind) and any(kind == kind_of(each) for each in targets())


def enabled_targets() -> list[tuple[str, Any]]:
    """The targets that tests use and this machine can run, with their devices."""
    found = [each for each in targets() if runs(kind_of(each))] or ["llvm"]
    return [(each, tvm.device(kind_of(each))) for each in found]


def parametrize_targets(*chosen: Any) -> Any:
    """Run a test once for each target; bare, for all that tests use."""
    if len(chosen) == 1 and callable(chosen[0]):
        return chosen[0]
    return pytest.mark.parametrize("target", list(chosen), scope="session")


def exclude_targets(*kinds: str) -> Callable[[Any], Any]:
    """Run a test for all targets but these kinds."""
    return _with_attribute("tvm_excluded_targets", kinds)


def known_failing_targets(*kinds: str) -> Callable[[Any], Any]:
    """Expect a test to fail for these kinds of targets."""
    return _with_attribute("tvm_known_failing_targets", kinds)


def _with_attribute(name: str, value: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        setattr(function, name, value)
        return function

    return decorate


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """Fixtures whose values belong together: one per position of the given tuples.

    The plugin runs a test once for each of the tuples, not for all combinations.
    """
    group = next(_groups)

    def make(values: tuple[Any, ...]) -> Any:
        def value(*_cls: Any, request: Any) -> Any:
            return request.param

        made: Any = value
        made.parametrize_group = group
        made.parametrize_values = values
        made.parametrize_ids = ids
        return pytest.fixture(made)

    return [make(values) for values in zip(*value_sets)]


class Feature:
    """What a test needs of the machine: `@requires_cuda`, or `requires_cuda.marks()`.

    `name`: name of the mark that tests get. `available`: tells whether the machine has it; asked
    when a test is decorated.
    """

    def __init__(self, name: str, available: Callable[[], bool]) -> None:
        self.name = name
        self._available = available

    def marks(self, support_required: str = "compile-and-run") -> list[Any]:
        """The marks of a test; only "optional" runs where the feature is missing."""
        marks = [getattr(pytest.mark, self.name)]
        if support_required != "optional":
            reason = f"this machine or this TVM has no {self.name}"
            marks.append(pytest.mark.skipif(not self._available(), reason=reason))
        return marks

    def __call__(self, function: Any = None, *, support_required: str = "compile-and-run") -> Any:
        """The test, marked; without a test, the decorator, which TVM 0.8 took for the marks."""
        decorator = _Decorator(functools.partial(self.marks, support_required))
        return decorator if function is None else decorator(function)


class _Decorator:
    """Gives marks to a test; they are made when they are asked for."""

    def __init__(self, marks: Callable[[], list[Any]]) -> None:
        self._marks = marks

    def __iter__(self) -> Iterator[Any]:
        return iter(self._marks())

    def __call__(self, test: Any) -> Any:
        for mark in self:
            test = mark(test)
        return test


def _gpus(count: int) -> bool:
    return any(
        runs(kind) and all(tvm.device(kind, index).exist for index in range(count))
        for kind in _GPUS
    )


def _cpu(*features: str) -> Callable[[], bool]:
    def check() -> bool:
        from ..target import host_cpu_features

        return set(features) <= host_cpu_features()

    return check


def _features() -> Iterator[Feature]:
    for kind in ("llvm", "nvptx", "hexagon", *_GPUS):
        yield Feature(kind, functools.partial(runs, kind))
    yield Feature("gpu", functools.partial(_gpus, 1))
    yield Feature("multi_gpu", functools.partial(_gpus, 2))
    yield Feature("x86", lambda: platform.machine() == "x86_64")
    yield Feature("aarch64", lambda: platform.machine() == "aarch64")
    for name in ("tensorcore", "cudagraph"):
        yield Feature(name, functools.partial(runs, "cuda"))
    yield Feature("rpc", lambda: True)
    for name, needed in {
        "arm_dot": ("dotprod",),
        "arm_fp16": ("fullfp16",),
        "aarch64_sve": ("sve",),
        "aarch64_sme": ("sme",),
        "x86_vnni": ("avx512vnni",),
        "x86_avx512": ("avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512f"),
        "x86_amx": ("amx-int8",),
    }.items():
        yield Feature(name, _cpu(*needed))
    # What TVM's wheels are built without, or TVM has no more.
    for name in (
        *("cudnn", "cublas", "nccl", "hipblas", "matrixcore", "cutlass", "openclml", "nnapi"),
        *("micro", "ethosn", "ethosu", "libtorch", "mrvl", "cmsisnn", "corstone300"),
        *("aprofile_aem_fvp", "vitis_ai"),
    ):
        yield Feature(name, lambda: False)


FEATURES = {feature.name: feature for feature in _features()}


def requires_package(*packages: str) -> Callable[[Any], Any]:
    """Skip a test unless Python finds all the packages."""

    def decorate(test: Any) -> Any:
        for package in packages:
            found = importlib.util.find_spec(package.partition(".")[0]) is not None
            test = pytest.mark.skipif(not found, reason=f"needs the package {package}")(test)
        return test

    return decorate


def requires_nvcc_version(major: int, minor: int = 0, release: int = 0) -> Callable[[Any], Any]:
    """Skip a test unless there is a CUDA device and nvcc is of that version."""

    def available() -> bool:
        return runs("cuda") and tvm.testing.env.has_nvcc_version(major, minor, release)

    return Feature("cuda", available)


def requires_cuda_compute_version(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """Skip a test unless there is a CUDA device of that compute capability."""

    def available() -> bool:
        return runs("cuda") and tvm.testing.env.has_cuda_compute(major, minor)

    return Feature("cuda", available)


def _parameterizations(
    chosen: Sequence[str], outcome: Callable[..., Any], reason: str
) -> Callable[[Any], Any]:
    """Run a test to `outcome` where the text between its brackets is one of `chosen`."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(request: Any, *args: Any, **kwargs: Any) -> Any:
            _, _, rest = request.node.name.partition("[")
            if rest[:-1] in chosen:
                outcome(reason=reason)
            return test(request, *args, **kwargs)

        return run

    return decorate


def skip_parameterizations(*chosen: str, reason: str) -> Callable[[Any], Any]:
    """Skip a test for some of its parameters."""
    return _parameterizations(chosen, pytest.skip, reason)


def xfail_parameterizations(*chosen: str, reason: str) -> Callable[[Any], Any]:
    """Expect a test to fail for some of its parameters."""
    return _parameterizations(chosen, pytest.xfail, reason)


def enable_span_filling() -> Any:
    """A context in which importers fill in spans, as they always do today."""
    return tvm.transform.PassContext(config={"relay.frontend.fill_span": True})


def disable_span_filling() -> Any:
    """A context that asks importers for no spans, of which comparisons take no notice."""
    return tvm.transform.PassContext(config={"relay.frontend.fill_span": False})


def patch(patches: Patches) -> None:
    """Add to `tvm.testing` what TVM 0.18's had."""
    module = sys.modules["tvm.testing"]  # no attribute of tvm while it is being imported
    for function in (
        *(parametrize_targets, exclude_targets, known_failing_targets, parameters),
        *(requires_package, requires_nvcc_version, requires_cuda_compute_version),
        *(skip_parameterizations, xfail_parameterizations),
        *(enable_span_filling, disable_span_filling),
    ):
        patches.add(module, function.__name__, function)
    for owner in (module, module.utils):
        patches.set(owner, "enabled_targets", enabled_targets)
        patches.set(owner, "device_enabled", device_enabled)
    patches.set(module.utils, "install_request_hook", install_request_hook)
    for feature in FEATURES.values():
        patches.add(module, f"requires_{feature.name}", feature)
    for name in ("gpu", "multi_gpu"):
        patches.add(module, f"uses_{name}", FEATURES[name](support_required="optional"))
    patches.add(module, "Feature", Feature)
