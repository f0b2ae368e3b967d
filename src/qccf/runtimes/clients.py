"""The clients of a run: their data, and threads that train them side by side.

One thread trains a client, with one model and no parallelism inside its operations, so that the number of workers
changes nothing but the time.
"""

import math
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch

from qccf.core.contracts import FloatArray
from qccf.core.errors import ConfigError
from qccf.core.streams import key, stream
from qccf.learning.attacks.registry import attackers
from qccf.learning.datasets import Dataset
from qccf.learning.logit_adjustment import Adjustment
from qccf.learning.losses import build_loss
from qccf.learning.models.registry import build_model
from qccf.learning.optimizers import optimizer_maker
from qccf.learning.partition import partition
from qccf.learning.results import Flat, LocalResult
from qccf.learning.training import FlatModel, local_update, probe, score, sent_buffers
from qccf.learning.transforms import build_transforms
from qccf.rounds.setup import build_attack
from qccf.settings.loading import Scenario

T = TypeVar("T")

Shapes = dict[str, tuple[int, ...]]

TRIED_SAMPLES = 2
"""Samples on which the output of a model is tried before a run."""

EVALUATION_BATCH = 500
"""Fixed, so that sums do not depend on the number of workers."""


def with_scaled_gradients(result: LocalResult, factor: float) -> LocalResult:
    """Gradients in units of the first learning rate, so that η·τ times their norm is the length of the update in every
    round. That length is what the controller, clipping and health use."""
    if factor == 1.0:
        return result
    known = result.statistics
    scaled = replace(
        known,
        gradient_norm_sq=factor**2 * known.gradient_norm_sq,
        gradient_variance=factor**2 * known.gradient_variance,
    )
    return replace(result, statistics=scaled)


class Clients:
    """Trains, probes and evaluates. Use it as a context manager: inside, PyTorch computes each operation on one thread;
    afterwards the threads have ended and PyTorch's number of threads is what it was."""

    def __init__(
        self, scenario: Scenario, dataset: Dataset, dataset_sizes: FloatArray, seed: int, *, model: Any = None
    ) -> None:
        """`model` is the model itself where the scenario cannot name it."""
        self.scenario = scenario
        self._model = scenario.learning.model if model is None else model
        self.dataset = dataset
        self.seed = seed
        self.shares = partition(
            dataset.train_labels,
            dataset.train_writers,
            dataset_sizes.astype(np.int64),
            method=scenario.data.partition,
            dirichlet_alpha=scenario.data.dirichlet_alpha,
            seed=seed,
        )
        self.dataset_sizes = dataset_sizes
        self._images = torch.from_numpy(dataset.train_images)
        self._labels = torch.from_numpy(dataset.train_labels)
        self._test = torch.from_numpy(dataset.test_images), torch.from_numpy(dataset.test_labels)
        self.device = resolve_device(scenario.execution.device)
        self.precision = resolve_precision(scenario.execution.precision, self.device)
        workers = scenario.execution.workers or os.cpu_count() or 1
        self.workers = 1 if self.device == "cuda" else min(workers, max(1, len(self.shares)))
        self._attack = build_attack(scenario)
        hostile = attackers(seed, len(self.shares), scenario.attack.clients)
        self.attackers = hostile if scenario.attack.kind != "none" else frozenset()
        learning = scenario.learning
        self._loss = build_loss(learning.loss, learning.loss_options)
        self._adjustment = self._class_counts() if learning.logit_adjustment else None
        self._transforms = build_transforms(scenario.data.transform, dataset.train_images)
        self._models: queue.SimpleQueue[FlatModel] = queue.SimpleQueue()
        for _ in range(self.workers):
            self._models.put(self._fresh_model())
        self._check_output()
        self._pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        self._host_threads = torch.get_num_threads()

    def __enter__(self) -> "Clients":
        self._host_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._host_threads)

    def initial_weights(self) -> Flat:
        """θ⁰, drawn from the seed."""
        return self._fresh_model().read()

    def shapes(self) -> tuple[Shapes, Shapes]:
        """Names and shapes of the model's parameters and of its buffers, in the order of the flat vector."""
        model = self._fresh_model().model
        parameters = {name: tuple(one.shape) for name, one in model.named_parameters()}
        return parameters, {name: tuple(one.shape) for name, one in sent_buffers(model).items()}

    def layer_sizes(self) -> list[int]:
        """The number of values of each parameter tensor."""
        return [math.prod(shape) for shape in self.shapes()[0].values()]

    def train(
        self, who: Iterable[int], weights: Flat, round_index: int, then: Callable[[int, LocalResult], T]
    ) -> dict[int, T]:
        """Train some clients and pass each result to `then`, in the thread that trained it.

        The largest datasets start first, so that no worker waits long at the end.
        """
        order = sorted(who, key=lambda client: (-len(self.shares[client]), client))
        return self._each(local_update, order, weights, ("batches", round_index), then)

    def probe(
        self, weights: Flat, then: Callable[[int, LocalResult], T], who: Sequence[int] | None = None
    ) -> dict[int, T]:
        """Measure gradients at a fixed model, by default of all clients. Needed before the first decision."""
        return self._each(probe, range(len(self.shares)) if who is None else who, weights, ("probe",), then)

    def _each(
        self,
        work: Callable[..., LocalResult],
        order: Sequence[int],
        weights: Flat,
        name: tuple[str, *tuple[int, ...]],
        then: Callable[[int, LocalResult], T],
    ) -> dict[int, T]:
        learning = self.scenario.learning
        factor = learning.decay ** name[1] if len(name) > 1 else 1.0
        rate = learning.learning_rate * factor
        make_optimizer = optimizer_maker(
            learning.optimizer, learning_rate=rate, momentum=learning.momentum, weight_decay=learning.weight_decay
        )

        def trained(model: FlatModel, client: int) -> LocalResult:
            share = self.shares[client]
            labels = self._labels[share]
            if client in self.attackers:
                wrong = self._attack.labels(labels.numpy(), self.dataset.num_classes)
                labels = torch.from_numpy(np.ascontiguousarray(wrong))
            with model.randomness(key(self.seed, "model", name[0], client, *name[1:])):
                result = work(
                    model,
                    weights,
                    self._images[share],
                    labels,
                    local_updates=learning.local_updates,
                    local_epochs=learning.local_epochs,
                    batch_size=learning.batch_size,
                    learning_rate=rate,
                    rng=stream(self.seed, name[0], client, *name[1:]),
                    transform_rng=stream(self.seed, "transform", name[0], client, *name[1:]),
                    make_optimizer=make_optimizer,
                    adjustment=None if self._adjustment is None else self._adjustment.of(labels),
                )
            result = with_scaled_gradients(result, factor)
            if client not in self.attackers:
                return result
            changed = self._attack.result(result, weights, stream(self.seed, "attack", name[0], client, *name[1:]))
            return replace(changed, hostile=True)

        def one(client: int) -> T:
            return then(client, self._with_model(lambda model: trained(model, client)))

        return dict(zip(order, self._pool.map(one, order), strict=True))

    def _class_counts(self) -> Adjustment:
        """How clients correct their scores for the classes that they have."""
        learning, labels = self.scenario.learning, self.dataset.train_labels
        clients = labels[np.concatenate(self.shares)]
        meets = labels if learning.logit_adjustment == "dataset" else clients
        clients, meets = (np.bincount(one, minlength=self.dataset.num_classes) for one in (clients, meets))
        return Adjustment(clients, meets, learning.adjustment_strength)

    def evaluate(self, weights: Flat, samples: int | None = None) -> tuple[float, float]:
        """Accuracy and loss on all test samples, or on the same random `samples` of them each time."""
        images, labels = self._test
        if samples is not None and samples < len(labels):
            chosen = torch.from_numpy(stream(self.seed, "evaluation").permutation(len(labels))[:samples])
            images, labels = images[chosen], labels[chosen]
        starts = range(0, len(labels), EVALUATION_BATCH)

        def scored(model: FlatModel, start: int) -> tuple[int, float]:
            part = slice(start, start + EVALUATION_BATCH)
            with model.randomness(key(self.seed, "model", "evaluation", start)):
                return score(model, weights, images[part], labels[part])

        def one(start: int) -> tuple[int, float]:
            return self._with_model(lambda model: scored(model, start))

        scores = list(self._pool.map(one, starts))
        return sum(right for right, _ in scores) / len(labels), sum(loss for _, loss in scores) / len(labels)

    def _fresh_model(self) -> FlatModel:
        model = build_model(self._model, self.seed, **self.scenario.learning.model_options)
        return FlatModel(
            model, device=self.device, precision=self.precision, loss=self._loss, transforms=self._transforms
        )

    def _check_output(self) -> None:
        """Refuse a model that does not give one score per class and sample."""
        images, classes = self._images[:TRIED_SAMPLES], self.dataset.num_classes

        def shape(model: FlatModel) -> tuple[int, ...]:
            model.model.eval()
            with torch.inference_mode(), model.randomness(0):
                output = model.logits(images)
            return tuple(output.shape) if isinstance(output, torch.Tensor) else ()

        found = self._with_model(shape)
        if len(found) != 2 or found[0] != len(images) or found[1] < classes:
            raise ConfigError(
                f"model {self.scenario.learning.model!r} gives outputs of shape {list(found)} for {len(images)} "
                f"samples of {self.dataset.name!r}, but one score per class is needed: [{len(images)}, {classes}]."
            )

    def _with_model(self, use: Callable[[FlatModel], T]) -> T:
        model = self._models.get()
        try:
            return use(model)
        finally:
            self._models.put(model)


def resolve_device(wanted: str) -> str:
    """The device to compute on; `auto` takes a GPU where there is one."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise ConfigError('execution.device = "cuda", but no CUDA device is available here: use "cpu" or "auto".')
    return "cuda" if available and wanted != "cpu" else "cpu"


def resolve_precision(wanted: str, device: str) -> str:
    """`auto` is bf16 on a GPU that multiplies it natively, else fp32: the same numbers on every processor."""
    if wanted == "bf16" and device == "cpu" and not _multiplies_bf16():
        raise ConfigError(
            'execution.precision = "bf16", but a process that multiplies bf16 dies on this processor: use "fp32", or '
            "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16."
        )
    if wanted != "auto":
        return wanted
    return "bf16" if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"


@cache
def _multiplies_bf16() -> bool:
    """Virtual machines may announce AMX and end a process that uses it (SIGILL), so another process tries it."""
    if not torch.cpu._is_amx_tile_supported():
        return True
    program = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
