"""pfl-research's simulated backend, with all cores in each operation. Prints JSON: the seconds of each round."""

import json
import sys
import time

import numpy as np
import torch
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional


class Network(work.Network):
    def loss(self, images, labels, eval=False):  # noqa: A002 - required by pfl
        self.train(not eval)
        return functional.cross_entropy(self(images), labels)

    def metrics(self, images, labels, eval=False):  # noqa: A002
        return {}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.finished: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.finished.append(time.perf_counter())
        return False, type(aggregate_metrics)()


def main(rounds: int) -> None:
    np.random.seed(0)  # noqa: NPY002 - pfl draws from the global generator
    torch.random.manual_seed(0)
    users = list(range(work.CLIENTS))
    data = {user: work.client_data(user) for user in users}

    def make(user: int) -> Dataset:
        return Dataset(raw_data=list(data[user]), user_id=str(user))

    training = FederatedDataset(make, get_user_sampler("minimize_reuse", users))
    model = Network()
    wrapped = PyTorchModel(
        model, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0)
    )
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=work.CLIENTS,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=training, val_data=training),
        model=wrapped,
        model_train_params=NNTrainHyperParams(
            local_batch_size=work.BATCH,
            local_num_epochs=work.EPOCHS,
            local_learning_rate=work.LEARNING_RATE,
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    print(json.dumps(np.diff(clock.finished).tolist()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
