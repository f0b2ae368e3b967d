"""What worker processes do for requests. Each task takes plain values and returns an `Answer`."""

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

import tomli_w

from qccf.core.plain_json import to_json
from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS
from qccf.service import knobs, plans, runs, sessions
from qccf.service.answers import PARQUET, Answer, json_answer
from qccf.service.requests import (
    FileBody,
    OutcomeBody,
    PlanBody,
    RoundBody,
    ScenarioBody,
    read_body,
    requested_scenario,
    require_links,
)
from qccf.service.workers import Context
from qccf.settings.loading import place_setting
from qccf.settings.problem import (
    decide_problem,
    decision_to_json,
    parse_json,
    parse_problem,
    unknown_keys,
)

PROGRESS_S = 0.25
"""Seconds between two reports of progress."""

HTML = "text/html; charset=utf-8"
PLAN_FILE = "qccf-plan.toml"
"""What the planner's page calls the file of a plan."""


def decide(payload: Any, context: Context) -> Answer:
    """One round from its problem, as `qccf decide` does it."""
    content, chosen = payload
    tree = parse_json(content, "the body")
    _require_small(tree, context)
    problem = parse_problem(tree)
    answer = decision_to_json(problem, decide_problem(problem, **chosen))
    if ignored := unknown_keys(tree):
        answer["ignored"] = ignored
    return json_answer(answer)


def _require_small(tree: Any, context: Context) -> None:
    """Refuse too many links before anything is built."""
    rates = tree.get("rates_bps") if isinstance(tree, dict) else None
    if isinstance(rates, list) and rates and isinstance(rates[0], list):
        require_links(len(rates), len(rates[0]), context.setup)


def new_session(payload: bytes, context: Context) -> Answer:
    session, about = sessions.new_session(read_body(ScenarioBody, payload), context.setup)
    return json_answer(about, 201, kept=json.dumps(session).encode())


def session_round(payload: tuple[bytes, bytes], _: Context) -> Answer:
    session, content = payload
    after, answer = sessions.decide_round(json.loads(session), read_body(RoundBody, content))
    return json_answer(answer, kept=json.dumps(after).encode())


def session_outcome(payload: tuple[bytes, bytes], _: Context) -> Answer:
    session, content = payload
    after, answer = sessions.end_round(json.loads(session), read_body(OutcomeBody, content))
    return json_answer(answer, kept=json.dumps(after).encode())


def describe_session(payload: bytes, _: Context) -> Answer:
    return json_answer(sessions.description(json.loads(payload)))


def plan(payload: bytes, context: Context) -> Answer:
    """A plan with progress; it ends early if its request was cancelled."""
    body = read_body(PlanBody, payload)
    last = 0.0

    def on_progress(progress: dict[str, Any]) -> None:
        nonlocal last
        context.check()
        now = time.monotonic()
        if now - last >= PROGRESS_S:
            last = now
            context.send(to_json(progress).encode())

    return json_answer(plans.plan_answer(plans.planned_runs(body, context.setup, on_progress)))


def cell(payload: bytes, context: Context) -> Answer:
    return json_answer(plans.cell_answer(read_body(ScenarioBody, payload), context.setup))


def settings_file(payload: bytes, context: Context) -> Answer:
    """A file with the preset and what differs from it, and the command that plans with it.

    A file holds one codec, and neither policies nor the number of cells.
    """
    body = read_body(FileBody, payload)
    requested_scenario(body, context.setup, [*(body.policies or []), *(body.codecs or [])])
    for registry, names in ((POLICIES, body.policies), (CODECS, body.codecs)):
        for name in names or []:
            registry.find(name)
    changes = dict(body.settings)
    if body.codecs and len(body.codecs) == 1:
        changes["codec.name"] = body.codecs[0]
    tree: dict[str, Any] = {"preset": body.preset}
    for path, value in changes.items():
        place_setting(tree, path, value)
    command = ["qccf", "plan", PLAN_FILE]
    command += [] if body.seeds is None else ["--seeds", str(body.seeds)]
    command += [] if body.policies is None else ["--policy", ",".join(body.policies)]
    command += ["--codec", ",".join(body.codecs)] if body.codecs and len(body.codecs) > 1 else []
    content = f"# {shlex.join(command)}\n{tomli_w.dumps(tree)}"
    return Answer(200, content.encode(), "application/toml")


def options(_: None, __: Context) -> Answer:
    return json_answer(knobs.options_answer())


def list_runs(_: None, context: Context) -> Answer:
    return json_answer(runs.list_answer(context.setup))


def show_run(payload: str, context: Context) -> Answer:
    return json_answer(runs.run_answer(payload, context.setup))


def find_run(payload: str, context: Context) -> Answer:
    runs.found_folder(payload, context.setup)
    return json_answer({})


def run_charts(payload: list[str], context: Context) -> Answer:
    return json_answer(runs.chart_answer(payload, context.setup))


def run_table(payload: tuple[str, str, str], context: Context) -> Answer:
    name, table, form = payload
    columns = runs.table_columns(name, table, context.setup)
    if form == "json":
        return json_answer(columns)
    from qccf.rounds.run_folder import table_bytes

    return Answer(200, table_bytes(columns), PARQUET)


def report(payload: list[str], context: Context) -> Answer:
    return Answer(200, runs.report_page(payload, context.setup).encode(), HTML)


TASKS: dict[str, Callable[[Any, Context], Answer]] = {
    task.__name__: task
    for task in (
        decide, new_session, session_round, session_outcome, describe_session, plan, cell, settings_file, options,
        list_runs, show_run, find_run, run_charts, run_table, report,
    )
}  # fmt: skip
