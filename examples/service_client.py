"""A federation in any program, decided by the service: a client in Python with httpx.

Run: qccf serve        in one terminal
     python examples/service_client.py [ADDRESS]

The radio and the training are made up here; a real server would measure the rates and collect the uploads.
"""

import random
import sys

import httpx

CLIENTS, CHANNELS, ROUNDS = 6, 4, 5


def measured_rates(rng: random.Random) -> list[list[float]]:
    """Rates in bit/s, client × channel."""
    return [[rng.uniform(4e7, 1.2e8) for _ in range(CHANNELS)] for _ in range(CLIENTS)]


def trained(client: int, rng: random.Random) -> dict[str, float]:
    """What a client reports with its upload."""
    return {
        "client": client,
        "gradient_norm_sq": rng.uniform(0.5, 2.0),
        "gradient_variance": rng.uniform(0.5, 2.0),
        "weight_range": rng.uniform(0.3, 0.6),
        "loss": rng.uniform(0.5, 3.0),
    }


def main(address: str = "http://127.0.0.1:8008") -> None:
    rng = random.Random(0)
    settings = {"federation.num_clients": CLIENTS, "radio.num_channels": CHANNELS, "codec.name": "model"}
    with httpx.Client(base_url=address, timeout=60.0) as service:
        made = service.post("/v1/sessions", json={"preset": "femnist", "settings": settings}).raise_for_status().json()
        session = f"/v1/sessions/{made['id']}"
        known: dict[str, list[float]] = {
            "dataset_sizes": [float(rng.randint(800, 1600)) for _ in range(CLIENTS)],
            "gradient_norms_sq": [1.0] * CLIENTS,
            "weight_ranges": [0.4] * CLIENTS,
        }
        for number in range(ROUNDS):
            body = {"round": number, "rates_bps": measured_rates(rng), **(known if number == 0 else {})}
            decision = service.post(f"{session}/rounds", json=body).raise_for_status().json()
            uploads = [trained(client, rng) for client in decision["to_train"]]
            body = {"round": number, "uploads": uploads}
            outcome = service.post(f"{session}/outcome", json=body).raise_for_status().json()
            print(f"round {number}: bits {decision['num_bits']}, {1e3 * outcome['energy_j']:.2f} mJ")
        print(f"{1e3 * outcome['total_energy_j']:.2f} mJ in {ROUNDS} rounds")
        service.delete(session).raise_for_status()


if __name__ == "__main__":
    main(*sys.argv[1:])
