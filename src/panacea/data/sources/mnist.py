"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels in 10 classes.

    practical: 100 clients in 5 groups of 20, dominating classes {0, 1}, {2, 3}, .., {8, 9};
        500 / 400 / 300 / 200 / 100 train (validation included) and 100 test samples per client,
        80 % evenly from the dominating classes and 20 % evenly from the others; clients of a group are linked
    pathological: 100 clients, 2 shards each of the images sorted by label        iid, dirichlet: 100 clients

How test samples are chosen is the same for all sets of images, see `panacea.data.sources._images`.

Source: LeCun, Cortes and Burges (1998); Xiao, Rasul and Vollgraf (2017).

Differences from the paper:
    * FedAMP's groups and sizes for these two sets stand in an appendix we do not have. Those above are our stand-ins.
    * Its test samples come from the published test split as far as that goes. MNIST has 892 to 1,135 test images per
      class and 1,000 are asked for, so a few hundred come from images of the train file that nobody trains on.
"""

from __future__ import annotations

from pathlib import Path

from panacea.data.federation import Federation
from panacea.data.registry import Card, TrainingDefaults, dataset, found_by
from panacea.data.sources._idx import Layout, find_pairs, idx_federation
from panacea.data.sources._images import ImageSet
from panacea.data.split import GroupPlan, PoolKeys

__all__ = ["FASHION_LAYOUT", "FASHION_MNIST", "MNIST", "load_fashion_mnist", "load_mnist"]

_PREFIXES = {"train": ("train",), "test": ("t10k", "test")}
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
_FILES = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte"
_PLAN = GroupPlan(sizes=(500, 400, 300, 200, 100), members=(20,) * 5)
_SPLITS = (
    "train + validation from the train file, test from the test file; practical: 500/400/300/200/100 train (validation "
    "included) and 100 test per client, 80 % from the group's two classes (stand-ins for FedAMP's appendix)"
)
_USED_IN = "FedAMP (Huang et al., AAAI 2021): IID, pathological and practical settings"

MNIST = ImageSet(
    "mnist",
    (1, 28, 28),
    tuple("0123456789"),
    (60_000, 10_000),
    _PLAN,
    frozenset(
        {
            "6bbc9ace898e44ae57da46a324031adb",  # of the four files once unpacked
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        }
    ),
)
FASHION_MNIST = ImageSet(
    "fashion_mnist",
    (1, 28, 28),
    ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    (60_000, 10_000),
    _PLAN,
    frozenset(
        {
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        }
    ),
)
MNIST_LAYOUT = Layout("MNIST", _PREFIXES)
FASHION_LAYOUT = Layout("FashionMNIST", _PREFIXES, elsewhere=(_DEBIAN,))
MNIST_CARD = Card(
    licence="none stated by the publishers",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition. Proc. IEEE 1998",
    used_in=_USED_IN,
    get=f"place {_FILES} (plain or .gz, published by LeCun, Cortes and Burges as the MNIST database) in that folder",
    splits=_SPLITS,
)
FASHION_CARD = Card(
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking. arXiv 1708.07747, 2017",
    used_in=_USED_IN,
    get=f"place {_FILES} (plain or .gz, published by Zalando Research as Fashion-MNIST) in that folder, or install "
    "Debian's package dataset-fashion-mnist",
    splits=_SPLITS,
)
# lr: the best of 0.01, 0.05 and 0.1 on MNIST's validation samples (FedAvg, cnn, 10 clients, 15 rounds of 10 steps);
# Fashion-MNIST has the same.
_DEFAULTS = TrainingDefaults(lr=0.1, rounds=200, cohort=10, novel=0.0)


@dataset(
    "mnist",
    summary="70,000 handwritten digits (28 x 28), 100 clients in 5 groups with two dominating digits",
    source="MNIST database of handwritten digits (LeCun, Cortes and Burges 1998)",
    keys=PoolKeys,
    defaults=_DEFAULTS,
    card=MNIST_CARD,
    files=found_by(lambda root: find_pairs("mnist", root, MNIST_LAYOUT, MNIST_CARD.get)),
)
def load_mnist(keys: PoolKeys) -> Federation:
    """Read and divide the digits."""
    return idx_federation(MNIST, keys, MNIST_LAYOUT, MNIST_CARD.get)


@dataset(
    "fashion_mnist",
    summary="70,000 pictures of clothes (28 x 28), 100 clients in 5 groups with two dominating classes",
    source="Fashion-MNIST (Xiao, Rasul and Vollgraf 2017)",
    keys=PoolKeys,
    defaults=_DEFAULTS,
    card=FASHION_CARD,
    files=found_by(lambda root: find_pairs("fashion_mnist", root, FASHION_LAYOUT, FASHION_CARD.get)),
)
def load_fashion_mnist(keys: PoolKeys) -> Federation:
    """Read and divide the clothes."""
    return idx_federation(FASHION_MNIST, keys, FASHION_LAYOUT, FASHION_CARD.get)
