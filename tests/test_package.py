"""The package as a whole: dependency direction, generated pages, public names, documented commands."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import panacea
from panacea.cli import run_command_line

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "panacea"

# each layer may import those before it, and itself
LAYERS = [
    "errors",
    "core",
    "graphs",
    "data",
    "models",
    "engines",
    "hypernets",
    "methods",
    "evaluation",
    "robustness",
    "experiment",
    "theory",
    "report",
    "deploy",
    "api",
    "cli",
]


def _modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.name != "__main__.py"]


def _imports(tree: ast.AST) -> set[str]:
    """Imports at run time: what stands under `if TYPE_CHECKING` is for readers and type checkers only."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        found |= _imports(node)
    return found


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_one_way(path: Path) -> None:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts == ("__init__",):
        return  # the root only names things
    here = LAYERS.index(parts[0])
    for name in _imports(ast.parse(path.read_text())):
        pieces = name.split(".")
        if pieces[0] == "panacea" and len(pieces) > 1:
            assert LAYERS.index(pieces[1]) <= here, f"{parts[0]} imports {name}"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_stays_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


def test_public_names_exist() -> None:
    for name in panacea.__all__:
        assert getattr(panacea, name) is not None
    with pytest.raises(AttributeError):
        panacea.nonsense  # noqa: B018


def test_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for file, make in module.PAGES.items():
        assert (ROOT / "docs" / file).read_text() == module.NOTE + make(), (
            f"run `make docs`: docs/{file} is out of date"
        )


def _documented(page: Path) -> list[str]:
    commands = [
        match[1].partition("   ")[0].partition(" #")[0].strip()
        for line in page.read_text().splitlines()
        if (match := re.match(r"^(?:\$ )?(panacea \S.*)$", line))
    ]
    return list(dict.fromkeys(commands))


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if _documented(page)]


def test_pages_with_commands_are_found() -> None:
    assert len(PAGES) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_are_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every `panacea ...` line of a page runs in the order of the page, shortened to a round of one step each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m panacea` does
    monkeypatch.setattr("panacea.report.run_page.write_run_report", lambda *_: None)  # pages take longer than runs
    own = (ROOT / "docs" / "own-method.md").read_text().split("```python\n")[1].partition("```")[0]
    (tmp_path / "my_methods.py").write_text(own)
    sites = tmp_path / "my_sites" / "clients"
    sites.mkdir(parents=True)
    for name in ("berlin", "paris", "rome"):
        (sites / f"{name}.csv").write_text("x1,x2,y\n" + "1,2,0\n2,1,1\n0,1,0\n3,1,1\n" * 4)
    for command in _documented(page):
        arguments = shlex.split(command)[1:]
        if arguments[0] == "resume":
            continue  # needs a directory of its own; tests/cli and tests/experiment resume for real
        if arguments[0] in ("run", "compare"):
            arguments = [
                a for a in arguments if a.partition("=")[0] not in ("rounds", "local_steps", "seeds", "workers")
            ]
            arguments += ["rounds=1", "local_steps=1"]
        if arguments[0] == "compare":
            arguments += ["seeds=0"] + (["--workers", "1"] if "--workers" not in arguments else [])
        arguments = [
            n for a in arguments for n in (sorted(map(str, Path().glob(a))) if "*" in a else [a])
        ]  # as a shell
        if arguments[0] == "theory":
            arguments += ["--trials", "500", "--search", "3"]  # the last one counts
        if arguments[0] == "bench":
            arguments += ["--repeats", "1"]
        code = run_command_line(arguments)  # in this process: most of a command's time is importing torch
        assert code == 0, (command, capsys.readouterr().err)


def test_the_version_is_said_once() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == panacea.__version__
    assert f"version: {panacea.__version__}" in (ROOT / "CITATION.cff").read_text()
