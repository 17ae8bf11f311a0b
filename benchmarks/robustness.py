"""The curve of the paper: the metric of honest clients against the share of clients that attack.

    python benchmarks/robustness.py                            fl60 and compcars_like, both attacks: 4 x 126 runs
    python benchmarks/robustness.py --data fl60 --attacks label_flip
    python benchmarks/robustness.py --data compcars_like --base fashion_mnist    clothes in place of digits

Writes docs/results/robustness_<data>_<attack>.csv, .md and .png (`--out` for elsewhere) and prints, for every method,
its mean drop over the ratios above 0, which is how flat its curve is. Every run is kept as a line of `--store` and not
trained again, so that a table can be stopped, widened and continued. Numbers are of the round chosen on validation
data, means over honest clients. All methods have the data set's own learning rate.
"""

from __future__ import annotations

import argparse
import io
import statistics
from pathlib import Path
from typing import Any

from stored import numbers, run_all

METHODS = ("fedavg", "fedavg_ft", "ditto", "pfedhn", "panacea_mlp", "panacea_gn", "panacea")
ATTACKS = ("label_flip", "model_poisoning")
RATIOS = "0,0.1,0.2,0.3,0.4,0.5"
SETTINGS: dict[str, dict[str, Any]] = {
    "fl60": {"data": "fl60", "rounds": 400, "eval_every": 20},  # half of its default, for the hour that it takes
    "compcars_like": {
        "data": "compcars_like",
        "data.base": "digits",
        "model": "mlp",
        "model.hidden": [32],
        "rounds": 100,
        "eval_every": 10,
    },
}


def jobs(data: str, attack: str, ratios: list[float], given: argparse.Namespace) -> list[dict[str, Any]]:
    """The keys of every run of one table; where nobody attacks, the attack does not matter and one run serves all."""
    keys = dict(SETTINGS[data])
    keys |= {"rounds": given.rounds} if given.rounds else {}
    keys |= {"data.base": given.base} if given.base and "data.base" in keys else {}
    return [
        {**keys, "method": method, "seed": seed, "attack": attack if ratio else "none", "attack.ratio": ratio}
        for method in given.methods.split(",")
        for ratio in ratios
        for seed in numbers(given.seeds)
    ]


def table(results: list[dict[str, Any]], attack: str, ratios: list[float]) -> Any:
    """The results as `panacea compare` would show them."""
    from panacea.experiment.sweep import Axis
    from panacea.experiment.sweep_table import Outcome, Swept

    outcomes = [
        Outcome(r["keys"]["method"], (r["keys"]["attack.ratio"],), r["keys"]["seed"], r.get("summary")) for r in results
    ]
    return Swept((Axis("attack.ratio", tuple(ratios)),), tuple(outcomes), f"attack={attack}")


def write(swept: Any, folder: Path, stem: str, command: str) -> None:
    """CSV, Markdown and figure."""
    from panacea.core.files import write_atomically, write_csv
    from panacea.report.curves import draw_curves

    folder.mkdir(parents=True, exist_ok=True)
    records = swept.records()
    write_csv(folder / f"{stem}.csv", list(records[0]), [list(record.values()) for record in records])
    text = f"{curves(swept)}\n{flatness(swept)}\n`{command}`\n\n![the curve]({stem}.png)\n"
    write_atomically(folder / f"{stem}.md", text)
    image = io.BytesIO()
    draw_curves(swept).savefig(image, format="png")
    write_atomically(folder / f"{stem}.png", image.getvalue())


def curves(swept: Any) -> str:
    """The table with title and caption."""
    from panacea.experiment.formats import marked_markdown

    caption = f"{swept.caption[0].upper()}{swept.caption[1:]}. Failed: a run diverged. Best bold, second underlined."
    return f"**{swept.title}**\n\n{marked_markdown(swept.header, swept.cells())}\n{caption}\n"


def flatness(swept: Any) -> str:
    """Every method's mean drop over the ratios above 0, the least first; those with diverged runs are last."""
    from panacea.experiment.table import markdown_table

    last, rows = swept.axes[0].values[-1], []
    for line in swept.lines():
        drops = [cell.drop for cell in line.cells[1:]]
        lost = len(swept.seeds) * len(drops) - sum(len(cell.runs) for cell in line.cells[1:])
        known = None not in drops
        texts = [f"{statistics.fmean(drops):.2f}", f"{drops[-1]:.2f}"] if known else ["-", "-"]
        rows.append((lost, statistics.fmean(drops) if known else 0.0, [line.method, *texts, str(lost)]))
    header = ["the flattest first", "mean drop over ratios above 0", f"drop at {last}", "diverged runs"]
    return markdown_table(header, [row for *_, row in sorted(rows)])


def main() -> None:
    """Train what is missing, write and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETTINGS))
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--ratios", default=RATIOS)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--base", default=None, help="of compcars_like: digits (default) or fashion_mnist")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("runs/robustness.jsonl"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    given = parser.parse_args()
    ratios = [float(ratio) for ratio in given.ratios.split(",")]
    for data in given.data.split(","):
        for attack in given.attacks.split(","):
            results = run_all(jobs(data, attack, ratios, given), given.store, given.workers)
            for error in {result["error"] for result in results if "error" in result}:
                print(f"failed: {error}")
            swept = table(results, attack, ratios)
            command = f"python benchmarks/robustness.py --data {data} --attacks {attack}"
            for name in ("methods", "ratios", "seeds", "rounds", "base"):
                if getattr(given, name) != parser.get_default(name):
                    command += f" --{name} {getattr(given, name)}"
            write(swept, given.out, f"robustness_{data}_{attack}", command)
            print(f"\n{curves(swept)}\n{flatness(swept)}")


if __name__ == "__main__":
    main()
