"""Options and providers by onnxruntime's names, and what they are in a build of Baton's."""

from __future__ import annotations

import enum
import logging
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InputError, TargetError
from compiler.runtime.session import Session, default_threads
from compiler.runtime.thread_pool import require_thread_count

from .names import KnownNames, logger, without_effect
from .profiling import Profiling
from .values import OrtValue

if TYPE_CHECKING:
    from compiler.runtime import FactoryModule

TARGETS = {"CPUExecutionProvider": "llvm", "CUDAExecutionProvider": "cuda"}
"""Execution provider to the target that a session builds for."""
_SHAPES = "baton.shapes"
_LIMITS = {"baton.cached_builds": 32, "baton.cached_bytes": 4 << 30}
"""What a session keeps of the builds for single shapes; see docs/onnxruntime_scripts.md."""


class GraphOptimizationLevel(enum.IntEnum):
    """How much a session optimizes; a build's opt_level is at most 3."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether independent operators may run at a time; Baton's kernels are parallel inside."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """The order of operators that don't depend on each other; the build fixes it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@dataclass(slots=True)
class SessionOptions(KnownNames):
    """Options of a session.

    Attributes
    ----------
    intra_op_num_threads : int
        Threads that work on one request; 0 means TVM_NUM_THREADS, else the cores.
    graph_optimization_level : GraphOptimizationLevel
        Becomes the build's opt_level, 0 to 3.
    enable_profiling : bool
        Time each kernel; `InferenceSession.end_profiling` writes a file whose name begins with
        `profile_file_prefix`. Requests run one at a time.
    inter_op_num_threads, execution_mode, execution_order, enable_cpu_mem_arena, \
enable_mem_pattern, enable_mem_reuse, use_deterministic_compute, use_per_session_threads, \
log_severity_level, log_verbosity_level, logid
        Accepted, and without effect on what is built: memory is planned by the build, results
        don't depend on the threads, and messages come through Python's `logging`. The parts of a
        model that run in onnxruntime get none of them.
    optimized_model_filepath
        Rejected by `InferenceSession` unless empty: `baton compile` keeps a library.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
    execution_order: int = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    _dimensions: dict[str, int] = field(default_factory=dict)
    _denotations: dict[str, int] = field(default_factory=dict)
    _initializers: dict[str, np.ndarray] = field(default_factory=dict)
    _external: set[str] = field(default_factory=set)  # those of `_initializers` that must be
    _entries: dict[str, str] = field(default_factory=dict)
    _profiling: Profiling | None = None

    def add_free_dimension_override_by_name(self, name: str, extent: int) -> None:
        """Give the extent of a dynamic dimension of this name."""
        self._dimensions[name] = _extent(name, extent)

    def add_free_dimension_override_by_denotation(self, denotation: str, extent: int) -> None:
        """Give the extent of an ONNX model's dynamic dimensions of a denotation ("DATA_BATCH")."""
        self._denotations[denotation] = _extent(denotation, extent)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace the initializer of this name of an ONNX model; dtype and shape must be equal.

        The build reads the value when the session is made.
        """
        if not isinstance(value, OrtValue):
            raise InputError(
                f"initializer {name!r} must be an OrtValue, not {type(value).__name__}"
            )
        self._initializers[name] = value.numpy()

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Give values of initializers whose data an ONNX model keeps in other files."""
        if len(names) != len(values):
            raise InputError(f"{len(names)} names of initializers, but {len(values)} values")
        for name, value in zip(names, values):
            self.add_initializer(name, value)
        self._external.update(names)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry of the configuration; those that begin with "baton." have an effect.

        Parameters
        ----------
        key : str
            "baton.shapes": how a model with dynamic shapes is built. "symbolic": once, for all
            shapes. "static": for each new combination of shapes, during the first request that
            has it. "auto", the default: once for all shapes where Baton can, with a warning and
            as "static" otherwise. "baton.cached_builds" and "baton.cached_bytes": how many of the
            static builds are kept, those that were used last, and how many bytes their weights
            and intermediate tensors may take; 32 and 4 GiB by default.
        value : str

        Raises
        ------
        InputError
            There is no such value, or no such key of Baton's.
        """
        if key == _SHAPES and value not in ("auto", "symbolic", "static"):
            raise InputError(f'{_SHAPES} is "auto", "symbolic" or "static", not {value!r:.60}')
        if key in _LIMITS and not (value.isascii() and value.isdigit() and int(value[:19]) > 0):
            raise InputError(f"{key} is a number of at least 1, not {value!r:.60}")
        if key.startswith("baton.") and key not in (_SHAPES, *_LIMITS):
            raise InputError(f"there is no {key!r}; there are {', '.join((_SHAPES, *_LIMITS))}")
        if not key.startswith("baton."):
            logger.info("session configuration %s=%s has no effect in Baton", key, value)
        self._entries[key] = value

    @property
    def shapes(self) -> str:
        """How a model with dynamic shapes is built: "auto", "symbolic" or "static"."""
        return self._entries.get(_SHAPES, "auto")

    def limit(self, key: str) -> int:
        """The number of an entry: "baton.cached_builds" or "baton.cached_bytes"."""
        return int(self._entries.get(key, _LIMITS[key]))

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added."""
        if key not in self._entries:
            raise InputError(f"there is no session configuration {key!r}")
        return self._entries[key]

    def require_possible(self) -> None:
        """Raise for what a session of Baton's can't do.

        Raises
        ------
        InputError
            Names the option and what to use.
        """
        if self.optimized_model_filepath:
            raise InputError(
                "optimized_model_filepath: Baton writes no ONNX; `baton compile -o` keeps a library"
            )
        require_thread_count("intra_op_num_threads", self.intra_op_num_threads, least=0)


@dataclass(slots=True)
class RunOptions(KnownNames):
    """Options of one run.

    `terminate`: a run that is to start raises InputError. The others have no effect.
    """

    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    _entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry of the configuration; none has an effect in Baton."""
        logger.info("run configuration %s=%s has no effect in Baton", key, value)
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added."""
        if key not in self._entries:
            raise InputError(f"there is no run configuration {key!r}")
        return self._entries[key]


def get_available_providers() -> list[str]:
    """Names of the execution providers that this machine can compile for and run."""
    from compiler.tvm_workarounds.fast_import import tvm

    names = ["CPUExecutionProvider"]
    return ["CUDAExecutionProvider", *names] if tvm.cuda(0).exist else names


def get_device() -> str:
    """ "GPU" where there is one, else "CPU"."""
    return "GPU" if "CUDAExecutionProvider" in get_available_providers() else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Set the level of Baton's messages: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    if severity not in range(len(levels)):
        raise InputError(f"a severity is 0 to {len(levels) - 1}, not {severity!r:.60}")
    logging.getLogger("baton").setLevel(levels[severity])


def get_all_providers() -> list[str]:
    """Names of the execution providers that Baton has, here or elsewhere."""
    return sorted(TARGETS, reverse=True)


def get_version_string() -> str:
    """The version of onnxruntime whose names Baton has."""
    from compiler import ort

    return ort.__version__


def get_build_info() -> str:
    """The versions of Baton and TVM."""
    from compiler import __version__
    from compiler.tvm_workarounds.fast_import import tvm

    return f"Baton {__version__}, TVM {tvm.__version__}"


def has_collective_ops() -> bool:
    """False: a model runs on one device."""
    return False


disable_telemetry_events = without_effect("onnxruntime.disable_telemetry_events")
enable_telemetry_events = without_effect("onnxruntime.enable_telemetry_events")
preload_dlls = without_effect("onnxruntime.preload_dlls")
set_default_logger_verbosity = without_effect("onnxruntime.set_default_logger_verbosity")
set_seed = without_effect("onnxruntime.set_seed")


def session_of(library: FactoryModule, options: SessionOptions) -> Session:
    """A session of a library: the cores, shared between requests."""
    if options._profiling is not None:
        return options._profiling.session(library, options.intra_op_num_threads or None)
    cores = default_threads()
    threads = options.intra_op_num_threads or cores
    return library.session(num_threads=threads, parallel=max(1, cores // threads))


def _extent(name: str, extent: int) -> int:
    if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
        raise InputError(f"the extent of dimension {name!r} can't be {extent!r:.60}")
    return extent


def provider_names(providers: Iterable[str | tuple[str, Any]]) -> list[str]:
    """The names of providers, some of which may have options beside them."""
    return [entry if isinstance(entry, str) else entry[0] for entry in providers]


def choose_provider(providers: Iterable[str | tuple[str, Any]] | None) -> str:
    """The first of the providers that is here; the others of those before it are warned of.

    Raises
    ------
    TargetError
        None of them is.
    """
    available = get_available_providers()
    names = available if providers is None else provider_names(providers)
    for index, name in enumerate(names):
        if name in available:
            if index:
                warnings.warn(f"{', '.join(names[:index])}: not here; using {name}", stacklevel=6)
            return name
    raise TargetError(
        f"none of the providers {', '.join(names) or '(none given)'} is available; Baton has "
        f"{', '.join(available)} on this machine"
    )
