"""The client's end: a mod around any training function of a Flower ClientApp."""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict

from qccf.core.errors import QccfError
from qccf.learning.results import LocalResult, Report
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import build_codec
from qccf.rounds import uplink
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import ARRAYS, METRICS, REPORT, Instruction, upload_content

NEEDED_METRICS = ("num-examples", "gradient-norm-sq", "gradient-variance", "loss")


class TrainingReplyError(QccfError):
    """A training function that did not return what the mod needs."""


def quantize(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Let the app train, then send what it trained as a payload of the bits that the server decided.

    The training function finds the model in the record "arrays" and returns it there, with a record "metrics" that has
    num-examples, loss, gradient-norm-sq and gradient-variance; `Meter` measures the last two.
    """
    told = Instruction.read(message)
    if told.act == "hello":
        return Message(RecordDict({REPORT: MetricRecord({"client": client_number(context)})}), reply_to=message)
    layout = Layout.of(message.content.array_records[ARRAYS])
    received = layout.flatten(message.content.array_records[ARRAYS])
    trained = call_next(message, context)
    if trained.has_error():
        return trained
    weights = layout.flatten(_record(trained.content.array_records, ARRAYS))
    metrics = _record(trained.content.metric_records, METRICS)
    codec = _codec(told.codec, layout, told.codec_options)
    result = LocalResult(weights, _report(metrics, weights))
    if told.act == "probe":
        upload = uplink.Upload(b"", 0.0, result.report, codec.forecast(uplink.coded_vector(codec, weights, received)))
    else:
        upload = uplink.encode(
            codec,
            result,
            received,
            told.num_bits,
            client=told.client,
            round_index=told.round_index,
            seed=told.seed,
        )
    reply = Message(upload_content(told, upload, int(metrics["num-examples"])), reply_to=message)
    if told.act == "train" and told.rate_bps > 0.0:
        time.sleep(upload.size_bits / told.rate_bps)
    return reply


def client_number(context: Context) -> int:
    """Which client of the federation this node is: its `partition-id`, as Flower's simulation sets it."""
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


def _report(metrics: MetricRecord, weights: Any) -> Report:
    for name in NEEDED_METRICS:
        if not isinstance(metrics.get(name), int | float):
            raise TrainingReplyError(
                f'the training function returned no number "{name}" in its record "{METRICS}": '
                "qccf.flower.Meter measures what is needed."
            )
    value = {name: float(number) for name, number in metrics.items() if isinstance(number, int | float)}
    return Report(
        gradient_norm_sq=value["gradient-norm-sq"],
        gradient_variance=value["gradient-variance"],
        weight_range=value.get("weight-range", float(np.abs(weights).max())),
        loss=value["loss"],
    )


@lru_cache(maxsize=4)
def _codec(name: str, layout: Layout, options: str) -> Codec:
    return build_codec(
        name, layout.num_parameters, layout.sizes, **Instruction("hello", codec_options=options).options()
    )
