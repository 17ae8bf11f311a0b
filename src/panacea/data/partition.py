"""Ways to divide one labelled data set among clients, one function per scheme.

Every function takes the labels and gives each client the positions of its samples: no sample twice, every client at
least `min_samples`, the same division for the same seed. What cannot be done is a `RequestError` that names the key.
Data sets that come with clients of their own (writers, sensors, states) are used as they are: `natural`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.errors import RequestError

__all__ = ["Partition", "alike", "dirichlet", "iid", "pathological", "practical"]

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """Who has which samples.

    Attributes:
        parts: per client the sorted positions of its samples.
        groups: ``[clients]`` group of each client, for schemes that plant groups.
        notes: sentences a user should see.
        tests: per client the sorted positions of its test samples, where the scheme chose them; they count through
            the samples to divide and then those of the test file.
        factor: by what the sizes asked for were scaled to fit, 1 where they did.
    """

    parts: list[Indices]
    groups: Indices | None = None
    notes: tuple[str, ...] = ()
    tests: list[Indices] | None = None
    factor: float = 1.0


def iid(labels: npt.ArrayLike, clients: int, *, seed: int = 0, min_samples: int = 1) -> Partition:
    """Equal shares of the shuffled samples."""
    total = len(_labels(labels))
    _check_size(total, clients, min_samples)
    order = Streams(seed).numpy("iid partition").permutation(total)
    return Partition([np.sort(part) for part in np.array_split(order, clients)])


def pathological(
    labels: npt.ArrayLike, clients: int, *, classes_per_client: int = 2, seed: int = 0, min_samples: int = 1
) -> Partition:
    """Shards of McMahan et al. (2017): sort by label, cut into equal shards, give each client a few of them.

    ``clients * classes_per_client`` shards of equal size (within one sample, clients too). A shard may reach over
    the border of two classes, so a client has about, not exactly, `classes_per_client` classes.
    """
    marks = _labels(labels)
    shards = clients * classes_per_client
    if classes_per_client < 1:
        raise RequestError(f"data.classes_per_client={classes_per_client}: must be at least 1")
    if shards > len(marks):
        raise RequestError(
            f"data.classes_per_client={classes_per_client}: {clients} clients need {shards} shards, "
            f"but there are {len(marks)} samples"
        )
    _check_size(len(marks), clients, min_samples)
    stream = Streams(seed).numpy("pathological partition")
    mixed = stream.permutation(len(marks))  # samples of one class in random order, so that shards are random too
    given = stream.permutation(shards).reshape(clients, classes_per_client)
    length = np.full(shards, len(marks) // shards)
    length[given.T.reshape(-1)[: len(marks) % shards]] += 1  # the odd samples go round: clients differ by one at most
    cut = np.split(mixed[np.argsort(marks[mixed], kind="stable")], np.cumsum(length)[:-1])
    return Partition([np.sort(np.concatenate([cut[shard] for shard in row])) for row in given])


def practical(
    labels: npt.ArrayLike,
    clients: int,
    *,
    groups: int = 5,
    dominant: float = 0.8,
    sizes: Sequence[int] | None = None,
    classes: Sequence[Sequence[int]] | None = None,
    members: Sequence[int] | None = None,
    test_size: int = 0,
    held: npt.ArrayLike = (),
    seed: int = 0,
    min_samples: int = 1,
) -> Partition:
    """Practical non-IID setting of FedAMP (Huang et al. 2021): groups of clients with dominating classes of their own.

    Clients, in order, form `groups` groups of (almost) equal size, and so do the classes, unless `members` and
    `classes` say which. A client draws a share `dominant` of its samples evenly from the classes of its group and the
    rest evenly from all other classes, and its test samples likewise. Sizes are equal within a group and fall from
    group to group. Where a class runs short, all sizes are scaled by one factor until everything fits.

    Args:
        labels: the label of each sample.
        clients: number of clients.
        groups: number of groups, at most the number of clients and of classes.
        dominant: share of samples from the group's own classes.
        sizes: samples of a client, per group; by default in proportion groups : ... : 2 : 1 and as large as fits.
        classes: the dominating classes of each group.
        members: how many clients each group has; in proportion where their sum is not `clients`.
        test_size: test samples of a client beside the others, in the same proportions; 0: none.
        held: labels of a test file. Test samples come from it, and from samples nobody trains on where it runs short.
        seed: decides who gets which samples.
        min_samples: least samples of a client.
    """
    marks, tested = _labels(labels), _labels(held)
    kinds, joint = np.unique(np.concatenate([marks, tested]), return_inverse=True)
    marks, tested = joint[: len(marks)], joint[len(marks) :]
    _check_size(len(marks), clients, min_samples)
    for limit, what in ((clients, "clients"), (len(kinds), "classes")):
        if not 1 <= groups <= limit:
            raise RequestError(f"data.groups={groups}: must be between 1 and the number of {what}, {limit}")
    if not 0 <= dominant <= 1:
        raise RequestError(f"data.dominant={dominant}: must be between 0 and 1")
    if sizes is not None and (len(sizes) != groups or min(sizes) < 1):
        raise RequestError(f"data.train_sizes={list(sizes)}: needs {groups} positive numbers, one per group")
    group = np.repeat(np.arange(groups), _seats(members or [1] * groups, clients))
    owner = _owners(kinds, groups, classes)
    stock, spare = (np.bincount(part, minlength=len(kinds)) for part in (marks, tested))
    asked = np.arange(groups, 0, -1) * (len(marks) / groups) if sizes is None else np.asarray(sizes, np.float64)
    factor = 1.0
    stream = Streams(seed).numpy("practical partition")
    rank = np.argsort(stream.random((clients, len(kinds))), axis=1)  # which classes get the odd samples of a client
    turn = np.zeros(clients, np.int64)
    if sizes is not None:  # odd samples go round, so that no class is asked for more than its share
        rank, turn = rank[:1], np.arange(clients)
    while True:
        size = np.floor(factor * asked[group]).astype(np.int64)
        test = np.full(clients, int(factor * test_size))
        if size.min() < min_samples or test.min() < min(test_size, 1):
            beside = f" and {test_size} test samples each" if test_size else ""
            lower = "data.test_size, " if test_size else ""
            raise RequestError(
                f"data.min_samples={min_samples}: {clients} clients in {groups} groups{beside} fit these "
                f"{len(marks) + len(tested)} samples only with {size.min()} in the smallest; "
                f"lower {lower}data.min_samples, data.clients or data.groups"
            )
        take, probe = (_quotas(count, group, owner, dominant, rank, turn) for count in (size, test))
        demand, both = take.sum(axis=0), (take + probe).sum(axis=0)
        if (demand <= stock).all() and (both <= stock + spare).all():
            break
        ratio = np.minimum(stock / np.maximum(demand, 1), (stock + spare) / np.maximum(both, 1))
        factor *= min(0.999, float(ratio.min()))
    pools = [stream.permutation(np.flatnonzero(marks == kind)) for kind in range(len(kinds))]
    parts, tests = _deal(pools, take), None
    shown = ", ".join(str(size[group == g][0]) for g in range(groups))
    used = f"{take.sum()} of {len(marks)} used"
    notes = [f"practical split: {shown} samples per client in groups 0 to {groups - 1}; {used}"]
    if test_size:
        fresh = [len(marks) + stream.permutation(np.flatnonzero(tested == kind)) for kind in range(len(kinds))]
        tests = _deal([np.concatenate([f, p[n:]]) for f, p, n in zip(fresh, pools, demand, strict=True)], probe)
        short = int(np.maximum(probe.sum(axis=0) - spare, 0).sum())
        notes.append(f"practical split: {test[0]} test samples per client")
        if short and len(tested):
            notes.append(
                f"{short} of {probe.sum()} test samples are not from the test file, which has too few of a "
                "class, but from samples of the train file that nobody trains on"
            )
    if sizes is not None and factor < 1:
        notes.append(f"PARTIAL: the sizes asked for ({', '.join(map(str, sizes))}) were scaled by {factor:.3f} to fit")
    return Partition(parts, group.astype(np.int64), tuple(notes), tests, factor if sizes is not None else 1.0)


def dirichlet(
    labels: npt.ArrayLike, clients: int, *, alpha: float = 0.3, seed: int = 0, min_samples: int = 1
) -> Partition:
    """Shares of every class drawn from Dirichlet(alpha, ..., alpha) over the clients (Hsu et al. 2019).

    A small `alpha` gives clients of few classes and very different sizes, a large one approaches `iid`. A client below
    `min_samples` is filled up with samples of the clients that are largest at that moment; a note says so.
    """
    marks = _labels(labels)
    _check_size(len(marks), clients, min_samples)
    if not (np.isfinite(alpha) and alpha > 0):
        raise RequestError(f"data.alpha={alpha}: must be a positive number")
    stream = Streams(seed).numpy("dirichlet partition")
    owned: list[list[int]] = [[] for _ in range(clients)]
    for kind in np.unique(marks):
        members = stream.permutation(np.flatnonzero(marks == kind))
        cuts = np.rint(np.cumsum(stream.dirichlet(np.full(clients, alpha)))[:-1] * len(members)).astype(np.int64)
        for mine, part in zip(owned, np.split(members, cuts), strict=True):
            mine.extend(part.tolist())
    poor = [i for i in range(clients) if len(owned[i]) < min_samples]
    heap = [(-len(mine), i) for i, mine in enumerate(owned)]
    heapq.heapify(heap)
    for i in poor:
        while len(owned[i]) < min_samples:
            rich = heapq.heappop(heap)[1]  # has more than min_samples, for the mean is no less than that
            owned[i].append(owned[rich].pop(int(stream.integers(len(owned[rich])))))
            heapq.heappush(heap, (-len(owned[rich]), rich))
    note = f"dirichlet split: {len(poor)} client(s) filled up to {min_samples} samples from the largest clients"
    return Partition([np.sort(np.asarray(mine, np.int64)) for mine in owned], notes=(note,) if poor else ())


def alike(labels: npt.ArrayLike, parts: Sequence[Indices], held: npt.ArrayLike, *, seed: int = 0) -> list[Indices]:
    """Divide the samples of a test file in the proportions in which the clients have the classes.

    Of every class, a client gets the share of the test file's samples that it has of the divided samples, rounded;
    who would get none at all gets one of the client that has most of a class they share. Classes that nobody has are
    left out. Positions count through `labels` and then `held`, as in `Partition.tests`.
    """
    marks, tested = _labels(labels), _labels(held)
    kinds = int(max(marks.max(initial=0), tested.max(initial=0))) + 1
    have = np.stack([np.bincount(marks[part], minlength=kinds) for part in parts])
    stock = np.bincount(tested, minlength=kinds)
    ends = np.rint(np.cumsum(have, axis=0) / np.maximum(have.sum(axis=0), 1) * stock).astype(np.int64)
    take = np.diff(ends, axis=0, prepend=0)
    for poor in np.flatnonzero(take.sum(axis=1) == 0):
        rich, kind = np.unravel_index(np.argmax(take * (have[poor] > 0)), take.shape)
        if take[rich, kind] > 1:
            take[rich, kind] -= 1
            take[poor, kind] += 1
    stream = Streams(seed).numpy("test samples")
    return _deal([len(marks) + stream.permutation(np.flatnonzero(tested == kind)) for kind in range(kinds)], take)


def _seats(weights: Sequence[int], clients: int) -> Indices:
    """Clients of every group: one each, the others in proportion to the weights (Sainte-Lague)."""
    seats = np.ones(len(weights), np.int64)
    for _ in range(clients - len(weights)):
        seats[np.argmax(np.asarray(weights) / (2 * seats + 1))] += 1
    return seats


def _owners(kinds: Indices, groups: int, classes: Sequence[Sequence[int]] | None) -> Indices:
    """The group that each class dominates, ``[classes]``; -1 for none."""
    if classes is None:
        return np.repeat(np.arange(groups), [len(part) for part in np.array_split(np.arange(len(kinds)), groups)])
    owner = np.full(len(kinds), -1)
    for group, own in enumerate(classes):
        absent = np.setdiff1d(own, kinds)
        if len(absent):
            raise RequestError(f"data.split=practical: no sample of class {absent[0]}, which dominates group {group}")
        owner[np.isin(kinds, own)] = group
    return owner


def _deal(pools: Sequence[Indices], take: Indices) -> list[Indices]:
    """Everybody's samples, in order of the clients, ``take [clients, classes]`` from the pool of each class."""
    ends = np.cumsum(take, axis=0)
    starts = ends - take
    return [
        np.sort(np.concatenate([pool[a:b] for pool, a, b in zip(pools, first, last, strict=True)]))
        for first, last in zip(starts, ends, strict=True)
    ]


def _quotas(size: Indices, group: Indices, owner: Indices, dominant: float, rank: Indices, turn: Indices) -> Indices:
    """Samples of every class for every client, ``[clients, classes]``, as even as whole numbers allow.

    The odd samples of a client are of the classes that `rank` puts first, or that come next after `turn` others.
    """
    own = owner[None, :] == group[:, None]
    few = np.rint(dominant * size).astype(np.int64)
    few = np.where((~own).any(axis=1), few, size)  # one group: every class is its own
    quotas = np.zeros(own.shape, np.int64)
    for mask, total in ((own, few), (~own, size - few)):
        width = np.maximum(mask.sum(axis=1), 1)
        place = np.argsort(
            np.argsort(np.where(mask, rank, rank.shape[1]), axis=1, kind="stable"), axis=1, kind="stable"
        )
        odd = (total % width)[:, None]
        share = (total // width)[:, None] + ((place - turn[:, None] * odd) % width[:, None] < odd)
        quotas += np.where(mask, share, 0)
    return quotas


def _labels(labels: npt.ArrayLike) -> npt.NDArray[np.int64]:
    return np.asarray(labels).reshape(-1)


def _check_size(total: int, clients: int, min_samples: int) -> None:
    if clients < 1:
        raise RequestError(f"data.clients={clients}: must be at least 1")
    if clients > total:
        raise RequestError(f"data.clients={clients}: there are only {total} samples to divide")
    if clients * min_samples > total:
        raise RequestError(
            f"data.min_samples={min_samples}: {clients} clients need {clients * min_samples} samples, there are {total}"
        )
