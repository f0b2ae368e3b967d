"""A ClientApp for the scenarios of qccf, configured by the run config of a Flower app.

In a deployment each message starts a process. It imports torch and loads the data only when it trains.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from qccf.learning.results import Flat
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.machine import measured
from qccf.runtimes.flower.messages import CONFIG, Instruction
from qccf.runtimes.flower.mod import Trained, reply_to


def client_app() -> ClientApp:
    """One client of the scenario in the run config; the node's partition-id is its number."""
    app = ClientApp()

    @app.train()
    def reply(message: Message, context: Context) -> Message:
        def train(instruction: Instruction, layout: Layout, weights: Flat) -> Trained:
            from qccf.runtimes.flower import run_config

            config = run_config.read_config(context)
            told = message.content.config_records[CONFIG]
            settings = f"{config['set']} data.dataset={told['dataset']}"
            clients = run_config.cached_clients(config["scenario"], settings, config["data-dir"], told["num-clients"])
            run_config.clients_layout(clients).require(layout)
            client = instruction.client
            with measured(context.node_config, instruction.frequency_hz) as taken:
                if instruction.act == "probe":
                    results = clients.probe(weights, lambda _, result: result, [client])
                else:
                    results = clients.train([client], weights, instruction.round_index, lambda _, result: result)
            return Trained(results[client], len(clients.shares[client]), taken.seconds, taken.joules)

        return reply_to(message, context, train)

    return app
