"""What `defence=neighbourhood` gains and costs, on seeds that played no part in its design.

    python benchmarks/neighbourhood.py                        fl60, 200 rounds, seeds 20..22: 240 runs
    python benchmarks/neighbourhood.py --seeds 20..24

Writes docs/results/neighbourhood.csv, .md and .png (`--out` for elsewhere). Every run is kept as a line of `--store`
and not trained again. Accuracy of honest clients at the round chosen on validation data, with and without the defence.
"""

from __future__ import annotations

import argparse
import io
import statistics
from pathlib import Path
from typing import Any

from stored import numbers, run_all

METHODS = ("panacea", "panacea_gn", "pfedhn", "fedamp")
ATTACKS: dict[str, dict[str, Any]] = {
    "nobody": {},
    "model_poisoning": {"attack": "model_poisoning"},
    "inverted labels": {"attack": "label_flip", "attack.flip": "invert"},
    "sign_flip": {"attack": "sign_flip"},
    "gaussian": {"attack": "gaussian"},
    "alie": {"attack": "alie"},
    "minmax": {"attack": "minmax"},
}
RATIOS = {"model_poisoning": (0.2, 0.4), "inverted labels": (0.2, 0.4), "sign_flip": (0.2, 0.4)}
DEFENCES = ("none", "neighbourhood")
MEASURES = ("mean", "detection_precision", "detection_recall", "trust_auc")
_GREY, _BLUE = "#7f7f7f", "#0072B2"


def cases() -> list[tuple[str, float]]:
    """Every attack with its shares of clients; where nobody attacks, 0."""
    return [(name, ratio) for name in ATTACKS for ratio in ((0.0,) if name == "nobody" else RATIOS.get(name, (0.2,)))]


def keys_of(method: str, attack: str, ratio: float, defence: str, seed: int, rounds: int) -> dict[str, Any]:
    """One run."""
    share = {"attack.ratio": ratio} if ratio else {}
    base = {"data": "fl60", "rounds": rounds, "eval_every": 20, "method": method, "seed": seed, "defence": defence}
    return {**base, **ATTACKS[attack], **share}


def records(results: dict[str, dict[str, Any]], seeds: list[int], rounds: int) -> list[dict[str, Any]]:
    """A row for every attack, share and method; a diverged run leaves its numbers empty."""
    rows = []
    for attack, ratio in cases():
        for method in METHODS:
            row: dict[str, Any] = {"attack": attack, "ratio": ratio, "method": method}
            for defence in DEFENCES:
                runs = [results[str(keys_of(method, attack, ratio, defence, s, rounds))].get("summary") for s in seeds]
                for measure in MEASURES if defence == "neighbourhood" else MEASURES[:1]:
                    values = [run.get(measure) for run in runs if run is not None]
                    known = [value for value in values if value is not None]
                    whole = len(known) == len(seeds)
                    row[f"{measure} {defence}"] = statistics.fmean(known) if whole else None
                    row[f"{measure} {defence} std"] = statistics.stdev(known) if whole and len(known) > 1 else None
                row[f"diverged {defence}"] = sum(run is None for run in runs)
            rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table as a person reads it."""
    from panacea.experiment.table import markdown_table, shown

    def cell(row: dict[str, Any], column: str) -> str:
        defence = column.rsplit(maxsplit=1)[-1]
        if row[column] is None:
            return f"diverged ({row[f'diverged {defence}']})" if row[f"diverged {defence}"] else "-"
        return f"{shown(row[column])} ± {shown(row[f'{column} std'])}"

    header = ["attack", "share", "method", "without", "with", "gain", "precision", "recall", "AUC of trust"]
    body = []
    for row in rows:
        both = (row["mean none"], row["mean neighbourhood"])
        gain = "-" if None in both else f"{both[1] - both[0]:+.2f}"
        rest = (shown(row[f"{measure} neighbourhood"]) for measure in MEASURES[1:])
        means = [cell(row, f"mean {defence}") for defence in DEFENCES]
        body.append([row["attack"], str(row["ratio"]), row["method"], *means, gain, *rest])
    return markdown_table(header, body)


def figure(rows: list[dict[str, Any]]) -> Any:
    """A panel per method: without (grey) and with (blue), a line between them for every attack."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(7.2, 5.2), layout="constrained")
    for panel, method in zip(sheet.subplots(2, 2, sharex=True, sharey=True).flat, METHODS, strict=True):
        mine = [row for row in rows if row["method"] == method]
        for height, row in enumerate(reversed(mine)):
            old, new = row["mean none"], row["mean neighbourhood"]
            if old is not None and new is not None:
                panel.plot([old, new], [height, height], color="#cccccc", zorder=1)
            for value, colour, mark in ((old, _GREY, "o"), (new, _BLUE, "D")):
                shown_at = 0 if value is None else value
                panel.scatter([shown_at], [height], color=colour, marker="x" if value is None else mark, s=24, zorder=2)
        names = [f"{r['attack']} {r['ratio']:.0%}" if r["ratio"] else "nobody attacks" for r in reversed(mine)]
        panel.set_yticks(range(len(mine)), names, fontsize=7)
        panel.set_title(method, fontsize=9)
        panel.grid(axis="x", alpha=0.3)
        panel.set_xlim(-3, 103)
    sheet.supxlabel(
        "accuracy of honest clients, % (grey: no defence; blue: neighbourhood; x at 0: diverged)", fontsize=8
    )
    return sheet


def main() -> None:
    """Train what is missing, write and print the table."""
    from panacea.core.files import write_atomically, write_csv

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="20..22")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("runs/neighbourhood.jsonl"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    given = parser.parse_args()
    seeds = numbers(given.seeds)
    wanted = [
        keys_of(method, attack, ratio, defence, seed, given.rounds)
        for attack, ratio in cases()
        for method in METHODS
        for defence in DEFENCES
        for seed in seeds
    ]
    results = {str(result["keys"]): result for result in run_all(wanted, given.store, given.workers)}
    rows = records(results, seeds, given.rounds)
    command = f"python benchmarks/neighbourhood.py --seeds {given.seeds} --rounds {given.rounds}"
    title = f"**fl60, {given.rounds} rounds, seeds {given.seeds}: accuracy of honest clients (%), ± over seeds**"
    given.out.mkdir(parents=True, exist_ok=True)
    write_csv(given.out / "neighbourhood.csv", list(rows[0]), [list(row.values()) for row in rows])
    text = f"{title}\n\n{markdown(rows)}\n`{command}`\n\n![with and without](neighbourhood.png)\n"
    write_atomically(given.out / "neighbourhood.md", text)
    image = io.BytesIO()
    figure(rows).savefig(image, format="png", dpi=150)
    write_atomically(given.out / "neighbourhood.png", image.getvalue())
    print(f"\n{text}")


if __name__ == "__main__":
    main()
