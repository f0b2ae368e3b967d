"""The HTTP application: one route per task, errors as one sentence."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from qccf._version import __version__
from qccf.core.errors import QccfError
from qccf.service.answers import PARQUET, Answer, RefusedError, refusal
from qccf.service.events import EventResponse
from qccf.service.guard import Guard
from qccf.service.pages import PAGES, load_files
from qccf.service.reading import read_content, unless_gone
from qccf.service.requests import FileBody, OutcomeBody, PlanBody, RoundBody, ScenarioBody
from qccf.service.schemas import body, problem_schema, responses
from qccf.service.service import Service
from qccf.service.setup import Setup
from qccf.service.workers import START_S

WATCH_LIMIT_S = 3600.0
EVENTS = "text/event-stream"
READ = ["GET", "HEAD"]
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The report is one file with its style and script in it; every value in it is escaped."""

Name = Annotated[str, Query(max_length=64)]


def create_app(setup: Setup, *, state: Path, hosts: frozenset[str], token: str | None = None, workers: int = 2) -> Any:
    """The application. Its processes start with it and end with it."""
    held: dict[str, Service] = {}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        held["service"] = Service(setup, state, workers)
        held["service"].start()
        yield
        held["service"].stop()

    app = FastAPI(
        title="qccf",
        version=__version__,
        summary="Decisions, sessions, plans and runs of energy-efficient federated learning over a wireless uplink.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    _add_errors(app)
    _add_pages(app)
    _add_decisions(app, lambda: held["service"])
    _add_sessions(app, lambda: held["service"])
    _add_plans(app, lambda: held["service"])
    _add_runs(app, lambda: held["service"])
    app.add_middleware(Guard, hosts=hosts, token=token)
    return app


def response(answer: Answer, **headers: str) -> Response:
    if answer.status == 503:
        headers["retry-after"] = "1"
    return Response(answer.content, answer.status, headers, answer.media_type if answer.content else None)


def _add_errors(app: FastAPI) -> None:
    async def refused(_: Request, error: Any) -> Response:
        return response(refusal(error.status, str(error)))

    async def mistake(_: Request, error: Any) -> Response:
        return response(refusal(422, str(error)))

    async def wrong_parameter(_: Request, error: Any) -> Response:
        first = error.errors()[0]
        return response(refusal(422, f"{first['loc'][-1]}: {first['msg'][0].lower()}{first['msg'][1:]}."))

    async def unknown(_: Request, error: Any) -> Response:
        words = {
            404: "there is nothing at this address: see /docs.",
            405: "this address has no such method: see /docs.",
        }
        answer = refusal(error.status_code, words.get(error.status_code, str(error.detail)))
        return response(answer, **dict(error.headers or {}))

    async def fault(_: Request, __: Any) -> Response:
        return response(refusal(500, "This is a fault in qccf; the log of the service has the traceback."))

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(QccfError, mistake)
    app.add_exception_handler(RequestValidationError, wrong_parameter)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(Exception, fault)


def _add_pages(app: FastAPI) -> None:
    files = load_files()

    async def page(name: str) -> Response:
        return response(files[name])

    for path, name in PAGES.items():
        app.add_api_route(path, partial(page, name), methods=READ, include_in_schema=False, response_class=Response)

    @app.api_route("/assets/{name}", methods=READ, include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "there is no such file.")
        return response(files[name])


def _add_decisions(app: FastAPI, service: Any) -> None:
    @app.post("/v1/decide", tags=["decide"], openapi_extra=body(problem_schema()),
              responses=responses(200, "the decision with its certificate"))  # fmt: skip
    async def decide(
        request: Request,
        solver: Literal["assignment", "genetic", "exhaustive"] = "assignment",
        inner: Literal["exact", "closed-form", "printed"] = "exact",
        seed: Annotated[int, Query(ge=0, le=2**32 - 1)] = 0,
    ) -> Response:
        """Decide one round, as `qccf decide` does. Solvers can be chosen for problems in the paper's form."""
        content = await read_content(request, service().limits)
        chosen = {"solver": solver, "inner": inner, "seed": seed}
        return response(await unless_gone(request, service().decide(content, chosen)))


def _add_sessions(app: FastAPI, service: Any) -> None:
    @app.post("/v1/sessions", tags=["sessions"], status_code=201, openapi_extra=body(ScenarioBody),
              responses=responses(201, "the new session"))  # fmt: skip
    async def create(request: Request) -> Response:
        """Start a session: the policy's state stays on the server."""
        content = await read_content(request, service().limits)
        return response(await service().create_session(content))

    @app.get("/v1/sessions", tags=["sessions"], responses=responses(200, "all sessions"))
    async def listed() -> Response:
        """All sessions, with the seconds since they were made and used."""
        return response(await service().list_sessions())

    @app.get("/v1/sessions/{session}", tags=["sessions"], responses=responses(200, "the session"))
    async def shown(session: str) -> Response:
        """The round, the state of the policy and the energy spent."""
        return response(await service().describe_session(session))

    @app.delete("/v1/sessions/{session}", tags=["sessions"], status_code=204, response_class=Response,
                responses=responses(204, "it is deleted", ""))  # fmt: skip
    async def deleted(session: str) -> Response:
        """Forget a session."""
        return response(await service().delete_session(session))

    @app.post("/v1/sessions/{session}/rounds", tags=["sessions"], openapi_extra=body(RoundBody),
              responses=responses(200, "the decision"))  # fmt: skip
    async def decided(session: str, request: Request) -> Response:
        """Decide the session's next round from its rates and what is new about the clients."""
        content = await read_content(request, service().limits)
        return response(await unless_gone(request, service().advance_session(session, "session_round", content)))

    @app.post("/v1/sessions/{session}/outcome", tags=["sessions"], openapi_extra=body(OutcomeBody),
              responses=responses(200, "the state after the round"))  # fmt: skip
    async def ended(session: str, request: Request) -> Response:
        """Report the uploads of the decided round."""
        content = await read_content(request, service().limits)
        return response(await unless_gone(request, service().advance_session(session, "session_outcome", content)))


def _add_plans(app: FastAPI, service: Any) -> None:
    @app.post("/v1/plan", tags=["plan"], openapi_extra=body(PlanBody),
              responses=responses(200, "the summary, or its events", "application/json", EVENTS))  # fmt: skip
    async def plan(request: Request) -> Response:
        """Plan without training. With `Accept: text/event-stream` the answer is a stream of the events `started`,
        `progress`, and `result` or `error`. Closing the connection cancels the plan."""
        content = await read_content(request, service().limits)
        if EVENTS in request.headers.get("accept", ""):
            limit_s = 2.0 * service().limits.plan_s + START_S  # it may wait as long as it may plan
            return EventResponse(service().plan_events(content), limit_s, service().take_stream())
        return response(await unless_gone(request, service().plan(content)))

    @app.delete("/v1/plan/{plan}", tags=["plan"], status_code=204, response_class=Response,
                responses=responses(204, "it is cancelled", ""))  # fmt: skip
    async def cancelled(plan: str) -> Response:
        """Cancel a plan by the name that its event `started` gave."""
        return response(service().cancel_plan(plan))

    @app.post("/v1/cell", tags=["plan"], openapi_extra=body(ScenarioBody),
              responses=responses(200, "the first cell"))  # fmt: skip
    async def cell(request: Request) -> Response:
        """Positions, samples and rates of the clients, and who can never upload and why."""
        content = await read_content(request, service().limits)
        return response(await unless_gone(request, service().quick("cell", content)))

    @app.post("/v1/settings", tags=["plan"], openapi_extra=body(FileBody),
              responses=responses(200, "the settings as TOML", "application/toml"))  # fmt: skip
    async def settings(request: Request) -> Response:
        """A scenario as a file for `qccf plan` and `qccf run`. Its first line is the command that makes the plan."""
        content = await read_content(request, service().limits)
        return response(await unless_gone(request, service().quick("settings_file", content)))

    @app.get("/v1/options", tags=["plan"], responses=responses(200, "presets, policies, codecs and settings"))
    async def options() -> Response:
        """What the planner's page offers."""
        return response(await service().quick("options", None))


def _add_runs(app: FastAPI, service: Any) -> None:
    @app.get("/v1/runs", tags=["runs"], responses=responses(200, "all runs"))
    async def listed() -> Response:
        """All runs below the folder of the service, the one that was written last first."""
        return response(await service().read("list_runs", None))

    @app.get("/v1/charts", tags=["runs"], responses=responses(200, "the figures as numbers"))
    async def charts(run: Annotated[list[Name], Query(min_length=1, max_length=12)]) -> Response:
        """The figures of some runs beside each other."""
        return response(await service().read("run_charts", run))

    @app.get("/v1/report", tags=["runs"], responses=responses(200, "the report as one page", "text/html"))
    async def report(run: Annotated[list[Name], Query(min_length=1, max_length=60)]) -> Response:
        """The report about some runs."""
        answer = await service().read("report", run)
        return response(answer, **{"content-security-policy": REPORT_POLICY} if answer.status == 200 else {})

    @app.get("/v1/runs/{run}", tags=["runs"], responses=responses(200, "the run"))
    async def shown(run: str) -> Response:
        """Status, summary, settings, health and map of one run."""
        return response(await service().read("show_run", run))

    @app.get("/v1/runs/{run}/events", tags=["runs"], responses=responses(200, "events", EVENTS))
    async def events(run: str) -> Response:
        """An event `changed` whenever the run was written."""
        with service().take_stream() as place:
            found = await service().read("find_run", run)
            if found.status != 200:
                return response(found)
            return EventResponse(service().run_events(run), WATCH_LIMIT_S, place.pop_all())

    @app.get("/v1/runs/{run}/{table}", tags=["runs"],
             responses=responses(200, "the table, one list per column", "application/json", PARQUET))  # fmt: skip
    async def table(
        run: str,
        table: Literal["rounds", "clients"],
        format: Literal["json", "parquet"] = "json",  # noqa: A002
    ) -> Response:
        """One row per round, or per client and round, so far."""
        return response(await service().read("run_table", (run, table, format)))
