"""Rounds with attackers and defences, as the runner plays them, without evaluation or files."""

from __future__ import annotations

from panacea.core.round import Report, run_round
from panacea.experiment.experiment import Experiment


def fight(experiment: Experiment, rounds: int) -> list[Report]:
    reports = []
    for _ in range(rounds):
        round = experiment.state.round + 1
        cohort = experiment.cohort(round)
        if experiment.attackers is not None:
            experiment.attackers.poison(experiment.engine.samples, round)
        experiment.state, report = run_round(
            experiment.method, experiment.state, cohort, experiment.engine, experiment.attackers, experiment.defence
        )
        experiment.visits[cohort.ids] += 1
        for client in report.refused:
            experiment.refused[client] += 1
        reports.append(report)
    return reports
