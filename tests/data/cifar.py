"""Small CIFAR files in all their forms, for tests."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation
from tests.data.images import numbered, python2_pickle

Files = dict[str, bytes]
BATCHES = [f"data_batch_{k}" for k in range(1, 6)]
KEYS = {"split": "iid", "clients": 3}
X, Y = numbered((3, 32, 32), 10, 12)  # 120 images: five batches of 20 and a test batch
PARTS = dict(zip([*BATCHES, "test_batch"], zip(np.split(X, 6), np.split(Y, 6), strict=True), strict=True))


def rows(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), 3072)


def python2_batches() -> Files:
    return {name: python2_pickle({"data": rows(x), "labels": y.tolist()}) for name, (x, y) in PARTS.items()}


def python3_batches(kind: type) -> Files:
    def key(word: str) -> object:
        return word.encode() if kind is bytes else word

    return {
        name: pickle.dumps({key("data"): rows(x), key("labels"): y.tolist(), key("filenames"): []})
        for name, (x, y) in PARTS.items()
    }


def binary_batches() -> Files:
    return {
        f"{name}.bin": np.concatenate([y[:, None].astype(np.uint8), rows(x)], axis=1).tobytes()
        for name, (x, y) in PARTS.items()
    }


def png(pixels: np.ndarray) -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def sheets() -> Files:
    files = {
        f"{name}.png": png(np.ascontiguousarray(x.reshape(-1, 3, 1024).transpose(0, 2, 1)))
        for name, (x, _) in PARTS.items()
    }
    marks = {"train": Y[:100], "test": Y[100:]}
    return files | {f"{split}_lables.json": json.dumps(labels.tolist()).encode() for split, labels in marks.items()}


def write_files(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def tar(folder: str, files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in {"readme.html": b"hello", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def same(a: Federation, b: Federation) -> bool:
    return torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and np.array_equal(a.bounds, b.bounds)
