"""`mx.mod.Module` for inference: a symbol with parameters, called with batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import InputError, OutOfScopeError
from compiler.relay.frontend.mxnet import host_array

from .autograd import training_only
from .model import load_checkpoint, save_checkpoint
from .symbol import Symbol
from .symbol.executor import Executor, HostArray

Shape = tuple[int, ...]


class Module:
    """A symbol whose inputs are data, labels and parameters.

    Parameters
    ----------
    symbol : Symbol
    data_names, label_names : sequence of str
        Variables that a batch gives; labels may be absent from the symbol and from batches.
    logger : object
        Without effect.
    context : str or Device, optional
        Where it runs: a single device, by default the CPU.

    Raises
    ------
    InputError
        `data_names` has a name that is no variable of the symbol.
    OutOfScopeError
        Several devices are given.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = None,
        context: Any = None,
    ) -> None:
        if isinstance(context, (list, tuple)):
            if len(context) != 1:
                raise OutOfScopeError("Module runs on one device; make one Module for each")
            context = context[0]
        arguments = symbol.list_arguments()
        self.symbol, self._context = symbol, context
        self.data_names = list(data_names or ())
        self.label_names = [name for name in label_names or () if name in arguments]
        for name in self.data_names:
            if name not in arguments:
                raise InputError(f"the symbol has no input {name!r}; arguments: {arguments}")
        given = {*self.data_names, *self.label_names}
        self._params = [name for name in arguments if name not in given]
        self._values: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._executor: Executor | None = None
        self._for_training = False
        self._shapes: dict[str, Shape] = {}
        self._dtypes: dict[str, Any] = {}

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Make a module of a checkpoint; `bind` gives it the parameters of the file.

        `kwargs`: as for `Module`. Raises FrontendError: a file can't be read.
        """
        if load_optimizer_states:
            raise OutOfScopeError("load_optimizer_states=True: modules run for inference only")
        symbol, arguments, states = load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module._values = (dict(arguments), dict(states))
        return module

    @property
    def binded(self) -> bool:
        """Whether `bind` was called."""
        return self._executor is not None

    @property
    def params_initialized(self) -> bool:
        """Whether there are parameters."""
        return self._values is not None

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self.symbol.list_outputs()

    @property
    def data_shapes(self) -> list[tuple[str, Shape]]:
        """Names and shapes of the data."""
        return [(name, self._shapes[name]) for name in self.data_names if name in self._shapes]

    def bind(
        self,
        data_shapes: Iterable[Any],
        label_shapes: Iterable[Any] | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
    ) -> None:
        """Compile the symbol for shapes of its data, pairs of a name and a shape.

        Data are float32, or as an attribute `dtype` of the pair has it. `for_training`, MXNet's
        default, does not change what runs: `backward`, `update` and `fit` raise, and `forward`
        without `is_train` warns that it runs inference.

        Raises
        ------
        OutOfScopeError
            `inputs_need_grad` is set.
        InputError
            A name is neither data nor a label.
        FrontendError, BuildError
            The symbol can't be imported or compiled.
        """
        if inputs_need_grad:
            raise OutOfScopeError(
                "Module.bind(): inputs_need_grad=True; modules run inference only"
            )
        if self.binded and not force_rebind:
            return
        shapes: dict[str, Shape] = {}
        for each in [*data_shapes, *(label_shapes or ())]:
            name, shape = each[0], each[1]
            if name not in self.data_names and name not in self.label_names:
                raise InputError(f"{name!r} is no data of the module: {self.data_names}")
            shapes[name] = tuple(int(extent) for extent in shape)
            self._dtypes[name] = getattr(each, "dtype", "float32")
        self._for_training = for_training
        self._compile(shapes)

    def _compile(self, shapes: dict[str, Shape]) -> None:
        self._executor = self.symbol.simple_bind(self._context, "null", self._dtypes, **shapes)
        self._shapes = shapes
        if self._values is not None:
            self.set_params(*self._values, allow_extra=True)

    def set_params(
        self,
        arg_params: Mapping[str, Any] | None,
        aux_params: Mapping[str, Any] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the parameters; those that `allow_missing` admits keep their values, at first 0.

        Raises InputError: the module is not bound, or names or shapes are not the symbol's.
        """
        executor = self._bound()
        if self.params_initialized and not force_init:
            return
        given = {**(arg_params or {}), **(aux_params or {})}
        wanted = [*self._params, *self.symbol.list_auxiliary_states()]
        missing = [name for name in wanted if name not in given]
        if missing and not allow_missing:
            raise InputError(f"parameter {missing[0]!r} has no value; allow_missing=True keeps it")
        executor.copy_params_from(arg_params or {}, aux_params, allow_extra)
        self._values = (
            {name: executor.arg_dict[name] for name in self._params},
            dict(executor.aux_dict),
        )

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Mapping[str, Any] | None = None,
        aux_params: Mapping[str, Any] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Set the parameters as `set_params` does, unless there are some.

        Raises
        ------
        OutOfScopeError
            Parameters are to be drawn: there is an initializer, or there are no arrays.
        InputError
            As for `set_params`.
        """
        self._bound()
        if self.params_initialized and not force_init:
            return
        if initializer is not None or arg_params is None:
            raise OutOfScopeError(
                "Module.init_params(): drawing parameters belongs to training; give arg_params and "
                "aux_params, or use Module.load"
            )
        self.set_params(arg_params, aux_params, allow_missing, True, allow_extra)

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and auxiliary states by name; InputError if there are none."""
        if self._values is None:
            raise InputError("the module has no parameters; call set_params first")
        return self._values

    def save_checkpoint(self, prefix: str, epoch: int, save_optimizer_states: bool = False) -> None:
        """Write `<prefix>-symbol.json` and `<prefix>-<epoch>.params`; ExportError if it fails."""
        if save_optimizer_states:
            raise OutOfScopeError("save_optimizer_states=True: modules run for inference only")
        save_checkpoint(prefix, epoch, self.symbol, *self.get_params())

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a batch: an object whose `data` lists one array for each of `data_names`.

        Data of other shapes than before are compiled for. Raises OutOfScopeError: `is_train`.
        Raises InputError: there are no parameters, or the batch has another number of arrays.
        """
        self._bound()
        self.get_params()
        if is_train is None and self._for_training:
            warnings.warn(
                "Module.forward() runs inference, also after bind(for_training=True); pass "
                "is_train=False",
                stacklevel=2,
            )
        data = data_batch.data
        if len(data) != len(self.data_names):
            raise InputError(f"a batch of {len(data)} arrays; the data are {self.data_names}")
        arrays = {
            name: host_array(value).astype(self._dtypes[name])
            for name, value in zip(self.data_names, data)
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        if any(self._shapes.get(name) != shape for name, shape in shapes.items()):
            self._compile(shapes)
        self._bound().forward(bool(is_train), **arrays)

    def get_outputs(self, merge_multi_context: bool = True) -> list[HostArray]:
        """The outputs of the last `forward`."""
        return self._bound().outputs

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
    ) -> Any:
        """Run batches and join their outputs along the first axis, without the batches' `pad`.

        `eval_data`: an iterable of batches, as for `forward`, or one array, which is one batch.
        Returns an array if there is one output and not `always_output_list`, else a list; without
        `merge_batches` a list for each batch. Raises InputError: there is no batch.
        """
        if hasattr(eval_data, "shape"):
            eval_data = [_Batch(eval_data)]
        elif reset and hasattr(eval_data, "reset"):
            eval_data.reset()
        found: list[list[np.ndarray]] = []
        for number, batch in enumerate(eval_data):
            if number == num_batch:
                break
            self.forward(batch, is_train=False)
            pad = getattr(batch, "pad", None) or 0
            found.append([each[: len(each) - pad] for each in self.get_outputs()])
        if not found:
            raise InputError("Module.predict(): there is no batch")
        if not merge_batches:
            return found
        merged = [np.concatenate(each).view(HostArray) for each in zip(*found)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def _bound(self) -> Executor:
        if self._executor is None:
            raise InputError("the module is not bound; call bind(data_shapes)")
        return self._executor

    fit, score = training_only("Module.fit()"), training_only("Module.score()")
    backward, update = training_only("Module.backward()"), training_only("Module.update()")
    init_optimizer = training_only("Module.init_optimizer()")


class _Batch:
    """A batch of one array."""

    def __init__(self, array: Any) -> None:
        self.data = [array]
