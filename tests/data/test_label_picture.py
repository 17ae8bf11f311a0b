"""The picture of labels per client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from panacea.data import from_arrays, label_picture, load
from panacea.data.picture import label_counts
from panacea.errors import RequestError


def test_counts() -> None:
    fed = from_arrays([np.zeros((3, 1)), np.zeros((2, 1))], [[0, 2, 2], [1, 1]])
    assert label_counts(fed).tolist() == [[1, 0, 2], [0, 2, 0]]


def test_png_and_svg_say_what_they_show(tmp_path: Path) -> None:
    fed = load("digits", novel=0.2)
    png = label_picture(fed, tmp_path / "new" / "labels.png")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    svg = label_picture(fed, str(tmp_path / "labels.svg")).read_text()
    for words in ("group 0", "group 4", "client", "class", "held out of training", "1,156 samples of 20 clients"):
        assert f"<!-- {words} -->" in svg or words in svg


@pytest.mark.parametrize("clients", [3, 70])
def test_amounts_and_many_clients(tmp_path: Path, clients: int) -> None:
    stream = np.random.default_rng(0)
    amounts = from_arrays([np.zeros((9, 1))] * clients, [stream.normal(size=9) for _ in range(clients)], novel=0.3)
    assert label_picture(amounts, tmp_path / "a.png").stat().st_size > 5000
    labels = load("digits", split="iid", clients=clients)
    assert label_picture(labels, tmp_path / "b.png").stat().st_size > 5000
    words = from_arrays([np.zeros((2, 1))], [["owl", "cat"]])
    assert "owl" in label_picture(words, tmp_path / "c.svg").read_text()


def test_other_suffixes(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"a\.jpg: the picture must be a \.png or \.svg file"):
        label_picture(load("fl60", clients=3), tmp_path / "a.jpg")
