"""Messages between the strategy and the mod: instructions to the clients, uploads to the server.

A reply comes from another machine. Every value in it is checked before it is used; a ReplyError states the problem in
one sentence.
"""

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from qccf.core.contracts import MAX_NUM_BITS, FloatArray
from qccf.core.errors import ConfigError, InstructionError, PayloadError, ReplyError
from qccf.devices.profile import stated_figures, stated_profile
from qccf.learning.results import Flat, LocalStatistics
from qccf.quantization.costs import error_bound_table, raw_payload_bits
from qccf.quantization.protocol import Codec, Forecast
from qccf.rounds.uplink import RAW, Upload

INSTRUCTION = "qccf.instruction"
PROFILE = "qccf.profile"
UPLOAD = "qccf.upload"
REPLY = "qccf.reply"
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
"""The names of records that Flower's own strategies and apps use."""

PAYLOAD_STYPE = "qccf/1"
"""Marks an Array whose bytes are a payload and not an array."""

SPARE_BYTES = 65536
"""The limit of an upload is twice the size of the model's 32-bit weights plus this; no codec needs more."""

ROUNDING = 1e-6
"""An expected error may exceed its bound by this share, because both are sums of rounded numbers."""

MOST = float(np.finfo(np.float32).max)
"""The largest statistic of a float32 model; values computed from several of this size are still finite."""

TABLES = ("codec_options", "privacy")
"""Fields of an instruction that are dictionaries."""

MOST_MEASURED = 1e9
"""Seconds or joules of one training: thirty years, or some cars' batteries. More is a wrong unit."""

Act = Literal["hello", "probe", "train"]


@dataclass(frozen=True)
class Instruction:
    """What the server asks one client to do.

    "hello": reply with the client's number. "probe": measure at this model and send no payload. "train": train and
    upload with the transmit power `power_w`, with no limit of the rate where `rate_bps` is 0. `buffers` names the
    arrays that are not quantized. `privacy` says how to clip and to add noise first (see `rounds.privacy`); it is empty
    where that is off. A node that allows it trains at the CPU frequency `frequency_hz`.
    """

    act: Act
    round_index: int = 0
    client: int = -1
    num_bits: int = RAW
    codec: str = ""
    codec_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    rate_bps: float = 0.0
    buffers: list[str] = field(default_factory=list)
    power_w: float = 0.0
    privacy: dict[str, float] = field(default_factory=dict)
    frequency_hz: float = 0.0

    def record(self) -> ConfigRecord:
        """The instruction as Flower sends it; a ConfigRecord holds no dictionaries."""
        tables = {name: json.dumps(getattr(self, name)) for name in TABLES}
        return ConfigRecord({**vars(self), **tables})

    @classmethod
    def read(cls, message: Message) -> "Instruction":
        """The instruction in a message, or InstructionError."""
        record = message.content.config_records.get(INSTRUCTION)
        if record is None:
            raise InstructionError("the message has no instruction of qccf: is the server's strategy QccfStrategy?")
        try:
            fields = dict(record)
            instruction = cls(**{**fields, **{name: json.loads(fields[name]) for name in TABLES}})
        except (KeyError, TypeError, ValueError):
            raise InstructionError("the instruction cannot be read: do server and client have the same qccf?") from None
        known = instruction.act in get_args(Act) and all(isinstance(getattr(instruction, n), dict) for n in TABLES)
        if not known or not 0 <= instruction.num_bits <= MAX_NUM_BITS:
            raise InstructionError(f"this version of qccf does not know this instruction: {instruction}.")
        return instruction


def upload_content(instruction: Instruction, upload: Upload, num_examples: int) -> RecordDict:
    """A client's reply to "probe" (without a payload) or "train"."""
    statistics = upload.statistics
    metrics: dict[str, Any] = {
        "round": instruction.round_index,
        "client": instruction.client,
        "num-examples": num_examples,
        "gradient-norm-sq": statistics.gradient_norm_sq,
        "gradient-variance": statistics.gradient_variance,
        "weight-range": statistics.weight_range,
        "loss": statistics.loss,
    }
    if instruction.privacy:
        del metrics["loss"]  # it is not noisy
    if upload.forecast is not None:
        metrics["error-scale"] = upload.forecast.error_scale
        if upload.forecast.bits is not None:
            metrics["forecast-bits"] = upload.forecast.bits.tolist()
        if upload.forecast.errors is not None:
            metrics["forecast-errors"] = upload.forecast.errors.tolist()
    taken = {"measured-seconds": upload.measured_s, "measured-joules": upload.measured_j}
    metrics |= {name: value for name, value in taken.items() if math.isfinite(value)}
    content = RecordDict({REPLY: MetricRecord(metrics)})
    if instruction.act == "train":
        payload = upload.payload
        data = payload if isinstance(payload, bytes) else np.asarray(payload, dtype="<f4").tobytes()
        array = Array(dtype="uint8", shape=(len(data),), stype=PAYLOAD_STYPE, data=data)
        content[UPLOAD] = ArrayRecord({"payload": array})
    return content


class StatedDevice(NamedTuple):
    """The profile that a node states as its name, figures and steps; None where it states none, or states a problem."""

    tree: dict[str, Any] | None = None
    problem: str = ""


def profile_record(name: str) -> ConfigRecord:
    """What a node tells of the profile that its node config names: its figures, or why there are none."""
    from qccf.devices.profiles.registry import find_profile

    try:
        tree = stated_figures(find_profile(name))
        stated_profile(tree)  # also the name of a user's own file must be one that the server accepts
    except ConfigError as error:
        return ConfigRecord({"problem": str(error)})
    steps = [value for step in tree.pop("steps", []) for value in step]
    return ConfigRecord(tree | ({"steps": steps} if steps else {}))


def read_profile(reply: Message) -> StatedDevice:
    """The profile that a node states in its reply to "hello". What is wrong with it is a sentence, never an error."""
    record = reply.content.config_records.get(PROFILE)
    if record is None:
        return StatedDevice()
    tree = dict(record)
    if "problem" in tree:
        return StatedDevice(problem=last_line(str(tree["problem"])))
    steps = tree.pop("steps", None)
    if steps is not None:
        whole = isinstance(steps, list) and steps and len(steps) % 2 == 0
        tree["steps"] = [steps[k : k + 2] for k in range(0, len(steps), 2)] if whole else "no pairs"
    try:
        return StatedDevice(stated_figures(stated_profile(tree)))
    except ConfigError as error:
        return StatedDevice(problem=last_line(str(error)))


def read_hello(reply: Message, num_clients: int) -> int:
    """The client number that a node states, or ReplyError."""
    client = _metrics(reply).get("client")
    if not isinstance(client, int) or not 0 <= client < num_clients:
        raise ReplyError(f"it states client number {client}, and the {num_clients} clients are numbered from 0.")
    return client


def read_reply(
    reply: Message, instruction: Instruction, codec: Codec, num_values: int, *, keep_decoded: bool = True
) -> tuple[Upload, int]:
    """The upload and the number of samples in a reply to that instruction, or ReplyError.

    A payload is decoded to check it. The upload then holds the decoded vector, or the payload where `keep_decoded` is
    false.
    """
    metrics = _metrics(reply)
    for name, wanted in (("round", instruction.round_index), ("client", instruction.client)):
        if metrics.get(name) != wanted:
            raise ReplyError(f"it is for {name} {metrics.get(name)}, and the instruction was for {name} {wanted}.")
    statistics = LocalStatistics(
        gradient_norm_sq=_number(metrics, "gradient-norm-sq"),
        gradient_variance=_number(metrics, "gradient-variance"),
        weight_range=_number(metrics, "weight-range"),
        loss=float("nan") if instruction.privacy else _number(metrics, "loss", low=-MOST),
    )
    num_examples = metrics.get("num-examples")
    if not isinstance(num_examples, int) or not 1 <= num_examples < 2**53:
        raise ReplyError(f"num-examples = {num_examples}, and a client has at least one sample.")
    taken = _measured(metrics, "measured-seconds"), _measured(metrics, "measured-joules")
    if instruction.act == "train" and instruction.num_bits == RAW:
        vector = _raw_weights(_payload(reply, num_values), num_values)
        return Upload(vector, raw_payload_bits(num_values), statistics, None, *taken), num_examples
    sizes = None if codec.affine else _forecast_bits(metrics, 8.0 * _most_bytes(num_values))
    error_scale = _number(metrics, "error-scale")
    forecast = Forecast(error_scale, sizes, _forecast_errors(metrics, error_scale))
    if instruction.act == "probe":
        return Upload(b"", 0.0, statistics, forecast), num_examples
    payload = _payload(reply, num_values)
    try:
        vector = _finite(codec.decode(payload, instruction.num_bits))
    except PayloadError as error:
        raise ReplyError(str(error)) from None
    size_bits = float(codec.size_bits(payload))
    return Upload(vector if keep_decoded else payload, size_bits, statistics, forecast, *taken), num_examples


def _metrics(reply: Message) -> MetricRecord:
    if reply.has_error():
        raise ReplyError(f"the client failed (code {reply.error.code}): {last_line(reply.error.reason)}")
    record = reply.content.metric_records.get(REPLY)
    if record is None:
        raise ReplyError(f"it has no record {REPLY!r}: is the mod `quantize` in the client's app?")
    return record


def _most_bytes(num_values: int) -> int:
    return 8 * num_values + SPARE_BYTES


def _payload(reply: Message, num_values: int) -> bytes:
    record = reply.content.array_records.get(UPLOAD)
    if record is None or list(record) != ["payload"]:
        raise ReplyError("it has no payload.")
    array = record["payload"]
    if array.stype != PAYLOAD_STYPE:
        raise ReplyError(f"its payload is of type {array.stype!r}, and it must be of type {PAYLOAD_STYPE!r}.")
    most = _most_bytes(num_values)
    if len(array.data) > most:
        raise ReplyError(f"its payload has {len(array.data):,} bytes, and at most {most:,} are allowed.")
    data: bytes = array.data
    return data


def _raw_weights(data: bytes, num_values: int) -> Flat:
    if len(data) != 4 * num_values:
        raise ReplyError(f"its payload has {len(data):,} bytes, and raw weights have {4 * num_values:,}.")
    return _finite(np.frombuffer(data, dtype="<f4").astype(np.float32))


def _finite(vector: Flat) -> Flat:
    if not np.isfinite(vector).all():
        raise ReplyError("its payload has values that are not finite.")
    return vector


def _number(metrics: MetricRecord, name: str, *, low: float = 0.0, high: float = MOST) -> float:
    value = metrics.get(name)
    if not isinstance(value, int | float) or not low <= value <= high:  # also refuses NaN
        raise ReplyError(f"{name} = {value}, and it must be a number from {low:g} to {high:g}.")
    return float(value)


def _measured(metrics: MetricRecord, name: str) -> float:
    """What a client says that its training took; NaN where it says nothing. Shown, and used for no decision."""
    return math.nan if metrics.get(name) is None else _number(metrics, name, high=MOST_MEASURED)


def _forecast_bits(metrics: MetricRecord, most: float) -> FloatArray:
    value = metrics.get("forecast-bits")
    sizes = np.asarray(value if isinstance(value, list) else [], dtype=np.float64)
    if sizes.shape != (MAX_NUM_BITS,) or not ((sizes > 0.0) & (sizes <= most)).all():
        raise ReplyError(f"forecast-bits must be {MAX_NUM_BITS} sizes above 0 and up to {most:g}.")
    return sizes


def _forecast_errors(metrics: MetricRecord, error_scale: float) -> FloatArray | None:
    """The expected errors, which the bound of the same reply limits; None where the codec does not know them."""
    value = metrics.get("forecast-errors")
    if value is None:
        return None
    found = np.asarray(value if isinstance(value, list) else [], dtype=np.float64)
    most = (1.0 + ROUNDING) * error_bound_table(error_scale)
    if found.shape != (MAX_NUM_BITS,) or not ((found >= 0.0) & (found <= most)).all():  # also refuses NaN
        raise ReplyError(
            f"forecast-errors must be {MAX_NUM_BITS} errors from 0 to error-scale/(2^q - 1)², with error-scale = "
            f"{error_scale:g}."
        )
    return found


def last_line(text: str | None) -> str:
    """The last line of a traceback, which states the error."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return "".join(one if one.isprintable() else "?" for one in lines[-1][:200]) if lines else "no reason given"
