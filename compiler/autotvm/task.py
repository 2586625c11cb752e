"""AutoTVM tasks: a template with its arguments, the space of its configs, and how to find them.

    tasks = autotvm.task.extract_from_program(mod["main"], target=target, params=params)

A template is an implementation of the schedule library, or a function of the user's:

    @autotvm.template("matmul")
    def matmul(n, m, k):
        a = te.placeholder((n, k), name="a")
        ...
        cfg = autotvm.get_config()
        cfg.define_split("tile_y", n, num_outputs=2)
        sch = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))
        y, x, k = sch.get_loops(sch.get_sblock("c"))
        yo, yi = cfg["tile_y"].apply(sch, y)
        return sch, [a, b, c]
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from schedules.config import ConfigEntity, InstantiationError
from schedules.fallback_config import FallbackConfigEntity
from schedules.space import ConfigSpace, space_of

from ..errors import RecordError, ScheduleError
from ..measure.candidate import ArgInfo, Lowered, Reference
from ..records.autotvm.record import LoggedTask
from ..records.autotvm.workload import normalize, to_tuple
from ..support.lazy_import import by_module, lazy_attributes
from ..support.scoped_context import scoped_value
from . import raise_gone

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target

    from .operators import Tunable


logger = logging.getLogger("baton.autotvm")


@dataclass
class UserTemplate:
    """A template that the user registered."""

    name: str
    # (arguments) -> (schedule, tensors), as `template` takes it
    function: Callable[..., Any] | None = None
    # The pair that `register_topi_compute` and `register_topi_schedule` take
    compute: Callable[..., Any] | None = None
    schedule: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None  # (input arrays) -> output array, or tuple of them

    def instantiate(self, config: Any, args: tuple) -> tuple[Any, list[Any]]:
        """Schedule and tensors for a config, or for a space that collects the knobs."""
        with scoped_value(_CONFIG, config):
            if self.function is not None:
                made = self.function(*args)
                if not isinstance(made, tuple) or len(made) != 2:
                    raise InstantiationError(
                        f"template {self.name} must return (schedule, tensors), and returned "
                        f"a {type(made).__name__}"
                    )
                return made
            if self.compute is None or self.schedule is None:
                raise InstantiationError(f"template {self.name} has no compute or no schedule")
            return _topi_style(self.compute, self.schedule, config, args)

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        functions = (self.function, self.compute, self.schedule, self.reference)
        return tuple(function for function in functions if function is not None)


TEMPLATES: dict[str, UserTemplate] = {}
_CONFIG: ContextVar[Any] = ContextVar("autotvm_config", default=None)


def get_config() -> Any:
    """The config of the template that is running: a space while its knobs are collected.

    Outside of a template it is that of an `ApplyConfig` around the call, or else a new
    `FallbackConfigEntity`, with a warning.
    """
    config = _CONFIG.get()
    if config is not None:
        return config
    from ..records.autotvm.dispatcher import ApplyConfig, DispatchContext

    for context in DispatchContext.active():
        if isinstance(context, ApplyConfig):
            return context.config
    logger.warning(
        "get_config() outside of a template: no record is found for it, and a fallback may be slow"
    )
    return FallbackConfigEntity()


def template(
    task_name: str | Callable[..., Any], reference: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Decorator: the function is the template `task_name`; bare, that of the function's own name.

    It gets a task's arguments and returns a schedule and the list of its tensors, inputs first. The
    schedule is a `tvm.s_tir.Schedule`, a PrimFunc, an IRModule, or a TE schedule
    (`compiler.legacy.te`). Called outside of a task, it uses the config that the dispatch contexts
    have for the arguments on the current target, and without one a `FallbackConfigEntity`:
    `cfg.is_fallback` is true, and each knob is its first candidate or what the template sets it to.

    Parameters
    ----------
    reference : callable, optional
        (input arrays) -> output array or tuple of arrays: what `check_correctness` compares with.
    """
    if callable(task_name):
        return template(task_name.__name__)(task_name)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        registered = TEMPLATES[task_name] = UserTemplate(task_name, function, reference=reference)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if _CONFIG.get() is not None:
                return function(*args)
            with scoped_value(_CONFIG, _config_in_context(registered, args)):
                return function(*args)

        return call

    return register


def _config_in_context(template: UserTemplate, args: tuple) -> Any:
    """The config for arguments from the dispatch contexts of this thread, or a fallback."""
    from tvm.target import Target

    from ..records.autotvm.dispatcher import DispatchContext

    target = Target.current()
    if target is not None:
        workload = (template.name, *serialize_args(args))
        found = DispatchContext.current.query(target, workload)
        if found is not None:
            return found
    return FallbackConfigEntity()


def register_topi_compute(task_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: (cfg, *arguments) -> output tensor, the compute of the template `task_name`.

    Tensors among the task's arguments come as placeholders.
    """
    return _registering(task_name, "compute")


def register_topi_schedule(task_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: (cfg, sch), the schedule of the template `task_name`.

    `sch` is a `tvm.s_tir.Schedule` of the compute's function, and is changed in place.
    """
    return _registering(task_name, "schedule")


def _registering(task_name: str, part: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that sets one part of the template `task_name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        held = TEMPLATES.get(task_name)
        if held is None or held.function is not None:
            held = TEMPLATES[task_name] = UserTemplate(task_name)
        setattr(held, part, function)
        return function

    return register


def _topi_style(
    compute: Callable[..., Any], schedule: Callable[..., Any], config: Any, args: tuple
) -> tuple[Any, list[Any]]:
    from tvm import s_tir, te

    placed, inputs = [], []
    for position, arg in enumerate(args):
        if isinstance(arg, tuple) and arg[:1] == ("TENSOR",):
            arg = te.placeholder(arg[1], arg[2], name=f"arg{position}")
            inputs.append(arg)
        placed.append(arg)
    out = compute(config, *placed)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    sch = s_tir.Schedule(te.create_prim_func([*inputs, *outs]))
    schedule(config, sch)
    return sch, [*inputs, *outs]


# --- tasks -------------------------------------------------------------------------------


class Task:
    """A template and its arguments on a target.

    Attributes
    ----------
    name : str
    args : tuple
    kwargs : dict
        Always empty, as in AutoTVM.
    target : tvm.target.Target
    weight : int
        How often the program that it was extracted from computes it.
    """

    kwargs: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, name: str, args: Sequence[Any], target: Target, weight: int = 1) -> None:
        self.name = name
        self.args = serialize_args(args)
        self.target = target
        self.weight = weight
        self._template = TEMPLATES.get(name)

    def __repr__(self) -> str:
        return f"Task({self.name}, {self.args})"

    def __getstate__(self) -> dict[str, Any]:
        """For other processes, which find the library's implementation and its space anew."""
        found = ("tunable", "config_space") if self._template is None else ()
        return {name: value for name, value in vars(self).items() if name not in found}

    @property
    def workload(self) -> tuple:
        """The key that dispatch contexts look up: (name, *args)."""
        return (self.name, *self.args)

    @property
    def target_host(self) -> Any:
        """Host target of a GPU target; None for a CPU."""
        return self.target.host

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions that a worker process must get."""
        return self._template.user_functions if self._template else ()

    @property
    def logged(self) -> LoggedTask:
        """The task as records have it."""
        return LoggedTask(self.name, self.args)

    @cached_property
    def config_space(self) -> ConfigSpace:
        """All configs; InstantiationError without a template of that name for the arguments."""
        if self._template is not None:
            space = ConfigSpace()
            with self.target:
                self._template.instantiate(space, self.args)
            return space
        return space_of(self.name, self.tunable.workload, self.target)

    @cached_property
    def tunable(self) -> Tunable:
        """The implementation of the schedule library that the task tunes."""
        from . import operators

        return operators.find(self.name, self.args, self.target)

    @cached_property
    def flop(self) -> float:
        """Operations of one call; what the template said, or counted.

        Raises ScheduleError: they can't be counted, and the template does not call `cfg.add_flop`.
        """
        if self._template is None:
            return self.tunable.operator.flop(self.tunable.workload)
        if self.config_space.flop:
            return self.config_space.flop
        from ..primfuncs.query import count_flops

        made, tensors = self._template.instantiate(ConfigSpace(), self.args)
        count = count_flops(_function(made, tensors))
        if count is None:
            raise ScheduleError(
                f"the operations of {self.name} can't be counted, by which its configs are "
                "compared; say them in the template: cfg.add_flop(...)"
            )
        return float(count)

    @property
    def fallback(self) -> ConfigEntity | None:
        """The config that is used without a record; None where there is no such config."""
        if self._template is not None:
            return self.config_space.get(0) if self.config_space.is_index_valid(0) else None
        found = self.tunable.implementation.fallback(self.tunable.workload, self.target)
        index = self.config_space.index_of(found)
        return None if index is None else self.config_space.get(index)

    def instantiate(self, config: ConfigEntity) -> tuple[Any, list[Any]]:
        """The scheduled function and its tensors, as the template returns them.

        The schedule library's are a PrimFunc and TE tensors. Raises InstantiationError: the config
        can't be scheduled.
        """
        if self._template is not None:
            with self.target:
                return self._template.instantiate(config, self.args)
        from tvm import te

        from schedules import rules

        tunable = self.tunable
        tensors = tunable.operator.kernel(tunable, config, self.target)
        scheduled = rules.schedule(te.create_prim_func(tensors), self.target)
        if scheduled is None or scheduled.rule != self.name:
            raise InstantiationError(f"{self.name} can't schedule {config.to_entity()}")
        return scheduled.func, tensors


def _era() -> str | None:
    """The version of TVM whose names the templates of this process may use; None for today's."""
    switch = sys.modules.get("compiler.legacy.installation")
    return None if switch is None else switch.era()


@dataclass(frozen=True)
class TaskCandidate:
    """One config of a task, to be measured; a `measure.Candidate`."""

    task: Task
    config: ConfigEntity
    # What the worker process needs of `compiler.legacy`, as this one has it
    era: str | None = field(default_factory=_era)

    @property
    def target(self) -> Target:
        """The candidate as a user-defined builder or runner sees it."""
        return self.task.target

    @property
    def modules(self) -> tuple[str, ...]:
        return (
            "compiler.autotvm.operators",
            "compiler.tvm_workarounds.index_guard",
            "schedules.rules",
        )

    @property
    def device(self) -> str:
        kind = str(self.task.target.kind.name)
        return "cpu" if kind == "llvm" else kind

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        return self.task.user_functions

    def lower(self) -> Lowered:
        """Instantiate the template."""
        import tvm

        if self.era:
            from .. import legacy

            legacy.install(everything=True, era=self.era)

        from ..tvm_workarounds.index_guard import guard_indices

        made, tensors = self.task.instantiate(self.config)
        func = guard_indices(_function(made, tensors)).with_attr("global_symbol", "main")
        args = tuple(map(ArgInfo.of, tensors))
        return Lowered(tvm.IRModule({"main": func}), self.task.target, args)

    def reference(self) -> Reference | None:
        """numpy's result for operators of the library, the template's own for others."""
        template = self.task._template
        if template is None:
            from .operators import OperatorReference

            return OperatorReference(self.task.tunable, self.config, self.task.target)
        if template.reference is None:
            return None
        _, tensors = self.task.instantiate(self.config)
        return _FunctionReference(template.reference, list(map(ArgInfo.of, tensors)))


class _FunctionReference:
    """Reference result computed by a user-defined function."""

    def __init__(self, function: Callable[..., Any], args: Sequence[ArgInfo]) -> None:
        from ..measure.timing import random_values

        self._function = function
        self._values = random_values(args)

    def arguments(self) -> Sequence[np.ndarray]:
        return self._values

    def relative_error(self, arguments: Sequence[np.ndarray]) -> float:
        import inspect

        takes = inspect.signature(self._function).parameters
        count = len(takes) if len(takes) < len(arguments) else len(arguments) - 1
        expected = self._function(*self._values[:count])
        outputs = expected if isinstance(expected, (list, tuple)) else [expected]
        errors = []
        for right, found in zip(outputs, arguments[count:], strict=True):
            right = np.asarray(right, "float64")
            scale = float(np.abs(right).max()) or 1.0
            errors.append(float(np.abs(found - right).max()) / scale)
        return max(errors)


def _function(made: Any, tensors: Sequence[Any]) -> tvm.tirx.PrimFunc:
    """The one function of a schedule, a module or a function."""
    import tvm

    if not hasattr(made, "mod") and hasattr(made, "stages"):
        from ..legacy.te.lowering import schedule_to_function

        return schedule_to_function(made, tensors)
    mod = getattr(made, "mod", made)
    if isinstance(mod, tvm.tirx.PrimFunc):
        return mod
    functions = [f for _, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    if len(functions) != 1:
        raise InstantiationError(f"the template's module has {len(functions)} functions, not one")
    return functions[0]


def create(
    task_name: str | Callable[..., Any],
    args: Sequence[Any],
    target: Any,
    target_host: Any | None = None,
    template_key: str | None = None,
) -> Task:
    """Make a task.

    Parameters
    ----------
    task_name : str or callable
        Of a user's template, or of an implementation of the schedule library; or the function
        of a template without a name, which is a template from then on if it was none.
    args : sequence
        TE tensors, or ("TENSOR", shape, dtype) for them, and plain values.
    target : str, dict or Target
    template_key : str, optional
        "direct", TVM 0.6's key of the default algorithm.

    Raises
    ------
    RecordError
        There is no such template, or it does not take the arguments.
    """
    from .. import target as targets

    if template_key not in (None, "direct"):
        raise RecordError(
            f"task {task_name} has no template key {template_key!r}; give the algorithm's own task "
            f"name, such as conv2d_NCHWc.x86"
        )

    if callable(task_name):
        function, task_name = task_name, task_name.__name__
        if task_name not in TEMPLATES:
            template(task_name)(function)
    task = Task(task_name, args, targets.parse(target, target_host))
    try:
        task.config_space  # noqa: B018 (collects the knobs)
    except InstantiationError as error:
        raise RecordError(f"task {task_name}: {error}") from error
    return task


def serialize_args(args: Sequence[Any]) -> tuple:
    """Arguments as records have them: tensors as ("TENSOR", shape, dtype)."""
    return to_tuple(normalize(list(args)))


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """The inverse: placeholders for tensors."""
    from tvm import te

    return [
        te.placeholder(arg[1], arg[2]) if isinstance(arg, tuple) and arg[:1] == ("TENSOR",) else arg
        for arg in args
    ]


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple:
    """(task name, *arguments), or the arguments alone."""
    serialized = serialize_args(args)
    return serialized if task_name is None else (task_name, *serialized)


# Finding the tasks of a program needs the build driver; scripts look for it here.
__getattr__ = lazy_attributes(
    __package__ or "",
    by_module(
        {
            ".extraction": "extract_from_multiple_program extract_from_program",
            ".flop": "compute_flop",
            "..records.autotvm.dispatcher": (
                "ApplyConfig ApplyFixedConfig ApplyGraphBest ApplyHistoryBest DispatchContext "
                "FallbackContext clear_fallback_cache dispatcher"
            ),
            ".space": "space",
        }
    ),
    raise_gone,
)
