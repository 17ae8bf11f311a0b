"""`panacea export` and `panacea join`: a file in any format is the model of the run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import panacea as pn
from panacea.cli import run_command_line
from panacea.errors import RequestError, RunFailure
from panacea.experiment import onnx_format
from panacea.experiment.onnx_format import onnx_bytes
from tests.cli.printed import said

LINKED = "tests.linked:NeighbourMean"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of three kinds of method; tests only read them."""
    out = tmp_path_factory.mktemp("runs")
    found = {}
    for method in ("fedavg", "fedavg_ft", LINKED):
        run = pn.train("fl60", method, rounds=4, local_steps=2, eval_every=2, out=out)
        assert run.directory is not None
        found[method] = run.directory
    return found


def _by_the_card(file: Path, x: Tensor) -> Tensor:
    """The outputs of the model that the code on the card loads."""
    code = file.with_name(f"{file.name}.md").read_text().split("```python\n")[1].partition("```")[0]
    names: dict[str, Any] = {"x": x.numpy()}
    exec(code, names)
    if "outputs" in names:
        return torch.from_numpy(names["outputs"])
    with torch.no_grad():
        outputs: Tensor = names["model"](x)
    return outputs


@pytest.mark.parametrize("method", ["fedavg_ft", LINKED])
@pytest.mark.parametrize(("format", "suffix"), [("safetensors", "safetensors"), ("torch", "pt"), ("onnx", "onnx")])
def test_every_format_is_the_model(
    runs: dict[str, Path], method: str, format: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = said(["export", str(runs[method]), "--client", "17", "--format", format], capsys)
    file = Path(result["file"])
    assert file.name == f"{runs[method].name}-client-17.{suffix}"
    assert (result["format"], result["client"], result["round"]) == (format, 17, 4)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(1))
    run = pn.open_run(runs[method])
    with torch.inference_mode():  # fedavg_ft trains inside `model`, and the caller need not know
        expected = run.model(17)(x)
    found = _by_the_card(file, x)
    if format == "onnx":
        assert torch.allclose(found, expected, atol=1e-6)
        assert result["onnx_difference"] < 1e-5
    else:
        assert torch.equal(found, expected)
    card = Path(result["card"]).read_text()
    metric = run.clients["final_metric"][17]
    assert f"accuracy {metric:.4g} %" in card
    assert "round 4 of 4" in card
    assert "`[batch, 2]`" in card
    assert not list(Path.cwd().glob(".*"))  # nothing half written is left


def test_plain_files(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.safetensors", "b.pth"):
        assert run_command_line(["export", str(runs["fedavg"]), "--client", "2", "--out", name]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("written: a.safetensors (safetensors, client 2, round 4, 354 parameters; ")
    with safe_open("a.safetensors", "pt") as file:
        about = file.metadata()
    assert about["data"] == "fl60"
    assert about["subject"] == "client 2 (number 2)"
    assert about["inputs"] == "[batch, 2]"
    stored = torch.load("b.pth", weights_only=True)
    assert all(torch.equal(stored[name], value) for name, value in load_file("a.safetensors").items())


def test_onnx_has_no_paths_and_any_batch(runs: dict[str, Path]) -> None:
    import onnx
    import onnxruntime

    assert run_command_line(["export", str(runs["fedavg"]), "--client", "2", "--out", "m.onnx", "-q"]) == 0
    content = Path("m.onnx").read_bytes()
    assert b".py" not in content
    assert os.fsencode(str(Path(pn.__file__).parent)) not in content
    onnx.checker.check_model("m.onnx")
    assert {prop.key: prop.value for prop in onnx.load("m.onnx").metadata_props}["method"] == "fedavg"
    session = onnxruntime.InferenceSession("m.onnx")
    assert session.run(None, {"input": np.zeros((33, 2), np.float32)})[0].shape == (33, 2)


def test_join_writes_a_newcomers_model(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = pn.open_run(runs[LINKED])
    for name in ("m.safetensors", "m.onnx"):
        result = said(["join", str(runs[LINKED]), "--neighbors", "3,17", "--weights", "1,2", "--out", name], capsys)
        assert result["neighbours"] == [3, 17]
        x = torch.randn(3, 2)
        with torch.no_grad():
            expected = run.join(neighbors=[3, 17], weights=[1, 2])(x)
        assert torch.allclose(_by_the_card(Path(name), x), expected, atol=1e-6)
    card = Path("m.safetensors.md").read_text()
    assert "3 (number 3), 17 (number 17)" in card
    novel = run.clients.query("novel == 1")["final_metric"]
    assert f"without training: accuracy {novel.mean():.4g} % ± {novel.std(ddof=0):.4g}" in card
    assert "12 held-out clients" in card


def test_join_without_training_in_time(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["join", str(runs[LINKED]), "--neighbours", "3,17", "--out", "m.pt"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("written: m.pt (torch, a newcomer with neighbours 3, 17, round 4, 354 parameters; ")
    assert float(line.removesuffix(" s)").rpartition(" ")[2]) < 1


def test_join_where_links_do_not_matter(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["join", str(runs["fedavg"]), "--neighbors", "3", "--out", "m.safetensors"]) == 0
    assert "note: method 'fedavg' gives every newcomer the same model" in capsys.readouterr().err
    assert run_command_line(["join", str(runs["fedavg_ft"]), "--untrained", "--out", "u.safetensors"]) == 0
    assert "it is a start" in Path("u.safetensors.md").read_text()


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("fedavg", ["export", "--client", "60"], ["client 60 does not exist", "0..59"]),
        ("fedavg", ["export", "--client", "-1"], ["client '-1' does not exist"]),
        ("fedavg", ["export", "--client", "TX"], ["client 'TX' does not exist"]),
        ("fedavg", ["export"], ["--client"]),
        ("fedavg", ["export", "--client", "1", "--format", "onxn"], ["unknown format 'onxn'", "did you mean 'onnx'?"]),
        ("fedavg", ["export", "--client", "1", "--format", "torch", "--out", "m.onnx"], ["m.onnx", "torch"]),
        ("fedavg", ["export", "--client", "1", "--out", "no/m.pt"], ["no/m.pt", "no is not a directory"]),
        ("fedavg", ["export", "--client", "1", "--out", "."], ["is a directory"]),
        (LINKED, ["join", "--neighbors", "3,99", "--out", "m.pt"], ["neighbour 99 does not exist"]),
        (LINKED, ["join", "--neighbors", "3,", "--out", "m.pt"], ["neighbour '' does not exist"]),
        (LINKED, ["join", "--neighbors", "3,3", "--out", "m.pt"], ["client 3 is named twice"]),
        (LINKED, ["join", "--neighbors", "3", "--weights", "a", "--out", "m.pt"], ["--weights a", "numbers"]),
        (LINKED, ["join", "--neighbors", "3", "--weights", "-1", "--out", "m.pt"], ["weight -1"]),
        (LINKED, ["join", "--neighbors", "3", "--features", "1", "--out", "m.pt"], ["features", "2 each"]),
        (LINKED, ["join", "--out", "m.pt"], ["name at least one neighbour"]),
        (LINKED, ["join", "--neighbors", "3"], ["--out"]),
        ("fedavg_ft", ["join", "--neighbors", "3", "--out", "m.pt"], ["'fedavg_ft' trains", "--untrained"]),
    ],
)
def test_wrong_requests_are_one_line(
    runs: dict[str, Path], method: str, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([arguments[0], str(runs[method]), *arguments[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    for word in words:
        assert word in err
    assert not list(Path.cwd().iterdir())


def test_no_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["export", "nowhere", "--client", "1"]) == 2
    assert "nowhere: no such run directory" in capsys.readouterr().err
    assert run_command_line(["join", ".", "--neighbors", "1", "--out", "m.pt"]) == 2
    assert "no config.yaml" in capsys.readouterr().err


def test_without_onnx_one_line_says_what_to_install(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    assert run_command_line(["export", str(runs["fedavg"]), "--client", "1", "--format", "onnx"]) == 2
    assert "format onnx needs onnxscript: pip install 'panacea-fl[onnx]'" in capsys.readouterr().err


class Undecided(nn.Module):
    """A network whose path depends on its values, which ONNX cannot record."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) if float(x.sum()) > 0 else self.fc(-x)


def test_a_network_that_onnx_cannot_express_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="network Undecided cannot be written as ONNX") as caught:
        onnx_bytes(Undecided().eval(), (2,), {})
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(onnx_format, "_difference", lambda *_: 1e-3)
    with pytest.raises(RunFailure, match=r"differs from the network by 1\.0e-03 \(allowed 1e-04\)"):
        onnx_bytes(nn.Linear(2, 2).eval(), (2,), {})


def test_clients_by_name_and_an_own_network(tmp_path: Path) -> None:
    x = [np.random.default_rng(i).normal(size=(12, 3)) for i in range(3)]
    fed = pn.Federation.from_arrays(x, [p[:, :2] for p in x], names=["2", "oslo", "rome"], edges=[("oslo", "rome")])
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    run = pn.train(fed, "separate", model=net, rounds=3, local_steps=2)
    assert torch.equal(run.model("2")[0].weight, run.model(0)[0].weight)  # a name before a number
    assert torch.equal(run.model("1")[0].weight, run.model("oslo")[0].weight)
    for name in ("m.safetensors", "m.onnx"):
        run.export("rome", tmp_path / name)
    again = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    again.load_state_dict(load_file(tmp_path / "m.safetensors"))
    inputs = torch.randn(4, 3)
    with torch.no_grad():
        assert torch.equal(again(inputs), run.model("rome")(inputs))
        assert torch.allclose(_by_the_card(tmp_path / "m.onnx", inputs), run.model("rome")(inputs), atol=1e-5)
    assert "your own network" in (tmp_path / "m.safetensors.md").read_text()
    assert "mse" in (tmp_path / "m.safetensors.md").read_text()
    with pytest.raises(RequestError, match="did you mean 'rome'"):
        run.export("roma", tmp_path / "m.pt")


@pytest.mark.parametrize("ending", ["safetensors", "onnx"])
@pytest.mark.parametrize("parameters", [{}, {"layers": "all", "source": "kmeans", "soft_test": False}], ids=str)
def test_a_network_that_the_method_enlarged(parameters: dict[str, Any], ending: str, tmp_path: Path) -> None:
    keys = {f"method.{key}": value for key, value in parameters.items()}
    run = pn.train("digits", "fedcg", rounds=1, local_steps=1, out=tmp_path, **keys)
    file = run.export(0, tmp_path / f"m.{ending}")
    x = torch.rand(4, 1, 8, 8)
    assert torch.allclose(_by_the_card(file, x), run.model(0)(x), atol=1e-5)


def test_training_imports_no_onnx() -> None:
    code = "import sys, panacea.api; sys.exit(any(name.startswith('onnx') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
