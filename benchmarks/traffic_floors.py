"""What trivial predictors score on METR-LA's first week (207 sensors), where the papers print 1.0 for Panacea.

    python benchmarks/traffic_floors.py        needs metr_la.npz in $PANACEA_DATA/metr-la

Unlike `panacea datasets floors metr_la data.part=week`, whose ranges come from the train span, a sensor's range is that
of the whole week here (and beside it one range of 0 to 70 mph for all): the most favourable scale for a small error.
First 80 % of the windows to fit, last 20 % to test, MSE x 1e-3.
"""

from __future__ import annotations

import numpy as np

from panacea.data.paths import data_root
from panacea.data.reading import npz_arrays

L = H = 12


def main() -> None:
    """Print the table."""
    path = data_root() / "metr-la" / "metr_la.npz"
    speed = npz_arrays(path, ["speed_week_interpolated"])["speed_week_interpolated"].astype(np.float64).T
    low, high = speed.min(axis=1, keepdims=True), speed.max(axis=1, keepdims=True)
    scales = {"per sensor": (speed - low) / (high - low), "/ 70": speed / 70}
    rows = {name: floors(values) for name, values in scales.items()}
    print(f"{'predictor':28s}" + "".join(f"{name:>12s}" for name in rows))
    for predictor in next(iter(rows.values())):
        print(f"{predictor:28s}" + "".join(f"{1e3 * row[predictor]:12.1f}" for row in rows.values()))


def floors(values: np.ndarray) -> dict[str, float]:
    """Mean squared error of each predictor, over sensors, windows and steps."""
    windows = np.lib.stride_tricks.sliding_window_view(values, L + H, axis=1)  # [sensors, windows, 24]
    cut = round(0.8 * windows.shape[1])
    fit, test = windows[:, :cut], windows[:, cut:]
    x, y = test[..., :L], test[..., L:]
    design = np.concatenate([fit[..., :L].reshape(-1, L), np.ones((fit[..., 0].size, 1))], axis=1)
    weights = np.linalg.lstsq(design, fit[..., L:].reshape(-1, H), rcond=None)[0]
    linear = x @ weights[:L] + weights[L]
    mean = values[:, : cut + L + H - 1].mean(axis=1)[:, None, None]
    return {
        "sensor's mean": float(((y - mean) ** 2).mean()),
        "persistence, 12 steps": float(((y - x[..., -1:]) ** 2).mean()),
        "persistence, one step": float(((y[..., 0] - x[..., -1]) ** 2).mean()),
        "pooled linear, 12 steps": float(((y - linear) ** 2).mean()),
    }


if __name__ == "__main__":
    main()
