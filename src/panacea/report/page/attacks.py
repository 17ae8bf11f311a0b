"""The tab on attacks: the metric against the share of attackers, damage by distance, refused uploads."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from panacea.evaluation.hops import damage_by_hops
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.table import between
from panacea.report.page.packing import plain, short
from panacea.report.page.reading import Floats, StoredRun
from panacea.report.page.series import Series, Suite
from panacea.report.page.tables import Column, PageTable
from panacea.report.robustness import refused_counts

__all__ = ["attack_curves", "attack_table", "attacks"]

_MEASURES = {
    "mean": "honest clients", "novel_mean": "novel clients", "worst_decile": "worst decile", "all_mean": "all clients",
    "attackers_mean": "attackers", "asr_mean": "attack success",
}  # fmt: skip


def _ratio(one: Series) -> float:
    """The share of clients that attack; 0 where nobody does."""
    if one.setting.get("attack", "none") == "none":
        return 0.0
    return float(one.setting.get("attack.ratio") or 0.0)


def _base(one: Series) -> dict[str, Any]:
    """The setting without the attack."""
    return {key: value for key, value in one.setting.items() if key.partition(".")[0] != "attack"}


def _attack(one: Series) -> dict[str, Any]:
    """What attacks, whoever many there are."""
    keys = {key: value for key, value in one.setting.items() if key.partition(".")[0] == "attack"}
    return {key: value for key, value in keys.items() if key not in ("attack.ratio", "attack.clients")}


def attack_curves(suite: Suite) -> list[dict[str, Any]]:
    """A curve per method and attack along the share of attackers; runs without attack begin every curve."""
    groups: list[tuple[dict[str, Any], dict[str, Any], list[Series]]] = []
    for one in suite.series:
        if not _attacked(one):
            continue
        same = next((group for group in groups if group[0] == _base(one) and group[1] == _attack(one)), None)
        if same is None:
            groups.append((_base(one), _attack(one), [one]))
        else:
            same[2].append(one)
    for one in suite.series:
        for base, _, members in groups:
            if not _attacked(one) and _base(one) == base and all(_ratio(member) for member in members):
                members.insert(0, one)
    return [_one_curve(members) for _, _, members in groups if len({_ratio(member) for member in members}) > 1]


def _attacked(one: Series) -> bool:
    return bool(one.setting.get("attack", "none") != "none")


def _one_curve(members: list[Series]) -> dict[str, Any]:
    members = sorted(members, key=_ratio)
    words = [re.sub(r", attack\.(ratio|clients)=[^,]*", "", one.label) for one in members]
    found: dict[str, Any] = {"label": words[-1], "ratios": [_ratio(one) for one in members], "what": {}}
    for key in _MEASURES:
        values = [one.numbers(key) for one in members]
        if any(values):
            found["what"][key] = {
                "mean": plain(float(np.mean(some)) if some else None for some in values),
                "around": plain(between(some) for some in values),
            }
    return found


def attack_table(suite: Suite, curves: list[dict[str, Any]]) -> PageTable | None:
    """Methods down, shares across; None without such curves."""
    ratios = sorted({ratio for curve in curves for ratio in curve["ratios"]})
    if not ratios:
        return None
    up = 1 if suite.higher_is_better else -1
    columns = []
    for ratio in ratios:
        cells = [dict(zip(curve["ratios"], curve["what"]["mean"]["mean"], strict=True)).get(ratio) for curve in curves]
        columns.append(Column(f"ratio {ratio:g}", tuple(cells), up))
    note = "Mean over honest clients and seeds, at the round chosen on validation data, by the share of attackers."
    return PageTable.of(f"{suite.title}: under attack", note, ("method", [c["label"] for c in curves]), columns)


def _clean(suite: Suite, one: Series, run: StoredRun) -> Floats | None:
    """The metric of every client in the run of the same seed in which nobody attacks, if it is among the runs given."""
    for other in suite.series:
        if _base(other) == _base(one) and _ratio(other) == 0 and not other.runs[0].summary.get("attackers"):
            for candidate in other.runs:
                if candidate.seed == run.seed and candidate.names == run.names:
                    return candidate.columns["metric"]
    return None


def _hops(suite: Suite, one: Series) -> list[dict[str, Any]]:
    """Rows by distance from the nearest attacker, clients of all seeds together."""
    hops, metric, clean = [], [], []
    for run in one.runs:
        far = run.columns.get("hops")
        if far is None or np.isnan(far).all():
            continue
        chosen, before = run.counted, _clean(suite, one, run)
        hops.append(far[chosen])
        metric.append(run.columns["metric"][chosen])
        clean.append(np.full(int(chosen.sum()), np.nan) if before is None else before[chosen])
    if not hops:
        return []
    rows = damage_by_hops(*(np.concatenate(part) for part in (hops, metric, clean)))
    return [
        {
            "hops": "not linked" if math.isinf(row.hops) else f"{row.hops:.0f}", "clients": row.clients,
            "mean": short(row.mean), "std": short(row.std), "clean": short(row.clean_mean), "change": short(row.change),
        }
        for row in rows
    ]  # fmt: skip


def _refused(one: Series) -> dict[str, int]:
    """How many uploads were refused, by reason."""
    reasons = [reason for run in one.runs for _, reason in refused_counts(RunDirectory(run.path))]
    return dict(Counter(reasons).most_common(8))


def attacks(suite: Suite) -> dict[str, Any]:
    """Curves, damage by distance and refused uploads; empty where there is nothing of it."""
    curves = attack_curves(suite)
    damage = [{"series": i, "rows": rows} for i, one in enumerate(suite.series) if (rows := _hops(suite, one))]
    refused = [{"series": i, "reasons": why} for i, one in enumerate(suite.series) if (why := _refused(one))]
    if not curves and not damage and not refused:
        return {}
    return {"curves": curves, "damage": damage, "refused": refused, "measures": _MEASURES}
