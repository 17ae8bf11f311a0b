"""A wrong request prints one line that names the key or file, exits with 2 and writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from panacea.cli import run_command_line

GOOD = ["data=fl60", "data.clients=6", "method=fedavg", "rounds=1", "local_steps=1"]


def _replaced(*changes: str) -> list[str]:
    keys = {argument.partition("=")[0]: argument for argument in GOOD}
    keys |= {change.partition("=")[0]: change for change in changes}
    return list(keys.values())


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_method.py").write_text("class Thing(:\n")


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str], *words: str) -> None:
    before = sorted(Path.cwd().rglob("*"))
    code = run_command_line(arguments)
    out, err = capsys.readouterr()
    assert code == 2, (out, err)
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("round=3", ["'round'", "did you mean 'rounds'?"]),
        ("method=fedavgg", ["unknown method 'fedavgg'", "did you mean 'fedavg'?"]),
        ("data=fl61", ["unknown data set 'fl61'", "did you mean 'fl60'?"]),
        ("method.mu=1", ["method.mu", "weighting"]),
        ("method.weighting=sampels", ["method.weighting=sampels", "did you mean 'samples'?"]),
        ("data.cleints=5", ["data.cleints", "did you mean 'data.clients'?"]),
        ("data.clients=0", ["data.clients=0"]),
        ("model=mpl", ["'mpl'", "'mlp'"]),
        ("model.hiden=5", ["model.hiden", "model.hidden"]),
        ("model=nowhere:Net", ["nowhere"]),
        ("graph=gven", ["'gven'", "did you mean 'given'?"]),
        ("engine=vectorized", ["unknown engine 'vectorized'", "did you mean 'vectorised'?"]),
        ("rounds=many", ["rounds=many", "integer"]),
        ("rounds=-3", ["rounds=-3", "greater than or equal to 1"]),
        ("rounds=0", ["rounds=0"]),
        ("rounds=1.5", ["rounds=1.5"]),
        ("lr=-1", ["lr=-1"]),
        ("lr=nan", ["lr=nan"]),
        ("lr=fast", ["lr=fast"]),
        ("cohort=6", ["cohort=6", "5 training clients", "1 of them novel"]),
        ("cohort=0", ["cohort=0"]),
        ("novel=1", ["novel=1"]),
        ("seed=-1", ["seed=-1"]),
        ("device=cuda:7", ["device=cuda:7"]),
        ("batch_size=[1,2]", ["batch_size=[1, 2]"]),
        ("method=[fedavg,separate]", ["method", "one name"]),
        ("method=no_such_module:Thing", ["no_such_module"]),
        ("method=json:JSONDecoder", ["json:JSONDecoder", "not a subclass"]),
        ("method=json:Nothing", ["no 'Nothing'"]),
        ("rounds", ["rounds", "no such file"]),
        ("local_epochs=2", ["local_steps and local_epochs"]),
        ("method=broken_method:Thing", ["broken_method", "SyntaxError"]),
    ],
)
def test_keys(change: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _refused(["run", *_replaced(change)], capsys, *words)


def test_missing_data_or_method(capsys: pytest.CaptureFixture[str]) -> None:
    _refused(["run", "method=fedavg"], capsys, "data is missing", "data=fl60")
    _refused(["run", "data=fl60"], capsys, "method is missing", "method=fedavg")


def test_cuda_without_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    _refused(["run", *_replaced("device=cuda")], capsys, "device=cuda", "device=cpu")


def test_key_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    _refused(["run", *GOOD, "rounds=2"], capsys, "rounds is given twice")


TWO = ["compare", "data=fl60", "methods=fedavg,ditto", "seeds=0", "rounds=1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], ["unknown command 'rnu'", "did you mean 'run'?"]),
        (["run", "--jsno"], ["--jsno"]),
        (["resume"], ["RUN_DIR"]),
        (["resume", "nowhere"], ["nowhere", "no such run directory"]),
        (["resume", "."], ["not a run directory"]),
        (["methods", "fedavgg"], ["fedavgg", "did you mean 'fedavg'?"]),
        (["datasets", "digit"], ["digit", "did you mean 'digits'?"]),
        (["datasets", "fl60", "--picture", "a.gif"], ["a.gif", ".png or .svg"]),
        (["compare", "data=fl60", "seeds=0"], ["methods is missing"]),
        (["compare", "data=fl60", "methods=fedavg"], ["seeds is missing"]),
        (["compare", "data=fl60", "methods=fedavg", "seeds=a"], ["seeds"]),
        (["compare", "data=fl60", "methods=fedavg,fedavg", "seeds=0"], ["given twice"]),
        (["compare", "data=fl60", "methods=fedavg", "seeds=0", "method=fedprox"], ["method is for `panacea run`"]),
        ([*TWO, "workers=0"], ["workers=0", "from 1"]),
        ([*TWO, "workers=2", "--workers", "2"], ["workers is given twice"]),
        ([*TWO, "target=high"], ["target=high", "number"]),
        ([*TWO, "method.dito.lam=1"], ["dito", "did you mean 'ditto'?", "allowed: ditto, fedavg"]),
        ([*TWO, "method.ditto.lma=1"], ["ditto", "method.lma", "did you mean 'method.lam'"]),
        (["compare", "data=fl60", "methods=fedavg,none.yaml", "seeds=0"], ["none.yaml", "no such file"]),
        (["config", "data=fl60", "methd=x"], ["methd", "method"]),
        (["compare", "data=fl60", "methods=fedavg,fedavgg", "seeds=0", "rounds=1"], ["fedavgg", "fedavg"]),
        (["run", "data=fl60", "method=fedprox", "method.mu=inf"], ["method.mu=inf", "finite"]),
    ],
)
def test_commands(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _refused(arguments, capsys, *words)


def test_compare_names_its_own_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([*TWO, "roundz=3"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: unknown key 'roundz'; did you mean 'rounds'? allowed: ")
    allowed = err.strip().partition("allowed: ")[2].split(", ")
    assert {"methods", "seeds", "target", "workers", "rounds", "data"} <= set(allowed)
    assert not {"method", "seed"} & set(allowed)


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "reproduce"])
def test_a_folder_is_not_a_file(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.yaml").mkdir()
    _refused([command, "folder.yaml"], capsys, "folder.yaml is a folder")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("data: [", ["line", "not valid YAML"]),
        ("- 1\n- 2\n", ["expected keys and values"]),
        ("data: {name: fl60, cleints: 3}\nmethod: fedavg", ["data.cleints"]),
        ("data: fl60\ndata.clients: 3\nmethod: fedavg\nrouns: 3", ["rouns", "rounds"]),
        ("data: {name: fl60}\ndata.name: fl60", ["data is given twice"]),
        ("data: fl60\nmethod: fedavg\nrounds: 2\nrounds: 3", ["rounds is given twice"]),
    ],
)
def test_yaml(content: str, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(content)
    _refused(["run", "e.yaml"], capsys, *words)


def _folder(tmp_path: Path, **files: str) -> Path:
    root = tmp_path / "own"
    (root / "clients").mkdir(parents=True)
    for name in ("a", "b"):
        (root / "clients" / f"{name}.csv").write_text("x1,x2,y\n" + "1,2,0\n2,1,1\n0,1,0\n3,1,1\n" * 3)
    for name, content in files.items():
        path = root / (f"clients/{name}.csv" if name in ("a", "b") else f"{name}.csv")
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"b": "x1,x2,y\n1,2,0\n1,nan,1\n"}, ["b.csv", "line 3", "x2"]),
        ({"b": "x1,x2,y\n1,2,0\n1,inf,1\n"}, ["b.csv", "line 3", "x2"]),
        ({"b": "x1,x2,y\n"}, ["b"]),
        ({"b": "x1,y\n1,0\n2,1\n3,1\n"}, ["b.csv"]),
        ({"edges": "source,target\na,z\n"}, ["edges.csv", "z"]),
        ({"edges": "source,target\na,b\nb,a\n"}, ["edges.csv", "twice"]),
    ],
)
def test_own_data(files: dict[str, str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = _folder(tmp_path, **files)
    _refused(["run", "data=folder", f"data.root={root}", "method=fedavg", "rounds=1"], capsys, *words)


def test_self_loops_are_dropped_with_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = _folder(tmp_path, edges="source,target\na,a\na,b\n")
    code = run_command_line(["run", "data=folder", f"data.root={root}", "method=fedavg", "rounds=1", "cohort=2"])
    assert code == 0
    assert "self loop" in capsys.readouterr().err


def test_out_belongs_to_another_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["run", *GOOD, "--quiet"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("lr: 0.1", "lr: 0.2"))
    capsys.readouterr()
    _refused(["run", *GOOD], capsys, str(run.relative_to(tmp_path)), "belongs to another configuration")


def test_out_is_something_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["run", *GOOD, "--quiet"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    (run / "config.yaml").unlink()
    capsys.readouterr()
    _refused(["run", *GOOD], capsys, "is not a run")
    (tmp_path / "file").write_text("")
    _refused(["run", *GOOD, "out=file/runs"], capsys, "out=file/runs", "cannot write")


def test_a_defect_is_still_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise LookupError("oops\nsecond line")

    monkeypatch.setattr("panacea.cli.training.run_one", broken)
    assert run_command_line(["run", *GOOD]) == 1
    assert capsys.readouterr().err == "error: LookupError: oops second line (--debug shows where)\n"
    assert run_command_line(["run", *GOOD, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_nan_in_arrays() -> None:
    import panacea as pn
    from panacea.errors import RequestError

    x = [np.ones((4, 2)), np.ones((4, 2))]
    x[1][2, 1] = np.nan
    with pytest.raises(RequestError, match=r"row 2.*column 1|column 1.*row 2"):
        pn.Federation.from_arrays(x, [np.array([0, 1, 0, 1])] * 2)
