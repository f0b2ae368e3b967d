"""The client side: a mod around any training function of a Flower ClientApp."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.common.logger import log

from qccf.core.errors import InstructionError, QccfError, TrainingReplyError
from qccf.learning.results import Flat, LocalResult, LocalStatistics
from qccf.quantization.buffers import with_buffers
from qccf.quantization.registry import build_codec
from qccf.rounds import uplink
from qccf.rounds.privacy import Privacy, privatised
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.machine import WARNING, measured
from qccf.runtimes.flower.messages import (
    ARRAYS,
    METRICS,
    PROFILE,
    REPLY,
    Instruction,
    profile_record,
    upload_content,
)

NEEDED_METRICS = ("num-examples", "gradient-norm-sq", "gradient-variance", "loss")


class Trained(NamedTuple):
    """The result, the number of samples, and what training took; NaN where that is not known."""

    result: LocalResult
    num_examples: int
    seconds: float = math.nan
    joules: float = math.nan


Train = Callable[[Instruction, Layout, Flat], Trained | Message]
"""From the instruction and the received model to what was trained, or to an error reply."""


def quantize(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Let the app train, then send the trained model as a payload with the number of bits that the server decided.

    The training function reads the model from the record "arrays" and returns it there, with a record "metrics" that
    has num-examples, loss, gradient-norm-sq and gradient-variance; `Meter` measures the last two. Buffers such as the
    running averages of BatchNorm are averaged like the weights; counters stay as the server sent them.
    """

    def train(instruction: Instruction, layout: Layout, __: Flat) -> Trained | Message:
        with measured(context.node_config, instruction.frequency_hz) as taken:
            trained = call_next(message, context)
        if trained.has_error():
            return trained
        weights = layout.flatten(_record(trained.content.array_records, ARRAYS))
        metrics = _record(trained.content.metric_records, METRICS)
        statistics = _statistics(metrics, weights[: layout.num_parameters])
        return Trained(LocalResult(weights, statistics), int(metrics["num-examples"]), taken.seconds, taken.joules)

    return reply_to(message, context, train)


def reply_to(message: Message, context: Context, train: Train) -> Message:
    """Do what the instruction in the message says; `train` trains, or measures gradients for the act "probe"."""
    instruction = Instruction.read(message)
    if instruction.act == "hello":
        return Message(hello_content(context), reply_to=message)
    arrays = message.content.array_records[ARRAYS]
    layout = Layout.of(arrays, instruction.buffers)
    received = layout.flatten(arrays)
    trained = train(instruction, layout, received)
    if isinstance(trained, Message):
        return trained
    result, num_examples, seconds, joules = trained
    if instruction.privacy:
        result = privatised(result, received, told_privacy(instruction), secret_rng(instruction))
    codec = build_codec(instruction.codec, layout.num_parameters, layout.sizes, **instruction.codec_options)
    codec = with_buffers(codec, layout.num_parameters, layout.num_buffers)
    if instruction.act == "probe":
        forecast = codec.forecast(uplink.coded_vector(codec, result.weights, received))
        upload = uplink.Upload(b"", 0.0, result.statistics, forecast)
    else:
        upload = uplink.encode(
            codec,
            result,
            received,
            instruction.num_bits,
            client=instruction.client,
            round_index=instruction.round_index,
            seed=instruction.seed,
        )
    upload = replace(upload, measured_s=seconds, measured_j=joules)
    reply = Message(upload_content(instruction, upload, num_examples), reply_to=message)
    if instruction.rate_bps > 0.0:
        time.sleep(upload.size_bits / instruction.rate_bps)
    return reply


def told_privacy(instruction: Instruction) -> Privacy:
    """How the server wants the client to clip and to add noise, or InstructionError."""
    try:
        privacy = Privacy(**instruction.privacy)
    except TypeError:
        privacy = None
    if privacy is None or not (privacy.clip_norm > 0.0 and privacy.noise >= 0.0 and privacy.step > 0.0):
        raise InstructionError(f"this version of qccf does not know how to protect privacy so: {instruction.privacy}.")
    return privacy


def secret_rng(_: Instruction) -> np.random.Generator:
    """Noise that nobody can compute again: its seed comes from the operating system; the server knows the run's."""
    return np.random.default_rng()


def hello_content(context: Context) -> RecordDict:
    """The client's number, and the device profile where the node config names one."""
    content = RecordDict({REPLY: MetricRecord({"client": client_number(context)})})
    if "profile" in context.node_config:
        content[PROFILE] = profile_record(str(context.node_config["profile"]))
        if "problem" in content[PROFILE]:
            log(WARNING, "qccf: this node's device is not stated: %s", content[PROFILE]["problem"])
    return content


def client_number(context: Context) -> int:
    """The client's number: the node's `partition-id`, which Flower's simulation sets."""
    number = context.node_config.get("partition-id")
    if not isinstance(number, int) or number < 0:
        raise QccfError(
            f"this node's partition-id is {number!r}, and it must be the client's number, counted from 0: start the "
            'SuperNode with --node-config "partition-id=0".'
        )
    return number


def _record(records: Any, name: str) -> Any:
    if name not in records:
        raise TrainingReplyError(f'the training function returned no record "{name}".')
    return records[name]


def _statistics(metrics: MetricRecord, weights: Flat) -> LocalStatistics:
    for name in NEEDED_METRICS:
        if not isinstance(metrics.get(name), int | float):
            raise TrainingReplyError(
                f'the training function returned no number "{name}" in its record "{METRICS}": '
                "qccf.flower.Meter measures what is needed."
            )
    return LocalStatistics(
        gradient_norm_sq=float(metrics["gradient-norm-sq"]),
        gradient_variance=float(metrics["gradient-variance"]),
        weight_range=float(np.abs(weights).max()),
        loss=float(metrics["loss"]),
    )
