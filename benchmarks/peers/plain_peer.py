"""A plain PyTorch loop, with all cores in each operation. Prints one line of JSON: the seconds of each round."""

import copy
import json
import sys
import time

import torch
import work


def main(rounds: int) -> None:
    data = [work.client_data(client) for client in range(work.CLIENTS)]
    server = work.Network()
    seconds = []
    for n in range(rounds):
        started = time.perf_counter()
        total = {name: torch.zeros_like(value) for name, value in server.state_dict().items()}
        for client, (images, labels) in enumerate(data):
            local = copy.deepcopy(server)
            work.train(local, images, labels, seed=n * 1000 + client)
            for name, value in local.state_dict().items():
                total[name] += value / work.CLIENTS
        server.load_state_dict(total)
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]))
