"""Compiled gradients: padded to fixed sizes, checked, kept, and replaced by the traced ones where they fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx, nn

from panacea.engines import compiling
from panacea.engines.compiling import CompiledKernel, compile_kernel, padded_size
from panacea.engines.tracing import Kernel, agree
from panacea.engines.vectorised import VectorisedEngine
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.methods import FedAvg

from .build import engine_of, everything, federation, labels, run, seeded
from .networks import mlp
from .test_slopes import slope_of
from .test_tracing import NETWORKS, arguments, engine

pytestmark = pytest.mark.filterwarnings("ignore:local steps compiled")


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[fx.GraphModule]:
    """All but the compiler: the recorded operations are run as they are. What would have been compiled is listed."""
    made: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, inputs: list[Tensor]) -> Kernel:
        made.append(module)
        found: Kernel = module.forward
        return found

    monkeypatch.setattr(compiling, "_compile", keep)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return made


def compiled(name: str) -> VectorisedEngine:
    made = engine(name, False)
    compile_kernel(made)
    assert isinstance(made.kernel, CompiledKernel)
    return made


def test_sizes_grow_by_at_most_a_quarter():
    sizes = [padded_size(n) for n in range(1, 2000)]
    assert all(n <= size <= max(n + 1, 1.25 * n) for n, size in enumerate(sizes, 1))
    assert all(padded_size(size) == size for size in sizes)
    assert len(set(sizes)) < 45
    assert [padded_size(n) for n in (5, 10, 20, 64)] == [5, 10, 20, 64]  # what people use


@pytest.mark.parametrize("name", ["mlp", "gru", "cnn", "vmap"])
@pytest.mark.parametrize(("rows", "size"), [(5, 5), (11, 9)])
def test_padding_changes_nothing(name: str, rows: int, size: int, uncompiled: list[fx.GraphModule]):
    """With dropout's streams, BatchNorm's statistics and padded samples."""
    plain, made = engine(name, False), compiled(name)
    given = arguments(plain, rows, size)
    ways = [given, [*given[:6], None], [*given[:4], torch.full_like(given[4], 1 / size), given[5], None]]
    if plain.target.task.kind == "classification":
        ways += [[*one[:4], slope_of(given[3], one[4], plain.target.task.classes), *one[5:]] for one in ways]
    for changed in ways:
        found, expected = made.kernel(*changed), plain.kernel(*changed)
        assert [f.shape for f in found] == [e.shape for e in expected]
        assert agree(found, expected)
    assert uncompiled
    assert None not in made.kernel.kernels.values()


def test_a_changing_number_of_clients_is_compiled_once(uncompiled: list[fx.GraphModule]):
    made = compiled("mlp")
    for rows, size in ((13, 30), (14, 29), (13, 32), (14, 32)):
        made.kernel(*arguments(made, rows, size))
    assert len(uncompiled) == 1
    made.kernel(*arguments(made, 12, 30))
    assert len(uncompiled) == 2


def test_whole_rounds_of_ragged_clients(uncompiled: list[fx.GraphModule]):
    results = []
    for make in (lambda: engine("cnn", False, momentum=0.9), lambda: compiled("cnn")):
        made, fed, method = make(), federation(NETWORKS["cnn"][1]), FedAvg()
        if isinstance(made.kernel, CompiledKernel):
            object.__setattr__(made.local, "momentum", 0.9)
        state, _ = run(method, made, fed, 3, size=5)
        results.append(everything(method, state, made, fed))
    for what in results[0]:
        torch.testing.assert_close(results[1][what], results[0][what], rtol=1e-4, atol=1e-4)


def failing(module: fx.GraphModule, inputs: list[Tensor]) -> Kernel:
    raise RuntimeError("the compiler is out of order\nand says more")


def wrong(module: fx.GraphModule, inputs: list[Tensor]) -> Kernel:
    def run(*given: Tensor) -> tuple[Tensor, ...]:
        gradient, *rest = module.forward(*given)
        return gradient * 1.01, *rest

    return run


@pytest.mark.parametrize(
    ("broken", "reason"), [(failing, "the compiler is out of order"), (wrong, "its results differ")]
)
def test_what_cannot_be_compiled_is_traced(
    broken: Callable[..., Kernel], reason: str, monkeypatch: pytest.MonkeyPatch, uncompiled: list[fx.GraphModule]
):
    monkeypatch.setattr(compiling, "_compile", broken)
    plain, made = engine("mlp", False), compiled("mlp")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in (3, 3, 4):
            given = arguments(plain, rows)
            for found, expected in zip(made.kernel(*given), plain.kernel(*given), strict=True):
                assert torch.equal(found, expected)
    assert [str(w.message) for w in caught] == [f"engine.compile=true: the local step is not compiled ({reason})"]
    assert len(made.kernel.traced.traces) == 2


def test_the_wait_is_told(uncompiled: list[fx.GraphModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = compiled("mlp")
    with pytest.warns(UserWarning, match=f"local steps compiled in .* s, kept in {tmp_path}"):
        made.kernel(*arguments(made))
    assert made.kernel.waited > 0
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    with pytest.warns(UserWarning, match=f"kept in ~/{tmp_path.name} "):
        made.kernel(*arguments(made, 4))


def test_without_a_compiler_the_request_is_refused(monkeypatch: pytest.MonkeyPatch):
    made = engine("mlp", False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    with pytest.raises(RequestError, match=r"needs a C\+\+ compiler, but none of g\+\+, c\+\+, clang\+\+ was found"):
        compile_kernel(made)
    monkeypatch.setenv("CXX", "icpc")
    with pytest.raises(RequestError, match="but CXX=icpc is not there"):
        compile_kernel(made)


def test_large_recurrent_clients_are_taken_one_after_the_other(
    uncompiled: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
):
    """Only they: small ones, and networks without a recurrence, gain by many rows in a call."""
    for name, least, most in (("gru", 1, 1), ("gru", 10**9, None), ("mlp", 1, None)):
        monkeypatch.setattr(compiling, "_LARGE", least)
        made = engine(name, False)
        compile_kernel(made)
        assert made.most == most


def test_the_reference_engine_is_never_compiled():
    config = build_config(
        {"data": "fl60", "data.clients": 6, "method": "fedavg", "engine": "sequential", "engine.compile": True}
    )
    with pytest.raises(RequestError, match=r"engine\.compile=true needs engine=vectorised"):
        Experiment(config)


def test_networks_that_run_in_a_loop_say_so():
    made = engine_of("vectorised", seeded(lambda: mlp(nn.ReLU())), federation(labels((5,))), forward="loop")
    assert isinstance(made, VectorisedEngine)
    with pytest.warns(UserWarning, match="no effect on a network that runs client by client"):
        compile_kernel(made)
    assert not isinstance(made.kernel, CompiledKernel)


def test_the_compiler_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Two networks with arguments of the same shapes: each keeps its own code; the cache is where it was asked for."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    task = labels((2,))
    for build in (nn.Tanh, nn.Sigmoid):
        plain, made = (
            engine_of("vectorised", seeded(lambda b=build: nn.Sequential(nn.Linear(2, 3), b())), federation(task))
            for _ in range(2)
        )
        assert isinstance(made, VectorisedEngine)
        assert isinstance(plain, VectorisedEngine)
        compile_kernel(made)
        for seed in range(2):
            given = [*arguments(plain, seed=seed)[:5], None, None]
            assert agree(made.kernel(*given), plain.kernel(*given))
        assert isinstance(made.kernel, CompiledKernel)
        assert None not in made.kernel.kernels.values()
    assert any(tmp_path.rglob("*.so"))
