"""Every exception that Baton raises on purpose.

A message says what was wrong, where (file and line, node, operator, shape) and what to do.
Each class also derives from the built-in exception that fits it, so that callers who know
nothing of Baton can still catch it.
"""

from __future__ import annotations


class BatonError(RuntimeError):
    """Base of every error that Baton raises on purpose.

    A RuntimeError, as `tvm.TVMError` was: scripts that catch that one catch these.
    """

    def __str__(self) -> str:
        # Messages quote what strangers wrote; lone surrogates can't be printed or logged.
        return super().__str__().encode("utf-8", "backslashreplace").decode()


class TargetError(BatonError, ValueError):
    """A target string, dict or attribute that is not understood."""


class UnavailableTargetError(TargetError):
    """A target that is understood but can't be compiled for on this machine."""


class FrontendError(BatonError, ValueError):
    """A model file that can't be read or imported."""


class ImportLimitError(FrontendError):
    """An import that exceeds a limit of nodes, bytes or seconds; names the limit and the node."""


class UnsupportedOperatorError(FrontendError, NotImplementedError):
    """An operator, or a form of it, that the importer or the build can't handle."""


class UnknownInputError(FrontendError, AssertionError):
    """A shape or dtype for what is not an input of the model; Relay's importer asserted that."""


class LibraryOperatorError(FrontendError):
    """Error of a library operator, at import or at run time; names the operator and the library."""


class RelayError(BatonError, ValueError):
    """An expression, module, text or saved file of Relay that is wrong or can't be read."""


class NotIntegralError(RelayError, AssertionError):
    """A quantized network that should compute on integers alone does not; names the operator."""


class RelayTypeError(RelayError, TypeError):
    """Operands or attributes that do not fit a Relay operator; names it and the types."""


class UntypedVariableError(RelayTypeError):
    """A type is needed that follows from that of a variable, which has none yet."""


class UnsupportedRelayOperatorError(RelayError, NotImplementedError):
    """A Relay operator that does not exist or does not apply; names it."""


class UnknownShapeError(FrontendError):
    """A model input whose shape or type must be known and is not."""


class RelaySyntaxError(FrontendError):
    """Relay text that can't be read; names source, line and column and shows the line."""


class SavedModuleError(FrontendError):
    """A saved module or parameter file that is damaged or of another kind."""


class PartitionError(BatonError, ValueError):
    """A partitioner that is unknown, doubly registered, or misbehaved in a callback."""


class UnknownBackendError(PartitionError, KeyError):
    """No partitioner of that name is registered."""

    def __str__(self) -> str:  # KeyError would quote the message
        return str(self.args[0]) if self.args else ""


class PartitionCallbackError(PartitionError):
    """A partitioner callback raised or returned nonsense; names backend, strategy, subgraph."""


class CompilerOutputError(PartitionError):
    """C++ sources that the compiler rejects; the message has its output, line by line."""


class BuildError(BatonError):
    """A module that can't be built: a wrong parameter, or a kernel that does not compile."""


class ScheduleError(BuildError, ValueError):
    """A primitive of a TE schedule that does not fit its stage; names both."""


class RecordError(BatonError, ValueError):
    """A tuning record or log that can't be read or applied; names file and line."""


class InputError(BatonError, ValueError):
    """An input or output of a built library by a wrong name, index, shape or dtype."""


class IndexRangeError(BatonError, IndexError):
    """An index outside of the axis that it indexes, met while a library ran; names the operator."""


class DivisionByZeroError(BatonError, ZeroDivisionError):
    """A division of integers by 0, met while a library ran; names the operator."""


class ExportError(BatonError, OSError):
    """A library that can't be written; nothing half-written is left behind."""


class LoadError(BatonError):
    """A file that is not a library of Baton's, or can't be loaded."""


class ForeignLibraryError(LoadError):
    """A library that Baton did not export."""


class IncompatibleDeviceError(LoadError):
    """A library built for CPU features or a device that this machine lacks."""


class ArrayError(BatonError, ValueError):
    """An operation on arrays that do not fit it; names the line that asked for it."""


class ArrayTypeError(ArrayError, TypeError):
    """An operand or an index of a type that arrays do not take."""


class ArrayIndexError(ArrayError, IndexError):
    """An index outside of an array."""


class DeferredComputeError(BatonError):
    """Something that deferred compute can't record, or a value asked for while tracing."""


class BlockError(BatonError):
    """A block or a parameter that is not ready for what was asked of it."""


class DeferredInitializationError(BlockError):
    """The value of a parameter whose shape is not known yet."""


class BlockArgumentError(BlockError, ValueError):
    """Arguments or results of a block that it can't take."""


class BlockTypeError(BlockArgumentError, TypeError):
    """An argument of a block of a type that it can't take."""


class OutOfScopeError(BlockArgumentError, ArrayError, NotImplementedError):
    """Training, gradients or sparse arrays, which Baton leaves out: it computes inference."""


class RejectedNameError(BatonError, AttributeError):
    """A name of another library's interface that Baton does not have; says what to use instead."""


class LegacyImportError(ImportError, BatonError):
    """Module of an old TVM without a replacement; the message says what to use instead."""
