"""Whether an experiment can be federated, and what its clients are told of it."""

from __future__ import annotations

from panacea.core.method import Method
from panacea.core.records import leaves, named_leaves, tree_index
from panacea.core.types import Cohort, Origin
from panacea.deploy.settings import RunSettings, TaskSettings
from panacea.errors import RequestError
from panacea.experiment.experiment import Experiment

__all__ = ["newcomer_notes", "refuse_unfit", "run_settings"]


def run_settings(experiment: Experiment, run: str, start: int = 1) -> RunSettings:
    """What clients must know of a run that a server began or went on with so many times."""
    c, task = experiment.config, experiment.federation.task
    return RunSettings(
        run=run, seed=c.seed, clients=len(experiment.federation), rounds=c.rounds or 1, task=TaskSettings.of(task),
        method=c.method.name, method_keys=c.method.keys, model=c.model.name, model_keys=c.model.keys, lr=c.lr or 0.0,
        local_steps=c.local_steps, local_epochs=c.local_epochs, batch_size=c.batch_size or 1, momentum=c.momentum,
        weight_decay=c.weight_decay, clip=c.clip, buffers=c.buffers, dtype=c.dtype, start=start,
    )  # fmt: skip


def refuse_unfit(experiment: Experiment) -> None:
    """A method must say what a download looks like, and make models that depend on a client's state at the client."""
    method, target, federation = experiment.method, experiment.target, experiment.federation
    first = Cohort.of(federation.train_ids[:1], federation.counts("train"), 1, experiment.engine.home)
    download = method.download(experiment.state.server, first)
    origin = Origin(target.initial, target.layout, target.statistics_layout)
    shapes = [
        [(name, leaf.shape, leaf.dtype) for name, leaf in named_leaves(tree)]
        for tree in (tree_index(download, 0), method.template(origin, 1))
    ]
    if shapes[0] != shapes[1]:
        raise RequestError(f"method={method.name}: its `template` is not like what it sends (`download`)")
    keeps = bool(leaves(method.init_client(download)))
    if keeps and not method.keeps_model and type(method).personal is not Method.personal:
        raise RequestError(
            f"method={method.name}: its clients keep a state and it has a `personal` of its own; in a federation that "
            "needs keeps_model and own_model"
        )


def newcomer_notes(experiment: Experiment) -> tuple[str, ...]:
    """What a user should know of clients that only receive a model: what a simulation can do and a server cannot."""
    method, notes = experiment.method, list[str]()
    if not experiment.federation.novel.any():
        return ()
    if not method.newcomer_alone:
        what = "fits newcomers with what only the server has; they are scored as admitted"
        notes.append(f"method '{method.name}' {what}")
    if experiment.target.statistics.numel() and experiment.config.buffers == "local" and not method.isolated:
        notes.append("newcomers begin with the initial BatchNorm statistics: no server knows the clients' own")
    return tuple(notes)
