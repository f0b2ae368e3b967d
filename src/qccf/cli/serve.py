"""`qccf serve`."""

import argparse
from pathlib import Path

from qccf.cli.options import Subparsers
from qccf.cli.parser import whole_number


def add_parser(commands: Subparsers) -> None:
    serve = commands.add_parser("serve", help="decisions, plans and runs over HTTP, and a page to plan on")
    serve.description = (
        "Serve decisions, sessions, plans and runs over HTTP, and pages to plan a federation and to watch runs."
    )
    serve.usage = "qccf serve [options]"
    serve.examples = {
        "qccf serve": "the planner's page at http://127.0.0.1:8008/",
        "qccf serve --runs runs --host 0.0.0.0 --token token.txt": "for other machines, which need the token",
    }
    serve.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen on (default 127.0.0.1, this machine only)"
    )
    serve.add_argument("--port", type=whole_number, default=8008, metavar="P", help="port (default 8008; 0: any)")
    serve.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help="file with the secret that requests must send; needed for other hosts",
    )
    serve.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs to show (default runs)"
    )
    serve.add_argument(
        "--workers", type=whole_number, metavar="W", help="processes that decide (default: one per core)"
    )
    serve.add_argument(
        "--allow-plugins", action="store_true", help="let requests name code of your own as module:Class"
    )
    serve.add_argument("--verbose", action="store_true", help="log every request")
    serve.set_defaults(run=serve_command, extra="serve")


def serve_command(options: argparse.Namespace) -> int:
    from qccf.cli.screen import output
    from qccf.service.server import checked_address, default_workers, serve
    from qccf.service.setup import Setup

    address = checked_address(options.host, options.port, options.token)
    setup = Setup(options.runs.resolve(), options.allow_plugins)
    console = output()

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False)

    workers = default_workers() if options.workers is None else options.workers
    serve(setup, address, workers, say, verbose=options.verbose)
    return 0
