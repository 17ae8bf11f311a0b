"""The official folders of CompCars: which image shows what kind of car, from where, of which year.

image/<make>/<model>/<year>/<name>.jpg
label/<make>/<model>/<year>/<name>.txt   line 1: viewpoint (-1 unknown, 1 front, 2 rear, 3 side, 4 front-side, 5
                                         rear-side); lines 2 and 3: bounding boxes
misc/attributes.txt                      a header, then per model: model_id .. type (0 unknown, 1 MPV, 2 SUV,
                                         3 sedan, 4 hatchback, .., 12)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panacea.data.cache import Arrays, cached, packed, unpacked
from panacea.data.owned import Owned
from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import file_text
from panacea.data.sources._view_year import NAMES, VIEWS, YEARS
from panacea.errors import RequestError

__all__ = ["TYPES", "CarFiles", "read_cars"]

TYPES = ("MPV", "SUV", "sedan", "hatchback")
_VIEWPOINTS = {1: "F", 2: "R", 3: "S", 4: "FS", 5: "RS"}
_UNKNOWN = -1
_VERSION = 1


@dataclass(frozen=True)
class CarFiles:
    """The images of the four types, five viewpoints and six years.

    Attributes:
        folder: of the images.
        files: ``[images]`` paths in it.
        samples: `rows` are positions in `files`, owners the thirty clients.
        unknown: images of these types and years whose viewpoint is not known; left out.
    """

    folder: Path
    files: list[str]
    samples: Owned
    unknown: int


def read_cars(root: Path | None, get: str) -> CarFiles:
    """Read what is in ``<root>/compcars``: ``data/image`` and so on, or ``image`` and so on."""
    folder = find_data_dir("compcars", root)
    bases = [] if folder is None else [base for base in (folder / "data", folder) if (base / "image").is_dir()]
    if folder is None or not bases:
        raise missing_files("compcars", root, get)
    base = bases[0]
    places = (base / "misc" / "attributes.txt", folder / "misc" / "attributes.txt")
    attributes = next((path for path in places if path.is_file()), None)
    if attributes is None or not (base / "label").is_dir():
        raise missing_files("compcars", root, get)
    years = [place for place in sorted((base / "image").glob("*/*/*")) if place.name in map(str, YEARS)]
    labels = [base / "label" / place.relative_to(base / "image") for place in years]
    looked_at = [attributes, *years, *(place for place in labels if place.is_dir())]  # a folder changes with its files
    arrays = cached("compcars", looked_at, _VERSION, lambda: _read(base, attributes, years))
    return CarFiles(base / "image", unpacked(arrays["files"]), Owned.from_arrays(arrays), int(arrays["unknown"][0]))


def _read(base: Path, attributes: Path, years: list[Path]) -> Arrays:
    types = _types(attributes)
    files, owner, marks, unknown = [], [], [], 0
    for folder in years:
        kind = types.get(folder.parent.name, 0)
        if not 1 <= kind <= len(TYPES):
            continue
        for image in sorted(folder.glob("*.jpg")):
            inside = image.relative_to(base / "image")
            viewpoint = _viewpoint((base / "label" / inside).with_suffix(".txt"))
            if viewpoint == _UNKNOWN:
                unknown += 1
                continue
            files.append(inside.as_posix())
            owner.append(VIEWS.index(_VIEWPOINTS[viewpoint]) * len(YEARS) + YEARS.index(int(folder.name)))
            marks.append(kind - 1)
    if not files:
        raise RequestError(f"{base / 'image'}: no image of a {', '.join(TYPES)} of {YEARS[0]}-{YEARS[-1]} in it")
    labels = np.array(marks, np.int64)
    samples = Owned(NAMES, np.array(owner, np.int64), labels, np.arange(len(files), dtype=np.int64))
    return {**samples.arrays(), "files": packed(files), "unknown": np.array([unknown], np.int64)}


def _types(path: Path) -> dict[str, int]:
    """The type of every model, by its folder's name."""
    lines = file_text(path).splitlines()
    header = lines[0].split() if lines else []
    if "model_id" not in header or "type" not in header:
        raise RequestError(f"{path} line 1: needs the columns model_id and type, found '{' '.join(header)}'")
    model, kind = header.index("model_id"), header.index("type")
    types = {}
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if not words:
            continue
        if len(words) != len(header) or not re.fullmatch("[0-9]{1,9}", words[kind]):
            raise RequestError(f"{path} line {number}: needs {len(header)} values, the type a whole number")
        types[words[model]] = int(words[kind])
    return types


def _viewpoint(path: Path) -> int:
    if not path.is_file():
        raise RequestError(f"{path}: missing; every image needs its label file")
    first = file_text(path).split("\n", 1)[0].strip()
    if first not in {str(number) for number in (_UNKNOWN, *_VIEWPOINTS)}:
        raise RequestError(f"{path} line 1: '{first}' is not a viewpoint (-1, or 1 to 5)")
    return int(first)
