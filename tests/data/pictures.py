"""Small images and LEAF's JSON files, for the tests of image sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image


def colour(place: int) -> tuple[int, int, int]:
    """A colour of its own for every image, far enough from the others to survive JPEG."""
    return (40 + 8 * (place % 25), 30 + 40 * (place // 25 % 5), 200 - 40 * (place // 125 % 5))


def picture(path: Path, place: int = 0, size: tuple[int, int] = (20, 14)) -> None:
    """A JPEG of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour(place)).save(path, quality=95)


def leaf(path: Path, people: dict[str, tuple[list[object], list[object]]], **changes: object) -> Path:
    """A file as LEAF writes it; `changes` replaces parts of it."""
    content = {
        "users": list(people),
        "num_samples": [len(y) for _, y in people.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in people.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return path


def near(image: np.ndarray, place: int) -> bool:
    """Whether an image ``[3, h, w]`` in [0, 1] has the colour of a picture."""
    return bool(np.abs(255 * image.mean(axis=(1, 2)) - colour(place)).max() < 4)
