"""The service as its clients see it, in a process of its own."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from qccf.rounds.run_folder import write_run
from qccf.runtimes.planner import plan, plan_summary
from qccf.settings.loading import load_scenario
from qccf.settings.problem import decide_problem, decision_to_json, parse_problem
from tests.helpers.service import PATIENCE_S, Running, running_service, written_rounds

ROOT = Path(__file__).parents[2]
PROBLEM = json.loads((ROOT / "examples" / "round.json").read_text())
PAPERS = json.loads((ROOT / "examples" / "paper-round.json").read_text())
SMALL = {"federation.num_clients": 4, "radio.num_channels": 3, "federation.rounds": 3}
LONG = {"policies": ["qccf"], "seeds": 50, "settings": {"federation.rounds": 1000}}


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Running]:
    runs = tmp_path_factory.mktemp("service") / "runs"
    *_, last = written_rounds(runs / "first", load_scenario("femnist", SMALL))
    write_run(runs / "first", last)
    with running_service(runs) as running:
        yield running


@pytest.fixture
def client(service: Running) -> httpx.Client:
    return service.client


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    sentence = answer.json()["detail"]
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("tree", [PROBLEM, PAPERS], ids=["default", "paper"])
def test_a_decision_is_the_librarys(client: httpx.Client, tree: dict[str, Any]) -> None:
    problem = parse_problem(tree)
    expected = decision_to_json(problem, decide_problem(problem))
    answer = client.post("/v1/decide", json=tree).raise_for_status().json()
    assert {**answer, "wall_time_s": 0} == {**expected, "wall_time_s": 0}


def test_solvers_can_be_chosen_for_the_papers_form(client: httpx.Client) -> None:
    chosen = {"solver": "exhaustive", "inner": "closed-form"}
    assert client.post("/v1/decide", json=PAPERS, params=chosen).json()["solver"] == "exhaustive/closed-form"
    assert "this problem has no queues" in refused(client.post("/v1/decide", json=PROBLEM, params=chosen), 422)
    assert "solver: input should be" in refused(client.post("/v1/decide", json=PAPERS, params={"solver": "x"}), 422)


def test_mistakes_get_the_sentence_of_the_command_line(client: httpx.Client) -> None:
    assert refused(client.post("/v1/decide", json={}), 422).startswith("the problem lacks rates_bps")
    broken = PROBLEM | {"rates_bps": [[1.0], [1.0, 2.0]]}
    assert "rates_bps is ragged: client 1 has 2 channels" in refused(client.post("/v1/decide", json=broken), 422)
    assert client.post("/v1/decide", json=PROBLEM | {"colour": 3}).json()["ignored"] == ["colour"]
    odd = b'{"rates_bps": "\\ud800"}'
    headers = {"content-type": "application/json"}
    assert "rates_bps" in refused(client.post("/v1/decide", content=odd, headers=headers), 422)


def test_limits_have_a_status_of_their_own(client: httpx.Client) -> None:
    assert "application/json" in refused(client.post("/v1/decide", content=b"{}"), 415)
    large = b"[" + b"0," * (9 * 2**20) + b"0]"
    headers = {"content-type": "application/json"}
    assert "larger than 16,777,216 bytes" in refused(client.post("/v1/decide", content=large, headers=headers), 413)
    chunks = (b"0," * 2**19 for _ in range(18))  # without a stated length
    assert "larger than" in refused(client.post("/v1/decide", content=chunks, headers=headers), 413)
    many = {"rates_bps": [[1.0] * 1000] * 251}
    assert "251 clients × 1,000 channels is above the limit" in refused(client.post("/v1/decide", json=many), 413)
    far = {"settings": {"federation.num_clients": 100_000, "radio.num_channels": 100_000}}
    for path in ("/v1/plan", "/v1/cell", "/v1/sessions"):
        assert "is above the limit" in refused(client.post(path, json=far), 413)
    many_rounds = {"settings": {"federation.rounds": 1_000_000}}
    assert "plan fewer rounds" in refused(client.post("/v1/plan", json=many_rounds), 413)
    assert "there is nothing at this address" in refused(client.get("/v1/nothing"), 404)
    assert "no such method" in refused(client.put("/v1/decide", json={}), 405)


def test_a_session_over_http(client: httpx.Client) -> None:
    made = client.post("/v1/sessions", json={"settings": SMALL | {"codec.name": "model"}})
    assert made.status_code == 201
    name = made.json()["id"]
    known = {"dataset_sizes": [1000.0] * 4, "gradient_norms_sq": [1.0] * 4, "weight_ranges": [0.4] * 4}
    body = {"rates_bps": [[8e7] * 3] * 4, **known}
    decision = client.post(f"/v1/sessions/{name}/rounds", json=body).raise_for_status().json()
    again = client.post(f"/v1/sessions/{name}/rounds", json=body).raise_for_status().json()
    assert again == decision, "the same request gets the same answer: the first may have been lost"
    other = client.post(f"/v1/sessions/{name}/rounds", json=body | {"weight_ranges": [0.5] * 4})
    assert "is decided and has no outcome yet" in refused(other, 409)
    sent = [{"client": k, "gradient_norm_sq": 1.0, "weight_range": 0.4} for k in decision["to_train"]]
    outcome = client.post(f"/v1/sessions/{name}/outcome", json={"uploads": sent}).raise_for_status().json()
    assert outcome["round"] == 1
    assert outcome["arrived"] == decision["to_train"]
    assert client.get(f"/v1/sessions/{name}").json()["state"] == outcome["state"]
    assert name in {one["id"] for one in client.get("/v1/sessions").json()}
    assert client.delete(f"/v1/sessions/{name}").status_code == 204
    assert "no session of this name" in refused(client.get(f"/v1/sessions/{name}"), 404)


def test_a_plan_is_the_planners(client: httpx.Client) -> None:
    body = {"policies": ["qccf", "same-size"], "seeds": 2, "settings": SMALL}
    expected = plan_summary(plan(load_scenario("femnist", SMALL), ["qccf", "same-size"], 2))
    answer = client.post("/v1/plan", json=body).raise_for_status().json()
    assert answer["summary"] == json.loads(json.dumps(expected))
    assert [row["label"] for row in answer["rows"]] == ["qccf", "same-size"]
    energy = answer["rows"][0]["energy_j"]
    assert energy["mean"] == pytest.approx(expected[0]["energy_j"]["mean"])
    # Student's t with one degree of freedom: 12.706 standard errors
    assert energy["half"] == pytest.approx(12.7062 * expected[0]["energy_j"]["std"] / np.sqrt(2), rel=1e-4)
    assert answer["chart"]["panels"][0]["title"] == "Energy of the whole run"


def events(client: httpx.Client, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The events of a plan as they arrive."""
    with client.stream("POST", "/v1/plan", json=body, headers={"accept": "text/event-stream"}) as answer:
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_a_plan_reports_its_progress(client: httpx.Client) -> None:
    seen = list(events(client, {"policies": ["qccf"], "seeds": 2, "settings": SMALL}))
    assert seen[0][0] == "started"
    assert seen[-1][0] == "result"
    assert {name for name, _ in seen[1:-1]} == {"progress"}
    assert all(data["done"] <= data["total"] == 6 for _, data in seen[1:-1])
    mistaken = list(events(client, {"settings": {"radio.bandwith_hz": 1}}))
    assert mistaken[-1] == ("error", {"detail": "radio.bandwith_hz is not a setting; did you mean radio.bandwidth_hz?"})


def test_a_plan_is_cancelled_by_its_name(client: httpx.Client, service: Running) -> None:
    stream = events(client, LONG)
    name = next(stream)[1]["id"]
    next(stream)
    assert httpx.delete(f"{service.address}/v1/plan/{name}", timeout=PATIENCE_S).status_code == 204
    *_, last = stream
    assert last == ("error", {"detail": "The plan was cancelled."})
    assert refused(client.delete(f"/v1/plan/{name}"), 404) == "no plan of this name is running."


def test_clients_that_vanish_free_their_plan(client: httpx.Client) -> None:
    """More plans are abandoned than there are processes for them, and one more is answered."""
    for _ in range(3):
        stream = events(client, LONG)
        assert next(stream)[0] == "started"
        stream.close()
    body = {"policies": ["qccf"], "seeds": 1, "settings": SMALL}
    assert client.post("/v1/plan", json=body).status_code == 200


def test_slow_clients_hold_nobody_up(client: httpx.Client, service: Running) -> None:
    host, port = service.address.removeprefix("http://").split(":")
    head = f"POST /v1/%s HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    stuck = []
    for _ in range(20):  # half a body, and then nothing
        one = socket.create_connection((host, int(port)))
        one.sendall((head % "decide" + "content-length: 1000\r\n\r\n{").encode())
        stuck.append(one)
    body = json.dumps({"policies": ["qccf"], "seeds": 1, "settings": SMALL}).encode()
    for _ in range(4):  # events that nobody reads
        one = socket.create_connection((host, int(port)))
        stated = f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        one.sendall((head % "plan" + stated).encode() + body)
        stuck.append(one)
    try:
        assert client.post("/v1/decide", json=PROBLEM).status_code == 200
        assert client.post("/v1/plan", content=body, headers={"content-type": "application/json"}).status_code == 200
    finally:
        for one in stuck:
            one.close()


def test_many_requests_at_once(service: Running) -> None:
    answers: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=service.address, timeout=PATIENCE_S) as own:
            answers.extend(own.post("/v1/decide", json=PROBLEM).status_code for _ in range(3))

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert answers == [200] * 96


def test_the_cell_says_who_can_never_upload(client: httpx.Client) -> None:
    settings = SMALL | {"cell.radius_m": 3000.0, "codec.name": "model", "radio.gain_db": -12.0}
    answer = client.post("/v1/cell", json={"settings": settings}).raise_for_status().json()
    assert len(answer["positions_m"]) == 4
    assert answer["never"], "some client of this cell is too far away"
    assert "Mb/s at its best" in answer["never"][0]["why"]
    placed = [[100.0, 0.0], [0.0, 100.0], [-100.0, 0.0], [0.0, -100.0]]
    near = client.post("/v1/cell", json={"settings": settings | {"cell.positions_m": placed}}).json()
    assert near["positions_m"] == placed
    assert near["never"] == []


def test_settings_as_a_file(client: httpx.Client, tmp_path: Path) -> None:
    body = {"preset": "quick", "settings": {"radio.gain_db": 3.0}}
    file = tmp_path / "mine.toml"
    file.write_bytes(client.post("/v1/settings", json=body).raise_for_status().content)
    assert load_scenario(file) == load_scenario("quick", {"radio.gain_db": 3.0})


def test_a_plan_as_a_file_with_its_command(client: httpx.Client, tmp_path: Path) -> None:
    """The command in the first line of the file makes the plan that the service makes."""
    asked = {"preset": "quick", "settings": SMALL, "policies": ["same-size", "qccf"], "seeds": 2}
    for codecs in (["model"], ["model", "update+entropy"]):
        body = asked | {"codecs": codecs}
        content = client.post("/v1/settings", json=body).raise_for_status().content
        (tmp_path / "qccf-plan.toml").write_bytes(content)
        command = shlex.split(content.decode().partition("\n")[0].removeprefix("# "))
        assert command[:3] == ["qccf", "plan", "qccf-plan.toml"]
        done = subprocess.run(
            [sys.executable, "-m", *command, "--out", "plan", "--force"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        planned = json.loads((tmp_path / "plan" / "plan.json").read_text())["summary"]
        assert planned == client.post("/v1/plan", json=body).raise_for_status().json()["summary"]
    odd = asked | {"policies": ["x\n[radio]"]}
    assert "is not one of" in refused(client.post("/v1/settings", json=odd), 422)


def test_finished_runs(client: httpx.Client) -> None:
    (run,) = client.get("/v1/runs").json()
    assert (run["name"], run["status"], run["rounds"]) == ("first", "finished", 3)
    assert len(run["spark"]["main"]) == 3
    shown = client.get(f"/v1/runs/{run['id']}").json()
    assert shown["summary"]["policy"] == "qccf"
    assert len(shown["cell"]["positions_m"]) == shown["scenario"]["federation"]["num_clients"]
    columns = client.get(f"/v1/runs/{run['id']}/rounds").json()
    assert columns["round"] == [0, 1, 2]
    chart = client.get("/v1/charts", params={"run": run["id"]}).json()
    assert [panel["title"] for panel in chart["panels"]][:3] == ["Accuracy", "Energy", "Bits"]
    assert chart["panels"][1]["series"][0]["y"] == pytest.approx(columns["cumulative_energy_j"], rel=1e-5)
    table = client.get(f"/v1/runs/{run['id']}/clients", params={"format": "parquet"})
    assert len(pd.read_parquet(io.BytesIO(table.content))) == 3 * len(shown["cell"]["positions_m"])
    page = client.get("/v1/report", params={"run": run["id"]})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<figure" in page.text


def test_a_run_can_be_read_while_it_is_written(service: Running, client: httpx.Client) -> None:
    folder = service.runs / "live"
    written = written_rounds(folder, load_scenario("femnist", SMALL))
    next(written)
    (live,) = (one for one in client.get("/v1/runs").json() if one["name"] == "live")
    assert (live["status"], live["rounds"], live["planned_rounds"]) == ("running", 1, 3)
    with client.stream("GET", f"/v1/runs/{live['id']}/events") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("event"))
        assert next(lines) == "event: changed"
        second = next(written)
        assert next(lines) == "event: changed"
        columns = httpx.get(f"{service.address}/v1/runs/{live['id']}/rounds", timeout=PATIENCE_S).json()
        assert columns["energy_j"] == second.round_columns["energy_j"].tolist()
    now = client.get(f"/v1/runs/{live['id']}").json()
    assert now["seconds_per_round"] > 0
    assert 0 <= now["eta_s"] <= now["seconds_per_round"]
    write_run(folder, next(written))
    assert client.get(f"/v1/runs/{live['id']}").json()["status"] == "finished"
    (folder / "summary.json").unlink()
    for file in folder.glob("checkpoints/*"):
        os.utime(file, (1.0, 1.0))
    assert client.get(f"/v1/runs/{live['id']}").json()["status"] == "stopped"
    for file in folder.glob("checkpoints/*"):
        file.write_bytes(b"torn")
    assert refused(client.get(f"/v1/runs/{live['id']}"), 422).endswith("wait for its first checkpoint.")
    (one,) = (one for one in client.get("/v1/runs").json() if one["name"] == "live")
    assert one["status"] == "starting"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["nothing", "..%2Ffirst", "first", "%2e%2e"])
def test_runs_have_no_paths(client: httpx.Client, name: str) -> None:
    for path in (f"/v1/runs/{name}", f"/v1/runs/{name}/rounds", f"/v1/runs/{name}/events"):
        assert client.get(path).status_code in (404, 422)


def test_pages_are_whole_and_come_from_here(client: httpx.Client) -> None:
    for path in ("/", "/runs", "/docs"):
        page = client.get(path)
        assert page.status_code == 200
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert client.head(path).status_code == 200
        assert "http" not in page.text.replace("http-equiv", "")
        for asset in re.findall(r'(?:src|href)="(/assets/[\w.]+)"', page.text):
            assert client.get(asset).status_code == 200
    assert client.get("/assets/..%2Fapp.py").status_code == 404
    described = client.get("/openapi.json").json()
    assert "/v1/decide" in described["paths"]
    assert "rates_bps" in json.dumps(described["paths"]["/v1/decide"])


def test_a_killed_service_starts_again_with_its_sessions(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with running_service(runs) as first:
        name = first.client.post("/v1/sessions", json={"settings": SMALL | {"codec.name": "model"}}).json()["id"]
        known = {"dataset_sizes": [1000.0] * 4, "gradient_norms_sq": [1.0] * 4, "weight_ranges": [0.4] * 4}
        body = {"rates_bps": [[8e7] * 3] * 4, **known}
        decision = first.client.post(f"/v1/sessions/{name}/rounds", json=body).json()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    with running_service(runs) as second:
        assert second.client.post(f"/v1/sessions/{name}/rounds", json=body).json() == decision
        sent = [{"client": k, "gradient_norm_sq": 1.0, "weight_range": 0.4} for k in decision["to_train"]]
        outcome = second.client.post(f"/v1/sessions/{name}/outcome", json={"uploads": sent}).json()
        assert outcome["round"] == 1


@pytest.mark.parametrize(
    "command", [[sys.executable, "examples/service_client.py"], ["sh", "examples/service_client.sh"]]
)
def test_the_examples_run(service: Running, command: list[str]) -> None:
    if "sh" in command and shutil.which("curl") is None:
        pytest.skip("curl is missing")
    done = subprocess.run([*command, service.address], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in 5 rounds" in done.stdout or '"total_energy_j"' in done.stdout
    assert service.client.get("/v1/sessions").json() == []
