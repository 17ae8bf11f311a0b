"""Streams: the same numbers for ever, whoever asks, in whatever company."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from panacea.core.random import Streams, bits, mix, sample_batches, torch_uniform, uniform

GOLDEN = 0x9E3779B97F4A7C15
WORD = 2**64 - 1


def plain_mix(z: int) -> int:
    """SplitMix64's finaliser in plain integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def keys_of(count: int, seed: int = 0, purpose: str = "batches") -> np.ndarray:
    return Streams(seed).keys(purpose, 1, np.arange(count))


def signed(keys: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(keys.view(np.int64))


# --- keys -------------------------------------------------------------------------------------------------------


def test_keys_differ_by_every_part_of_the_name():
    names = itertools.product((0, 1, 2**40), ("train noise", "train batches 0", "train batches 1"), range(4), range(50))
    keys = [Streams(seed).key(purpose, round, client) for seed, purpose, round, client in names]
    assert len(set(keys)) == len(keys) == 3 * 3 * 4 * 50


def test_round_and_client_are_not_interchangeable():
    streams = Streams(3)
    assert streams.key("a", round=1, client=2) != streams.key("a", round=2, client=1)
    assert streams.key("a", round=5) != streams.key("a", client=5)


def test_vectorised_keys_equal_scalar_ones():
    streams = Streams(11)
    ids = np.array([0, 4, 3, 100_000, 2**31])
    together = streams.keys("noise", 6, ids)
    assert together.dtype == np.uint64
    assert together.tolist() == [streams.key("noise", 6, int(i)) for i in ids]


def test_any_integer_is_a_seed():
    keys = {Streams(seed).key("x") for seed in (-1, 0, 1, 2**63, 2**64 - 2)}
    assert len(keys) == 5
    assert Streams(-1).key("x") == Streams(2**64 - 1).key("x")  # two's complement


def test_generators_start_at_their_stream():
    a, b = Streams(1), Streams(2)
    assert (a.numpy("p", 1, 2).random(8) == Streams(1).numpy("p", 1, 2).random(8)).all()
    assert (a.numpy("p", 1, 2).random(8) != b.numpy("p", 1, 2).random(8)).all()
    draw = torch.rand(8, generator=a.torch("p", 1, 2))
    assert torch.equal(draw, torch.rand(8, generator=Streams(1).torch("p", 1, 2)))
    assert not torch.equal(draw, torch.rand(8, generator=a.torch("p", 1, 3)))


def test_a_subset_is_what_a_new_generator_chooses():
    """Whatever was drawn before, and also where a draw leaves half a word behind."""
    streams, among = Streams(5), np.arange(3, 60)
    for round in range(50):
        for size in (1, 5, 57):
            expected = Streams(5).numpy("cohort", round).choice(among, size, replace=False)
            assert (streams.subset("cohort", round, among, size) == expected).all()


def test_no_global_generator_is_touched():
    state, before = np.random.get_state()[1].copy(), torch.get_rng_state()
    streams = Streams(0)
    streams.numpy("a").random(3)
    torch.rand(3, generator=streams.torch("a"))
    sample_batches(keys_of(2), np.array([3, 100]), 4, 5)
    torch_uniform(signed(keys_of(2)), 10)
    assert (np.random.get_state()[1] == state).all()
    assert torch.equal(torch.get_rng_state(), before)


# --- words ------------------------------------------------------------------------------------------------------


def test_mix_is_splitmix64():
    """The first three outputs of the reference generator with state 0, and the plain-integer formula."""
    counters = [(i * GOLDEN) & WORD for i in (1, 2, 3)]
    found = mix(np.array(counters, np.uint64)).tolist()
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert found == [plain_mix(counter) for counter in counters]


def test_words_are_the_documented_hash():
    key = Streams(5).key("words")
    expected = [plain_mix(key ^ plain_mix((i * GOLDEN) & WORD)) for i in range(1, 6)]
    assert bits(np.array([key], np.uint64), 5)[0].tolist() == expected


def test_a_word_is_found_by_its_position():
    keys = keys_of(3)
    words = bits(keys, 20)
    assert words.shape == (3, 20)
    assert (bits(keys, 7, start=13) == words[:, 13:]).all()
    assert (bits(keys[1:2], 20) == words[1:2]).all()
    assert (bits(keys.reshape(3, 1), 4)[:, 0] == words[:, :4]).all()


def test_known_answers():
    """Frozen for ever: a change here changes every run that was ever made."""
    streams = Streams(7)
    assert streams.key("train batches 0", 3, 5) == 0x63041FCBD9428D90
    assert streams.key("cohort", 1) == 0x499CC85A6A8F9284
    assert Streams(0).key("x") == 0x061B53977D56ACD6
    keys = streams.keys("train batches 0", 3, [5, 6])
    assert bits(keys[:1], 3)[0].tolist() == [0xAFFCA06B095BF20A, 0xFD6E351CE5C24616, 0xDACC46C2104C066C]
    few = np.sort(sample_batches(keys, np.array([9, 9]), 2, 4), axis=-1)
    assert few.tolist() == [[[3, 5, 6, 7], [0, 3, 5, 7]], [[0, 3, 5, 8], [2, 3, 6, 7]]]
    many = np.sort(sample_batches(keys, np.array([100, 100]), 2, 7), axis=-1)
    assert many[:, 0].tolist() == [[25, 64, 65, 68, 84, 85, 98], [17, 33, 37, 43, 54, 77, 88]]
    assert many[:, 1].tolist() == [[14, 23, 36, 49, 63, 72, 96], [6, 24, 32, 37, 71, 74, 77]]
    edge = [np.sort(sample_batches(keys[:1], np.array([n]), 1, 7)[0, 0]).tolist() for n in (56, 57)]
    assert edge == [[12, 14, 20, 26, 47, 51, 55], [14, 36, 37, 39, 44, 48, 56]]  # the last sorted, the first drawn
    redrawn = sample_batches(keys[:1], np.array([100]), 40, 7)[:, 0]
    first = (uniform(keys[:1], 280).reshape(40, 7) * 100).astype(int)
    repeats = [t for t in range(40) if len(set(first[t])) < 7]
    assert redrawn[repeats[0]].tolist() == [89, 47, 60, 69, 50, 12, 0]
    assert redrawn[repeats[1]].tolist() == [36, 47, 87, 70, 49, 45, 11]
    assert streams.numpy("cohort", 1).integers(0, 1000, 4).tolist() == [917, 777, 911, 483]


def test_torch_uniform_is_numpy_uniform_cut_to_24_bits():
    keys = np.concatenate([keys_of(40), np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)])
    for start in (0, 17):
        expected = np.floor(uniform(keys, 300, start) * 2**24) / 2**24
        found = torch_uniform(signed(keys), 300, start)
        assert found.dtype == torch.float32
        assert (found.double().numpy() == expected).all()


def test_uniform_is_uniform_over_places_streams_and_bits():
    for values in (uniform(keys_of(1), 64_000)[0], uniform(keys_of(64_000), 1)[:, 0]):
        assert values.min() >= 0
        assert values.max() < 1
        counts = np.bincount((values * 64).astype(int), minlength=64)
        assert chi_square(counts) < 63 + 6 * np.sqrt(2 * 63)
    words = bits(keys_of(100), 640).ravel()
    shares = [float(((words >> np.uint64(place)) & np.uint64(1)).mean()) for place in range(64)]
    assert np.abs(np.array(shares) - 0.5).max() < 6 * 0.5 / np.sqrt(64_000)


def test_neighbouring_streams_are_unrelated():
    """Dropout uses key, key + 1, ... for the calls of a round."""
    key = keys_of(1)[0] >> np.uint64(1)
    draws = uniform(key + np.arange(50, dtype=np.uint64), 2_000)
    correlation = np.corrcoef(draws)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 6 / np.sqrt(2_000)


# --- batches ----------------------------------------------------------------------------------------------------

CASES = [(1, 1), (1, 7), (5, 7), (7, 7), (8, 7), (40, 7), (56, 7), (57, 7), (300, 7), (3000, 64), (9, 1)]


@pytest.mark.parametrize(("n", "batch"), CASES)
def test_a_batch_is_distinct_positions_of_the_client(n: int, batch: int):
    drawn = sample_batches(keys_of(6), np.full(6, n), 25, batch)
    assert drawn.dtype == np.int64
    assert drawn.shape == (25, 6, min(n, batch))
    assert drawn.min() >= 0
    assert drawn.max() < n
    ranked = np.sort(drawn, axis=-1)
    assert (ranked[..., 1:] != ranked[..., :-1]).all()
    if n > 2 * batch:  # nor are steps or rows copies of each other
        assert len({tuple(row) for row in ranked.reshape(-1, ranked.shape[-1])}) > 0.5 * min(150, n)


def test_rows_are_as_wide_as_the_widest_and_padded_with_zeros():
    counts = np.array([1, 3, 30, 2, 500])
    drawn = sample_batches(keys_of(5), counts, 10, 8)
    assert drawn.shape == (10, 5, 8)
    for row, n in enumerate(counts):
        size = min(8, n)
        assert (drawn[:, row, size:] == 0).all()
        assert all(len(set(step[:size])) == size for step in drawn[:, row])
        assert drawn[:, row, :size].max() < n
    assert sample_batches(keys_of(2), np.array([1, 3]), 10, 8).shape == (10, 2, 3)


@pytest.mark.parametrize("n", [1, 4, 7, 30, 56, 57, 100, 1000])
def test_a_row_does_not_see_the_others(n: int):
    """Alone, beside clients of other sizes, in another order: the same batches."""
    keys, batch = keys_of(40), 7
    alone = sample_batches(keys[20:21], np.array([n]), 12, batch)
    size = min(n, batch)
    others = np.random.default_rng(0).integers(1, 200, 40)
    others[20] = n
    among = sample_batches(keys, others, 12, batch)
    assert (among[:, 20, :size] == alone[:, 0]).all()
    backwards = sample_batches(keys[::-1], others[::-1], 12, batch)
    assert (backwards[:, 19, :size] == alone[:, 0]).all()
    same = sample_batches(keys, np.full(40, n), 12, batch)
    assert (same[:, 20] == alone[:, 0]).all()


@pytest.mark.parametrize("n", [3, 30, 57, 100])
def test_a_step_does_not_depend_on_how_many_follow(n: int):
    """A client with fewer steps than its block sees the batches it would see alone."""
    keys, counts = keys_of(20), np.full(20, n)
    long = sample_batches(keys, counts, 40, 7)
    for steps in (1, 3, 39):
        assert (sample_batches(keys, counts, steps, 7) == long[:steps]).all()


def drawn_by_hand(key: int, n: int, step: int, batch: int) -> list[int]:
    """Draw; then again and again, from the next stream, whatever equals a draw further left."""

    def draws(key: int) -> list[int]:
        words = (
            plain_mix(key ^ plain_mix((i * GOLDEN) & WORD)) for i in range(step * batch + 1, (step + 1) * batch + 1)
        )
        return [int((word >> 11) * 2.0**-53 * n) for word in words]

    found = draws(key)
    while len(set(found)) < batch:
        key = plain_mix(key ^ GOLDEN)
        fresh = draws(key)
        found = [fresh[i] if value in found[:i] else value for i, value in enumerate(found)]
    return found


def test_repeats_are_drawn_again_place_by_place():
    """Against plain integers and lists: the result hangs neither on a sorting algorithm nor on other steps."""
    n, batch, steps = 600, 64, 8
    keys = keys_of(3)
    found = sample_batches(keys, np.full(3, n), steps, batch)
    for row, key in enumerate(keys.tolist()):
        for step in range(steps):
            assert found[step, row].tolist() == drawn_by_hand(key, n, step, batch)


@pytest.mark.parametrize(("n", "batch"), [(10, 3), (20, 20), (60, 7), (25, 3)])
def test_every_sample_is_drawn_equally_often(n: int, batch: int):
    """Both branches: sorting words (n <= 8 batch) and drawing repeats again."""
    drawn = sample_batches(keys_of(200), np.full(200, n), 60, batch)
    counts = np.bincount(drawn.ravel(), minlength=n)
    if n == batch:
        assert (counts == 200 * 60).all()
    # without replacement the counts vary less than a multinomial's, so the bound is loose
    assert chi_square(counts) < (n - 1) + 6 * np.sqrt(2 * (n - 1))


@pytest.mark.parametrize("n", [40, 60])
def test_pairs_are_drawn_equally_often(n: int):
    """A biased treatment of repeats would favour some pairs."""
    drawn = np.sort(sample_batches(keys_of(300), np.full(300, n), 60, 7), axis=-1).reshape(-1, 7)
    counts = np.zeros((n, n))
    for a, b in itertools.combinations(range(7), 2):
        np.add.at(counts, (drawn[:, a], drawn[:, b]), 1)
    found = counts[np.triu_indices(n, 1)]
    cells = len(found)
    assert chi_square(found) < (cells - 1) + 6 * np.sqrt(2 * (cells - 1))


def test_the_first_and_the_last_place_see_every_sample_when_all_are_drawn():
    """A whole-client batch comes in random order."""
    drawn = sample_batches(keys_of(100), np.full(100, 6), 60, 6)
    for place in range(6):
        counts = np.bincount(drawn[..., place].ravel(), minlength=6)
        assert chi_square(counts) < 5 + 6 * np.sqrt(10)
