"""The tree of errors. Each ends as one sentence that names the value, the limit and the remedy."""


class QccfError(Exception):
    """Base of all errors that the user can mend; the command line prints it and exits with status 2."""


class ConfigError(QccfError):
    """A setting that is unknown, out of range, or contradicts another."""


class InfeasibleError(ConfigError):
    """Settings with which no client can ever deliver its model within the deadline."""


class TraceError(QccfError):
    """A radio trace that cannot be used. The sentence follows "radio.trace = FILE", which `load_trace` adds."""


class ProblemError(QccfError):
    """A round's problem that breaks a rule of its format."""


class SolverError(QccfError):
    """A request that a solver does not support."""


class PolicyError(QccfError):
    """A policy that returned an invalid decision or state."""


class ServerOptimizerError(QccfError):
    """A server optimizer that returned no valid model or state."""


class AggregationError(QccfError):
    """An aggregation rule that returned no valid model or state."""


class DivergedError(QccfError):
    """A model whose weights are no longer finite numbers."""


class CheckpointError(QccfError):
    """A checkpoint that cannot be used."""


class ForeignCheckpointError(CheckpointError):
    """A checkpoint of another run."""


class RunFolderError(QccfError):
    """A folder that does not hold a complete run, or holds something else than the run that is to be written."""


class FileError(QccfError):
    """A file or folder that cannot be written or read, or that is not where it seems to be."""


class MeterError(QccfError):
    """An energy meter that this machine does not have, or whose readings cannot be used."""


class FrequencyError(QccfError):
    """A CPU frequency that cannot be read or set."""


class DataError(QccfError):
    """A dataset that is missing or broken, or whose content is not the expected one."""


class PayloadError(QccfError):
    """A payload that is not the requested one or is broken; the subclasses say how."""


class MagicError(PayloadError):
    """Bytes that are not a payload."""


class VersionError(PayloadError):
    """A payload in another version of the format."""


class CodecError(PayloadError):
    """A payload of another codec."""


class NumBitsError(PayloadError):
    """A q that is out of range or is not the requested one."""


class CountError(PayloadError):
    """Fewer values than the model has."""


class OversizeError(PayloadError):
    """A payload that claims more values than the model has."""


class ShortPayloadError(PayloadError):
    """A payload that ends too early."""


class TrailingBytesError(PayloadError):
    """A payload with bytes after its end."""


class ChecksumError(PayloadError):
    """A payload that was damaged."""


class RangeError(PayloadError):
    """A range that is negative, infinite or not a number."""


class PaddingError(PayloadError):
    """Unused bits of the last byte that are not zero."""


class TableError(PayloadError):
    """A frequency table that describes no distribution."""


class StreamError(PayloadError):
    """Entropy-coded data that do not decode to the stated number of symbols."""


class LayoutError(QccfError):
    """Arrays that do not fit the model or cannot be quantized."""


class LoopbackError(QccfError):
    """A part of the federation did not start."""


class InstructionError(QccfError):
    """A message without an instruction that this client understands."""


class ReplyError(QccfError):
    """A reply cannot be used."""


class TrainingReplyError(QccfError):
    """A training function did not return what the mod needs."""


class AbsentError(QccfError):
    """Too few clients are online."""


class FederationError(QccfError):
    """A federation cannot continue."""
