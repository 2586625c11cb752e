"""Operators of libraries that were written for MXNet's interface (`mxnet/lib_api.h`).

What they infer is asked when a model is imported. In a build an operator becomes foreign code, and
its runtime is the library, so that a process which only runs the result needs `load_engines` alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import LibraryOperatorError, LoadError, OutOfScopeError

from . import foreign
from .mxnet_requests import DTYPES, MxnetRequests, code

if TYPE_CHECKING:
    from .partitioner_library import PartitionerLibrary

TensorType = tuple[tuple[int, ...], str]
"""Shape and dtype."""

EXTRA_INPUTS = "__ext_extra_inputs__"
"""Attribute with the number of last inputs that inference does not see."""


@dataclass(frozen=True)
class LibraryOperator:
    """One operator."""

    name: str
    runs_subgraphs: bool  # whether it runs what partitioners of its library claim
    has_state: bool  # whether each use in a model has a separate state
    file: Path  # its library
    _library: PartitionerLibrary
    _number: int

    @property
    def runtime(self) -> str:
        """The runtime of its code, among those of `foreign`."""
        owner = f" of {self.library}" if self.library else ""
        return f"operator {self.name}{owner}"

    @property
    def library(self) -> str:
        """Identity of its library if it runs subgraphs: others may have one of its name."""
        return self._library.identity if self.runs_subgraphs else ""

    def counts(self, attrs: Mapping[str, str]) -> tuple[int, int]:
        """Numbers of inputs and outputs with these attributes, extra inputs included."""
        inputs, outputs = self._call("counts", dict(attrs))
        return int(inputs) + self.extra_inputs(attrs), int(outputs)

    def extra_inputs(self, attrs: Mapping[str, str]) -> int:
        """How many inputs come after those that the operator infers types for."""
        text = attrs.get(EXTRA_INPUTS, "0")
        if not text.isdecimal() or len(text) > 4:
            raise LibraryOperatorError(f"{self}: {EXTRA_INPUTS} is {text!r}, not a count")
        return int(text)

    def mutated_inputs(self, attrs: Mapping[str, str]) -> list[int]:
        """Positions of the inputs that it writes to."""
        return [int(position) for position in self._call("mutated", dict(attrs))]

    def types(
        self, attrs: Mapping[str, str], inputs: Sequence[TensorType]
    ) -> tuple[list[tuple[int, ...]], list[TensorType]]:
        """Shapes of the inputs, and types of the outputs.

        `inputs`: those that inference sees; the shape of one that is not known is ().
        Raises LibraryOperatorError: the operator does not take such inputs. Raises OutOfScopeError:
        it wants sparse arrays.
        """
        _, outputs = self.counts(attrs)
        sparse = str(self._call("sparse", dict(attrs), len(inputs), outputs))
        if sparse:
            raise OutOfScopeError(f"{self}: only dense arrays are supported: {sparse}")
        try:
            types = [list(shape) for shape, _ in inputs], [code(dtype) for _, dtype in inputs]
        except TypeError as error:
            raise LibraryOperatorError(f"{self}: {error}") from error
        found = self._call("types", dict(attrs), *types, outputs)
        shapes, result_shapes, codes = ([*each] for each in found)
        dtypes = [DTYPES[each] if 0 <= each < len(DTYPES) else "" for each in codes]
        if len(shapes) != len(inputs) or not len(result_shapes) == len(dtypes) == outputs:
            raise LibraryOperatorError(
                f"{self}: it infers {len(shapes)} inputs and {len(result_shapes)} outputs instead "
                f"of {len(inputs)} and {outputs}"
            )
        for dtype in dtypes:
            if not dtype:
                raise LibraryOperatorError(f"{self}: inferType leaves the type of an output open")
        results = [(tuple(map(int, s)), d) for s, d in zip(result_shapes, dtypes)]
        return [tuple(map(int, shape)) for shape in shapes], results

    def engine(self, attrs: Mapping[str, str], inputs: Sequence[TensorType]) -> foreign.Engine:
        """Engine of one use of the operator, on tensors of the CPU."""
        shapes, dtypes = [list(shape) for shape, _ in inputs], [dtype for _, dtype in inputs]
        try:
            run = self._requests.engine(self._number, attrs, shapes, dtypes)
        except (RuntimeError, TypeError) as error:
            raise LibraryOperatorError(f"{self}: {_text(error)}") from error

        def engine(given: Sequence[Any], results: Sequence[Any]) -> None:
            try:
                run(given, results)
            except Exception as error:
                raise LibraryOperatorError(f"{self}: {_text(error)}") from error

        return engine

    def code(
        self, attrs: Mapping[str, str], inputs: Sequence[TensorType], place: int
    ) -> foreign.ExternalCode:
        """Code of one use of the operator in a built library; `place` distinguishes the uses."""
        header: dict[str, Any] = {"attrs": dict(attrs), "inputs": [*inputs]}
        if self.has_state:
            header["place"] = place
        code = foreign.with_header(header, b"")
        return foreign.ExternalCode(self.runtime, code, self.file.name)

    def load(self, code: bytes) -> foreign.Engine:
        """Engine of code that `code` made; raises LoadError if the bytes are damaged."""
        header, _ = foreign.split_header(code)
        try:
            attrs = {str(key): str(text) for key, text in header["attrs"].items()}
            inputs = [(tuple(map(int, shape)), str(dtype)) for shape, dtype in header["inputs"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LoadError(f"the code of {self} is damaged; build again") from error
        return self.engine(attrs, inputs)

    @property
    def claims(self) -> str:
        """The runtime of subgraphs of modules that it runs; "" if it runs none."""
        return f"subgraphs of {self.runtime}" if self.runs_subgraphs else ""

    def claimed(
        self, attrs: Mapping[str, str], params: Sequence[int | np.ndarray]
    ) -> foreign.ExternalCode:
        """Code of a subgraph of a module; `attrs` has its graph.

        `params`: per variable of the subgraph the number of an input, or its value.
        """
        values = [each for each in params if isinstance(each, np.ndarray)]
        described = [
            [*each.shape, str(each.dtype)] if isinstance(each, np.ndarray) else each
            for each in params
        ]
        content = b"".join(each.tobytes() for each in values)
        code = foreign.with_header({"attrs": dict(attrs), "params": described}, content)
        return foreign.ExternalCode(self.claims, code, self.file.name)

    def load_claimed(self, code: bytes) -> foreign.Engine:
        """Engine of code that `claimed` made; its state is made at the first run."""
        header, content = foreign.split_header(code)
        sources: list[int | np.ndarray] = []
        for each in header["params"]:
            if isinstance(each, list):
                *shape, dtype = each
                size = int(np.prod(shape)) * np.dtype(dtype).itemsize
                sources.append(np.frombuffer(content[:size], dtype).reshape(shape))
                content = content[size:]
            else:
                sources.append(each)
        made: list[foreign.Engine] = []
        lock = threading.Lock()

        def engine(given: Sequence[Any], results: Sequence[Any]) -> None:
            inputs = [given[each] if isinstance(each, int) else each for each in sources]
            with lock:
                if not made:
                    types = [(tuple(map(int, each.shape)), str(each.dtype)) for each in inputs]
                    made.append(self.engine(header["attrs"], types))
            made[0](inputs, results)

        return engine

    @property
    def _requests(self) -> MxnetRequests:
        requests = self._library.mxnet
        assert requests is not None, "operators are of libraries of MXNet's interface"
        return requests

    def _call(self, request: str, *arguments: Any) -> Any:
        try:
            return self._requests(request, self._number, *arguments)
        except (RuntimeError, TypeError) as error:
            raise LibraryOperatorError(f"{self}: {_text(error)}") from error

    def __str__(self) -> str:
        return f"operator {self.name} of {self.file.name}"


_operators: dict[tuple[str, str], LibraryOperator] = {}
_lock = threading.Lock()


def find(name: str) -> LibraryOperator | None:
    """The operator that graphs call by a name; None if no library that is loaded has one."""
    found = _operators.get((name, ""))
    return found if found is not None and not found.runs_subgraphs else None


def find_for_subgraphs(name: str, library: str | None) -> LibraryOperator | None:
    """The operator that runs the subgraphs of a library; None if that library is not loaded.

    `library`: `LibraryOperator.library`; None takes the one that has an operator of that name.
    Raises LibraryOperatorError: several have one, and `library` is None.
    """
    with _lock:
        found = [
            operator
            for (known, owner), operator in _operators.items()
            if operator.runs_subgraphs and known == name
            if library is None or (library and library == owner)
        ]
    if len(found) > 1:
        files = ", ".join(sorted(operator.file.name for operator in found))
        raise LibraryOperatorError(
            f"{files} each have an operator {name!r} for subgraphs, and the graph does not tell "
            "which runs it; load one of them only"
        )
    return found[0] if found else None


def register(operators: Iterable[LibraryOperator]) -> None:
    """Make operators known; those of a library that is loaded again are replaced."""
    with _lock:
        _operators.update(((each.name, each.library), each) for each in operators)


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
