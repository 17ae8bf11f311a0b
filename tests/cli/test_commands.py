from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import panacea
from panacea.cli import run_command_line
from tests.cli.printed import said
from tests.toy import wait_for_first_round

SMALL = ["data=fl60", "data.clients=6", "rounds=4", "local_steps=2", "eval_every=2"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_writes_everything_the_product_promises(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    summary = said(["run", *SMALL, "method=fedavg_ft", "checkpoint_every=2"], capsys)
    for key in (
        "method", "data", "seed", "rounds", "metric", "mean", "std", "best_mean", "best_round", "final_mean",
        "novel_mean", "novel_std", "worst_decile", "bytes_down", "bytes_up", "train_seconds", "rounds_per_second",
    ):  # fmt: skip
        assert key in summary, key
    (run,) = (tmp_path / "runs").iterdir()
    assert str(run.relative_to(tmp_path)) == summary["directory"]
    assert run.name.startswith("fl60-fedavg_ft-s0-")
    assert len(run.name.rpartition("-")[2]) == 6
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "metrics.jsonl", "timings.jsonl", "clients.csv", "summary.json", "checkpoint", "graph.npz",
        "views.npz", "report.html", "figures", "graph.json",
    }  # fmt: skip
    assert {path.name for path in (run / "checkpoint").iterdir()} == {"round-00000002", "round-00000004"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [2, 4]
    for key in ("mean", "std", "loss", "train_loss", "val_mean", "novel_mean", "bytes_down", "bytes_up"):
        assert key in lines[0]
    assert not any("second" in key or "time" in key for key in lines[0])
    table = (run / "clients.csv").read_text().splitlines()
    assert len(table) == 1 + 6
    assert table[0].startswith("client,name,novel,malicious,n_train")
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["seed"] == 0
    assert config["lr"] == 0.1
    assert config["environment"]["packages"]["torch"]
    assert {path.suffix for path in (run / "figures").iterdir()} == {".png", ".svg"}
    page = (run / "report.html").read_text()
    assert "<svg" in page
    assert "src=" not in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")


def test_a_finished_run_is_shown_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    first = said(["run", *SMALL, "method=separate"], capsys)
    again = said(["run", *SMALL, "method=separate"], capsys)
    assert first == again  # train_seconds too: nothing was trained
    anew = said(["run", *SMALL, "method=separate", "--fresh"], capsys)
    assert anew["mean"] == first["mean"]
    assert anew["train_seconds"] != first["train_seconds"]


def test_a_stored_configuration_is_a_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = said(["run", *SMALL, "method=fedprox", "method.mu=0.3"], capsys)
    config = str(Path(str(first["directory"])) / "config.yaml")
    assert said(["run", config], capsys)["directory"] == first["directory"]
    other = said(["run", config, "seed=1", "data.seed=1"], capsys)
    assert other["seed"] == 1


def test_nested_and_dotted_yaml_mean_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("data: {name: fl60, clients: 6}\nmethod: fedavg\nrounds: 1\nlr: 1e-2\n")
    (tmp_path / "b.yaml").write_text("data: fl60\ndata.clients: 6\nmethod: {name: fedavg}\nrounds: 1\nlr: 0.01\n")
    a, b = (said(["run", name], capsys)["directory"] for name in ("a.yaml", "b.yaml"))
    assert a == b


def test_the_engine_and_the_block_do_not_change_the_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        said(["run", *SMALL, "method=fedavg", *extra], capsys)
        for extra in ([], ["engine=sequential"], ["block=1"], ["threads=2"])
    ]
    assert len({str(summary["directory"]) for summary in found}) == 4
    assert all(summary["mean"] == pytest.approx(found[0]["mean"], abs=0.2) for summary in found)


def test_compare_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["compare", *SMALL, "methods=separate,fedavg", "seeds=0..1", "workers=1"]
    assert run_command_line(keys) == 0
    out = capsys.readouterr().out
    for word in ("separate", "fedavg", "worst decile", "novel clients", "95 %", "seeds 0, 1"):
        assert word in out
    found = said(keys, capsys)
    assert [row["method"] for row in found["table"]] == ["separate", "fedavg"]  # type: ignore[attr-defined, index]
    assert len(found["runs"]) == 4  # type: ignore[arg-type]


def test_lists_and_explanations(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["methods"], ["separate", "fedprox_ft"]),
        (["methods", "fedprox"], ["mu/2", "method.mu", "Differences from the paper"]),
        (["datasets"], ["fl60", "digits", "folder"]),
        (["datasets", "fl60"], ["lr=0.1", "data.clients", "source"]),
        (["config"], ["checkpoint_every", "eval_every"]),
        (["config", "data=fl60", "method=fedprox"], ["mu: 0.1", "cohort: 5"]),
        (["run", "--help"], ["checkpoint_every", "Example"]),
        (["--version"], [panacea.__version__]),
        ([], ["Usage", "compare"]),
    ):
        assert run_command_line(arguments) == 0
        out = capsys.readouterr().out
        for word in words:
            assert word in out, (arguments, word)
    assert said(["methods", "fedprox"], capsys)["name"] == "fedprox"
    assert said(["datasets", "fl60"], capsys)["name"] == "fl60"
    assert "fedavg" in said(["methods"], capsys)
    assert not (Path.cwd() / "runs").exists()


def test_a_picture_of_the_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["datasets", "digits", "data.split=dirichlet", "--picture", "labels.png"]) == 0
    assert (tmp_path / "labels.png").stat().st_size > 5000


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["run", *SMALL, "method=fedavg", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


DITTO_LIKE = '''
from pydantic import Field
from panacea.methods import Method, MethodParameters, Model
from panacea.core.records import record
from panacea.core.local import Iterate

class Parameters(MethodParameters):
    lam: float = Field(0.5, ge=0, description="pull towards the global model")

@record
class Carry:
    shared: Iterate
    own: Iterate

class Personal(Method):
    """Ditto-like: a global track as FedAvg, and a personal one held near it."""
    parameter_model = Parameters
    draws, gradients = 2, 2

    def init_client(self, download):
        return Model(download.params)

    def start(self, download, client, local):
        return Carry(local.sgd.start(download.params), local.sgd.start(client.params))

    def step(self, carry, download, client, batches, local):
        w, v = carry.shared.params, carry.own.params
        pull = self.parameters.lam * (v - download.params)
        return Carry(local.sgd(carry.shared, local.grad(w, batches[0])),
                     local.sgd(carry.own, local.grad(v, batches[1]) + pull))

    def finish(self, carry, download, client, steps):
        return Model(carry.shared.params), Model(carry.own.params)

    def personal(self, server, clients, cohort):
        return clients.take(cohort.ids, self.init_client(self.download(server, cohort))).params
'''


def test_a_new_method_outside_the_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A whole method in one file of under 40 lines, run by name from this directory; its parameters are keys."""
    code = [line for line in DITTO_LIKE.splitlines() if line.strip()]
    assert len(code) < 40
    (tmp_path / "my_methods.py").write_text(DITTO_LIKE)
    request = ["run", *SMALL, "rounds=10", "method=my_methods:Personal"]
    request.remove("rounds=4")
    found = said([*request, "method.lam=0.1"], capsys)
    assert found["method"] == "my_methods.Personal"
    reference = said([*[r for r in request if not r.startswith("method")], "method=fedavg"], capsys)
    assert found["bytes_up"] == reference["bytes_up"]
    run, plain = (
        Path(str(one["directory"])) / "checkpoint/round-00000010/state.safetensors" for one in (found, reference)
    )
    from safetensors.torch import load_file

    a, b = load_file(run), load_file(plain)
    assert a["server.params"].equal(b["server.params"])  # the shared track is FedAvg's, batch for batch
    assert a["clients.rows.params"].shape[0] == 5
    assert run_command_line([*request, "method.lambda=0.1"]) == 2


def test_a_new_method_through_an_entry_point(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ep_methods.py").write_text(DITTO_LIKE)
    info = tmp_path / "own_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[panacea.methods]\nown_personal = ep_methods:Personal\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = said(["run", *SMALL, "method=own_personal"], capsys)
    assert found["rounds"] == 4
    assert "own_personal" in said(["methods"], capsys)


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_and_wrong_commands_do_not_import_torch() -> None:
    code = """
import sys
from panacea.cli import run_command_line
for arguments in (["--help"], ["--version"], ["run", "--help"], ["nonsense"], ["run", "nonsense=1"], ["config"]):
    run_command_line(arguments)
    assert "torch" not in sys.modules, arguments
"""
    done = _python(code)
    assert done.returncode == 0, done.stderr


def test_training_imports_no_table_or_page_packages() -> None:
    code = f"""
import sys
for name in ("scipy", "pandas", "plotly", "torch_geometric"):
    sys.modules[name] = None  # importing it raises
from panacea.cli import run_command_line
code = run_command_line(["run", "method=fedavg", *{SMALL!r}])
code += run_command_line(["run", "method=fedavg", "data=digits", "rounds=1", "local_steps=1", "model=mlp"])
assert "sklearn" not in sys.modules
sys.exit(code)
"""
    done = _python(code)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_run_is_complete_but_for_the_page() -> None:
    code = f"""
import sys
sys.modules["matplotlib"] = None
from panacea.cli import run_command_line
sys.exit(run_command_line(["run", "method=fedavg", *{SMALL!r}]))
"""
    done = _python(code)
    assert done.returncode == 0, done.stderr
    assert "no report.html" in done.stderr
    (run,) = (Path.cwd() / "runs").iterdir()
    assert (run / "summary.json").exists()


def test_resume_after_a_signal_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    request = ["data=fl60", "data.clients=6", "method=separate", "rounds=60", "eval_every=7", "checkpoint_every=1000"]
    command = [sys.executable, "-m", "panacea"]
    subprocess.run([*command, "run", *request, "out=straight", "--quiet"], check=True)
    process = subprocess.Popen([*command, "run", *request, "out=stopped", "--quiet"], stderr=subprocess.PIPE)
    wait_for_first_round(tmp_path / "stopped")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() in (0, 130)  # 0 only if it was done already
    (stopped,), (straight,) = (list((tmp_path / name).iterdir()) for name in ("stopped", "straight"))
    assert run_command_line(["resume", str(stopped), "--quiet"]) == 0
    for name in ("metrics.jsonl", "clients.csv", "checkpoint/round-00000060/state.safetensors"):
        assert (stopped / name).read_bytes() == (straight / name).read_bytes(), name
    assert (stopped / "report.html").exists()


def test_an_interruption_outside_training_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("panacea.cli.training.run_one", interrupted)
    assert run_command_line(["run", *SMALL, "method=fedavg"]) == 130
    assert capsys.readouterr().err == "stopped: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_exits_with_130(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "panacea", "run", "data=fl60", "data.clients=6", "method=fedavg", "rounds=100000"]
    process = subprocess.Popen([*command, "checkpoint_every=1000"], stderr=subprocess.PIPE, text=True)
    wait_for_first_round(tmp_path / "runs")
    time.sleep(0.3)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (run,) = (tmp_path / "runs").iterdir()
    assert err.strip().startswith("stopped: interrupted after round")
    assert f"panacea resume {run.relative_to(tmp_path)}" in err
    (checkpoint,) = (run / "checkpoint").iterdir()
    assert f"round {int(checkpoint.name[6:])};" in err
