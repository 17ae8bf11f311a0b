"""A backdoor by one client of thirty, before and after Simple-Tuning, as Table V of the Panacea paper.

    python benchmarks/backdoor.py                             digits and Fashion-MNIST, both triggers: 2 x 36 runs
    python benchmarks/backdoor.py --data digits --seeds 0..4

Writes docs/results/backdoor_<data>.csv and .md (`--out` for elsewhere). Every run is kept as a line of `--store` and
not trained again. All numbers are of the last round, because Simple-Tuning starts there: means over honest clients,
then over seeds. The attack success rate leaves out the attacker and images whose true class is the target; beside it
stands that of the same method trained with nobody attacking, without which it cannot be read. The paper's images
(CompCars) and pattern are not public, so its numbers are shown for their order, not to be met.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from stored import numbers, run_all

METHODS = ("fedavg", "ditto", "panacea")
TRIGGERS = ("backdoor_blended", "backdoor_patch")
PRACTICAL = {"data.clients": 30, "model": "mlp", "eval_every": 20, "defence": "simple_tuning"}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"data": "digits", "rounds": 200, **PRACTICAL},
    "fashion_mnist": {"data": "fashion_mnist", "rounds": 100, "model.hidden": [32], **PRACTICAL},
}
PUBLISHED = {
    "fedavg": "91.0 / 84.3 / 67.2 / 83.2",
    "ditto": "84.1 / 90.9 / 66.2 / 82.4",
    "panacea": "49.0 / 76.0 / 47.1 / 82.5",
}
COLUMNS = {
    "asr": "final_asr_mean",
    "accuracy": "final_mean",
    "tuned asr": "final_tuned_asr_mean",
    "tuned accuracy": "final_tuned_mean",
}


def jobs(data: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The keys of every run of one table; ratio 0 has the trigger and no attacker."""
    keys = SETTINGS[data] | ({"rounds": given.rounds} if given.rounds else {})
    return [
        {**keys, "method": method, "seed": seed, "attack": trigger, **nobody}
        for trigger in given.triggers.split(",")
        for method in METHODS
        for nobody in ({}, {"attack.ratio": 0})
        for seed in numbers(given.seeds)
    ]


def records(results: list[dict[str, Any]], triggers: list[str]) -> list[dict[str, Any]]:
    """A row for every trigger and method: the attacked run's numbers, beside them those of nobody attacking."""
    rows = []
    for trigger in triggers:
        for method in METHODS:
            row: dict[str, Any] = {"trigger": trigger, "method": method}
            for nobody in (False, True):
                runs = [
                    r["summary"]
                    for r in results
                    if (r["keys"]["attack"], r["keys"]["method"], "attack.ratio" in r["keys"])
                    == (trigger, method, nobody)
                ]
                row["seeds"] = len(runs)
                for name, key in COLUMNS.items():
                    values, column = [run[key] for run in runs], name + (" (no attack)" if nobody else "")
                    row[column] = statistics.fmean(values)
                    row[f"{column} std"] = statistics.stdev(values) if len(values) > 1 else None
            rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]], title: str) -> str:
    """The table as a person reads it: mean ± spread over seeds."""
    from panacea.experiment.table import markdown_table, shown

    def cell(row: dict[str, Any], column: str) -> str:
        around = "" if row[f"{column} std"] is None else f" ± {shown(row[f'{column} std'])}"
        return f"{shown(row[column])}{around}"

    columns = [f"{name}{note}" for name in COLUMNS for note in ("", " (no attack)")]
    header = [
        "trigger",
        "method",
        *columns,
        "published (blended, CompCars): asr / accuracy / tuned asr / tuned accuracy",
    ]
    body = [
        [
            row["trigger"],
            row["method"],
            *(cell(row, c) for c in columns),
            PUBLISHED[row["method"]] if "blended" in row["trigger"] else "",
        ]
        for row in rows
    ]
    note = "Per cent, last round, honest clients; ± is the standard deviation over seeds.\n"
    return f"**{title}**\n\n{markdown_table(header, body)}\n{note}"


def main() -> None:
    """Train what is missing, write and print the tables."""
    from panacea.core.files import write_atomically, write_csv

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETTINGS))
    parser.add_argument("--triggers", default=",".join(TRIGGERS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("runs/backdoor.jsonl"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    given = parser.parse_args()
    for data in given.data.split(","):
        results = run_all(jobs(data, given), given.store, given.workers)
        if failed := {result["error"] for result in results if "error" in result}:
            raise SystemExit(f"failed: {'; '.join(failed)}")
        rows = records(results, given.triggers.split(","))
        rounds = results[0]["keys"]["rounds"]
        title = f"{data}, 30 clients, one of them with a backdoor to class 1, {rounds} rounds, seeds {given.seeds}"
        command = f"python benchmarks/backdoor.py --data {data} --triggers {given.triggers} --seeds {given.seeds}"
        text = f"{markdown(rows, title)}\n`{command}{f' --rounds {given.rounds}' if given.rounds else ''}`\n"
        given.out.mkdir(parents=True, exist_ok=True)
        write_csv(given.out / f"backdoor_{data}.csv", list(rows[0]), [list(row.values()) for row in rows])
        write_atomically(given.out / f"backdoor_{data}.md", text)
        print(f"\n{text}")


if __name__ == "__main__":
    main()
