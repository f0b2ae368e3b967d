"""What passes between the strategy and the mod: instructions one way, uploads the other.

A reply comes from somebody else's machine. Everything in it is checked before it is used, and what is wrong with it is
said in one sentence.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import QccfError
from qccf.learning.results import Report
from qccf.quantization.costs import raw_payload_bits
from qccf.quantization.protocol import Codec, Forecast
from qccf.quantization.wire import PayloadError
from qccf.rounds.uplink import RAW, Upload

INSTRUCTION = "qccf.instruction"
UPLOAD = "qccf.upload"
REPORT = "qccf.report"
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
"""Where Flower's own strategies and apps look."""

PAYLOAD_STYPE = "qccf/1"
"""Tells that the bytes of an Array are a payload and not an array."""

SPARE_BYTES = 65536
"""What an upload may have beyond twice the model's 32-bit weights: no codec needs more."""

MOST = float(np.finfo(np.float32).max)
"""No statistic of a float32 model is larger, and what is computed from some of this size is still finite."""

Act = Literal["hello", "probe", "train"]


class InstructionError(QccfError):
    """A message that tells a client nothing it can do."""


class ReplyError(QccfError):
    """A reply that cannot be used, with the reason."""


@dataclass(frozen=True)
class Instruction:
    """What one client is told.

    "hello": say who you are. "probe": measure at this model, send no payload. "train": train and upload. `rate_bps` 0
    lets it upload as fast as it can.
    """

    act: Act
    round_index: int = 0
    client: int = -1
    num_bits: int = RAW
    codec: str = ""
    codec_options: str = "{}"
    seed: int = 0
    rate_bps: float = 0.0

    def record(self) -> ConfigRecord:
        return ConfigRecord(asdict(self))

    @classmethod
    def read(cls, message: Message) -> "Instruction":
        """The instruction in a message."""
        record = message.content.config_records.get(INSTRUCTION)
        if record is None:
            raise InstructionError("the message has no instruction of qccf: is the server's strategy QccfStrategy?")
        try:
            told = cls(**dict(record))
            options = json.loads(told.codec_options)
        except (TypeError, ValueError):
            raise InstructionError("the instruction cannot be read: do server and client have the same qccf?") from None
        if told.act not in get_args(Act) or not 0 <= told.num_bits <= MAX_NUM_BITS or not isinstance(options, dict):
            raise InstructionError(f"the instruction is not one that this version knows: {told}.")
        return told

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.codec_options)
        return found


def upload_content(told: Instruction, upload: Upload, num_examples: int) -> RecordDict:
    """A client's reply to "probe" (with an empty payload) or "train"."""
    report = upload.report
    metrics: dict[str, Any] = {
        "round": told.round_index,
        "client": told.client,
        "num-examples": num_examples,
        "gradient-norm-sq": report.gradient_norm_sq,
        "gradient-variance": report.gradient_variance,
        "weight-range": report.weight_range,
        "loss": report.loss,
    }
    if upload.forecast is not None:
        metrics["error-scale"] = upload.forecast.error_scale
        if upload.forecast.bits is not None:
            metrics["forecast-bits"] = upload.forecast.bits.tolist()
    content = RecordDict({REPORT: MetricRecord(metrics)})
    if told.act == "train":
        data = upload.payload if isinstance(upload.payload, bytes) else upload.payload.astype("<f4").tobytes()
        array = Array(dtype="uint8", shape=(len(data),), stype=PAYLOAD_STYPE, data=data)
        content[UPLOAD] = ArrayRecord({"payload": array})
    return content


def read_hello(reply: Message, num_clients: int) -> int:
    """Which client a node says that it is, or ReplyError."""
    client = _report(reply).get("client")
    if not isinstance(client, int) or not 0 <= client < num_clients:
        raise ReplyError(f"it says that it is client {client}, and there are {num_clients}.")
    return client


def read_reply(reply: Message, told: Instruction, codec: Codec, num_parameters: int) -> tuple[Upload, int]:
    """The upload and the number of samples in a reply to that instruction, or ReplyError."""
    record = _report(reply)
    for name, wanted in (("round", told.round_index), ("client", told.client)):
        if record.get(name) != wanted:
            raise ReplyError(f"it is for {name} {record.get(name)}, and {name} {wanted} was asked.")
    report = Report(
        gradient_norm_sq=_number(record, "gradient-norm-sq"),
        gradient_variance=_number(record, "gradient-variance"),
        weight_range=_number(record, "weight-range"),
        loss=_number(record, "loss", low=-MOST),
    )
    num_examples = record.get("num-examples")
    if not isinstance(num_examples, int) or not 1 <= num_examples < 2**53:
        raise ReplyError(f"num-examples = {num_examples}, and a client has at least one sample.")
    if told.num_bits == RAW and told.act == "train":
        forecast = None
    else:
        sizes = None if codec.affine else _sizes(record, 8.0 * _most_bytes(num_parameters))
        forecast = Forecast(_number(record, "error-scale"), sizes)
    payload = _payload(reply, told, codec, num_parameters) if told.act == "train" else b""
    if not isinstance(payload, bytes):
        return Upload(payload, raw_payload_bits(num_parameters), report, forecast), num_examples
    size_bits = float(codec.size_bits(payload)) if payload else 0.0
    return Upload(payload, size_bits, report, forecast), num_examples


def _report(reply: Message) -> MetricRecord:
    if reply.has_error():
        raise ReplyError(f"the client failed (code {reply.error.code}): {last_line(reply.error.reason)}")
    record = reply.content.metric_records.get(REPORT)
    if record is None:
        raise ReplyError(f"it has no record {REPORT!r}: is the mod `quantize` in the client's app?")
    return record


def _most_bytes(num_parameters: int) -> int:
    return 8 * num_parameters + SPARE_BYTES


def _payload(reply: Message, told: Instruction, codec: Codec, num_parameters: int) -> Any:
    """The payload, after it was decoded once to see that it can be; raw weights as a vector."""
    record = reply.content.array_records.get(UPLOAD)
    if record is None or list(record) != ["payload"]:
        raise ReplyError("it has no payload.")
    array = record["payload"]
    most = _most_bytes(num_parameters)
    if array.stype != PAYLOAD_STYPE:
        raise ReplyError(f"its payload is of type {array.stype!r}, and {PAYLOAD_STYPE!r} was asked.")
    if len(array.data) > most:
        raise ReplyError(f"its payload has {len(array.data):,} bytes, and {most:,} are allowed.")
    if told.num_bits == RAW:
        if len(array.data) != 4 * num_parameters:
            raise ReplyError(f"its payload has {len(array.data):,} bytes, and raw weights have {4 * num_parameters:,}.")
        weights = np.frombuffer(array.data, dtype="<f4").astype(np.float32)
        if not np.isfinite(weights).all():
            raise ReplyError("its weights are not all finite.")
        return weights
    try:
        finite = np.isfinite(codec.decode(array.data, told.num_bits)).all()
    except PayloadError as error:
        raise ReplyError(str(error)) from None
    if not finite:
        raise ReplyError("its payload decodes to values that are not finite.")
    return array.data


def _number(record: MetricRecord, name: str, *, low: float = 0.0) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or not low <= value <= MOST:  # NaN is neither
        raise ReplyError(f"{name} = {value}, and it must be a number from {low:g} to {MOST:g}.")
    return float(value)


def _sizes(record: MetricRecord, most: float) -> Any:
    value = record.get("forecast-bits")
    sizes = np.asarray(value if isinstance(value, list) else [], dtype=np.float64)
    if sizes.shape != (MAX_NUM_BITS,) or not ((sizes > 0.0) & (sizes <= most)).all():
        raise ReplyError(f"forecast-bits must be {MAX_NUM_BITS} sizes above 0 and up to {most:g}.")
    return sizes


def last_line(text: str | None) -> str:
    """Of a traceback the sentence at its end."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"
