"""The store of prepared images: what is in it, when it is built again, what an interrupted build leaves."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import image_store as module
from panacea.data.image_store import image_store
from panacea.errors import RequestError
from tests.data.pictures import near, picture


def _pictures(folder: Path, count: int) -> list[str]:
    files = [f"{i:06d}.jpg" for i in range(count)]
    for i, file in enumerate(files):
        picture(folder / file, i)
    return files


def _kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


def _never(path: Path, size: int) -> None:
    raise AssertionError("decoded again")


def test_images_are_resized_and_stay_on_disk(tmp_path: Path) -> None:
    files = _pictures(tmp_path / "in", 7)
    store = image_store("toy", tmp_path / "in", files[::-1], 8)
    assert store.images.shape == (7, 3, 8, 8)
    assert store.images.dtype == torch.uint8
    assert store.sound.all()
    assert store.notes == ()
    assert all(near(store.images[6 - i].numpy() / 255, i) for i in range(7))
    names = _kept(tmp_path)
    assert [name.rsplit(".", 1)[1] for name in names] == ["json", "npy"]
    assert (tmp_path / "cache" / names[1]).stat().st_size == 128 + 7 * 3 * 64


def test_rows_and_columns_keep_their_places(tmp_path: Path) -> None:
    """The left half is red, the bottom half is blue: channels first, then rows, then columns."""
    from PIL import Image

    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:, :20, 0] = 255
    pixels[20:, :, 2] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = image_store("toy", tmp_path, ["a.png"], 8).images[0]
    assert image[0, 4].tolist() == pytest.approx([255] * 4 + [0] * 4, abs=40)
    assert image[2, :, 4].tolist() == pytest.approx([0] * 4 + [255] * 4, abs=40)
    assert int(image[1].max()) == 0


def test_the_second_time_nothing_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _pictures(tmp_path / "in", 5)
    first = image_store("toy", tmp_path / "in", files, 8)
    monkeypatch.setattr(module, "_decode", _never)
    second = image_store("toy", tmp_path / "in", files, 8)
    assert torch.equal(first.images, second.images)
    assert first.fingerprint == second.fingerprint
    for other in (files[:4], files[::-1]):
        with pytest.raises(AssertionError, match="decoded again"):
            image_store("toy", tmp_path / "in", other, 8)
    with pytest.raises(AssertionError, match="decoded again"):
        image_store("toy", tmp_path / "in", files, 9)


def test_other_files_and_damaged_stores_are_built_anew(tmp_path: Path) -> None:
    files = _pictures(tmp_path / "in", 5)
    old = image_store("toy", tmp_path / "in", files, 8)
    path = next((tmp_path / "cache").glob("*.npy"))
    path.write_bytes(path.read_bytes()[:-1])  # cut short
    again = image_store("toy", tmp_path / "in", files, 8)
    assert again.fingerprint == old.fingerprint
    assert len(again.images) == 5
    path.with_suffix(".json").write_text("{")
    assert image_store("toy", tmp_path / "in", files, 8).fingerprint == old.fingerprint
    assert json.loads(path.with_suffix(".json").read_text())["files"] == 5
    picture(tmp_path / "in" / files[0], 99, (30, 30))  # another download
    new = image_store("toy", tmp_path / "in", files, 8)
    assert new.fingerprint != old.fingerprint
    assert near(new.images[0].numpy() / 255, 99)


def test_writing_to_the_images_leaves_the_store_alone(tmp_path: Path) -> None:
    files = _pictures(tmp_path / "in", 2)
    image_store("toy", tmp_path / "in", files, 8).images.zero_()
    assert int(image_store("toy", tmp_path / "in", files, 8).images.max()) > 0


@pytest.mark.parametrize("damage", ["missing", "text", "short"])
def test_a_few_lost_images_are_counted(tmp_path: Path, damage: str) -> None:
    files = _pictures(tmp_path / "in", 120)
    lost = tmp_path / "in" / files[37]
    if damage == "missing":
        lost.unlink()
    else:
        lost.write_bytes(b"not an image" if damage == "text" else lost.read_bytes()[:300])
    for _ in range(2):  # built, then found
        store = image_store("toy", tmp_path / "in", files, 8)
        assert np.flatnonzero(~store.sound).tolist() == [37]
        reason = "missing" if damage == "missing" else "does not decode"
        assert store.notes[0].startswith(
            f"1 of 120 images were left out: missing or damaged, first 000037.jpg ({reason}"
        )
        assert near(store.images[38].numpy() / 255, 38)


def test_many_lost_images_are_an_error_that_names_the_first(tmp_path: Path) -> None:
    files = _pictures(tmp_path / "in", 50)
    (tmp_path / "in" / files[12]).write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    with pytest.raises(RequestError) as caught:
        image_store("toy", tmp_path / "in", files, 8)
    assert str(caught.value).startswith(f"{tmp_path / 'in' / '000012.jpg'}: does not decode")
    assert "1 of the first 13 of 50 images are missing or damaged, and 1 % may be" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _kept(tmp_path) == []


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _pictures(tmp_path / "in", 5)
    decode = module._decode

    def stop(path: Path, size: int) -> bytes | str:
        if path.name == files[3]:
            raise KeyboardInterrupt
        return decode(path, size)

    monkeypatch.setattr(module, "_decode", stop)
    with pytest.raises(KeyboardInterrupt):
        image_store("toy", tmp_path / "in", files, 8)
    assert _kept(tmp_path) == []
    monkeypatch.setattr(module, "_decode", decode)
    assert image_store("toy", tmp_path / "in", files, 8).sound.all()


def test_a_full_disk_and_a_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _pictures(tmp_path / "in", 2)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RequestError, match=r"cannot keep 2 prepared images there \(No space left on device\)"):
            image_store("toy", tmp_path / "in", files, 8)
    assert _kept(tmp_path) == []
    (tmp_path / "plain").write_text("")
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "plain"))
    with pytest.raises(RequestError, match="set PANACEA_CACHE to another folder"):
        image_store("toy", tmp_path / "in", files, 8)


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _pictures(tmp_path / "in", 1)
    original = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "PIL":
            raise ImportError
        return original(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RequestError, match="run `pip install pillow`"):
        image_store("toy", tmp_path / "in", files, 8)
