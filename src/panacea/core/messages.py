"""Uploads as they come over a wire: one message per client, from anyone.

A message should be a mapping from the names of what a client sends (`named_leaves`; what is marked `unsent` does not
travel) to dense tensors or arrays. It is checked, in this order, before any value is used:

    1. it is a mapping                            4. each is of the expected type, nothing is converted
    2. its names are the expected ones            5. each has the expected shape
    3. each value is a plain tensor or array,     6. all values are finite and within `LIMIT` times the largest of
       dense, in the memory of a CPU or GPU          what the client was sent (at least 1)

A message that fails is replaced by what its client would have sent had it trained nothing; the first thing that is
wrong with it is the reason. Nothing a message holds raises an error here, and only one message at a time is copied.

The limit is not a defence against large updates (a defence compares lengths with those of others): it keeps the
server's arithmetic finite. A float32 holds up to 3e38, and the squares of 1e8 values of 1e10 sum to 1e28. Honest models
are far below: a weight above 1e10 has overflowed its network already.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from panacea.core.records import Tree, named_leaves, rebuild, tree_index, tree_map
from panacea.core.screening import LIMIT, NOT_FINITE
from panacea.core.types import Cohort

__all__ = ["deliver", "receive"]

_LONGEST = 80  # characters of a reason; some of them are a liar's
_SHOWN = 30  # characters of a name in it


def receive(messages: Sequence[object], template: Tree, cohort: Cohort) -> tuple[Tree, Tensor, dict[int, str]]:
    """Uploads from messages.

    Args:
        messages: one for each row of the cohort; None where there is none.
        template: ``[rows, ...]`` what the clients would have sent had they trained nothing (`Method.unchanged`).
        cohort: whose messages they are.

    Returns:
        Uploads ``[rows, ...]``, which of them are sound ``[rows, 1]``, and why the others are not, by client.
    """
    own = {name: leaf.clone(memory_format=torch.contiguous_format) for name, leaf in _sent(template)}
    sound, reasons = torch.ones_like(cohort.trust, dtype=torch.bool), {}
    for row, (client, message) in enumerate(zip(cohort.ids.tolist(), messages, strict=True)):
        try:
            values = _checked(message, {name: leaf[row] for name, leaf in own.items()})
        except _Refused as refused:
            reasons[client] = _short(str(refused))
        except Exception as error:  # a liar's object may raise anything from anywhere
            reasons[client] = _short(f"cannot be read: {type(error).__name__}")
        else:
            for name, value in values.items():
                own[name][row] = value
        sound[row] = client not in reasons
    everything = {**dict(named_leaves(template)), **own}
    return rebuild(template, everything), sound, reasons


def deliver(
    messages: Mapping[int, object], template: Tree, uploads: Tree, cohort: Cohort
) -> tuple[Tree, dict[int, str]]:
    """Uploads in which the rows of some clients are what their messages hold, and why a message could not be used.

    Args:
        messages: by client, of some of the cohort.
        template: as for `receive`.
        uploads: ``[rows, ...]`` of the whole cohort.
        cohort: whose they are.
    """
    if not messages:
        return uploads, {}
    rows = np.flatnonzero(np.isin(cohort.ids, list(messages)))
    place = torch.from_numpy(rows).to(cohort.trust.device)
    some = Cohort(cohort.ids[rows], cohort.counts[place], cohort.round, cohort.trust[place])
    read, _, reasons = receive([messages[client] for client in some.ids.tolist()], tree_index(template, place), some)
    return tree_map(lambda old, new: old.index_copy(0, place, new), uploads, read), reasons


class _Refused(Exception):  # noqa: N818  (not an error: an answer)
    """What is wrong with a message."""


def _sent(template: Tree) -> list[tuple[str, Tensor]]:
    return list(named_leaves(template, travelling=True))


def _checked(message: object, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of a message, checked against what is expected of it; nothing is copied but arrays."""
    if message is None:
        raise _Refused("no message")
    if not isinstance(message, Mapping):
        raise _Refused(f"a {_kind(message)}, not a mapping")
    names = list(itertools.islice(message, len(expected) + 1))  # a liar's mapping may have no end
    strange = next((name for name in names if type(name) is not str), None)
    if strange is not None:
        raise _Refused(f"a name is a {_kind(strange)}, not text")
    missing = [name for name in expected if name not in names]
    if missing:
        raise _Refused(f"no {_name(missing[0])}")
    extra = [name for name in names if name not in expected]
    if extra:
        raise _Refused(f"{_name(extra[0])} is not expected")
    given = {name: message[name] for name in expected}
    for name, value in given.items():
        wrong = _wrong_container(value) or _wrong_type(value, expected[name]) or _wrong_shape(value, expected[name])
        if wrong:
            raise _Refused(f"{_name(name)}: {wrong}")
    tensors = {name: _tensor(value, expected[name]) for name, value in given.items()}
    for name, tensor in tensors.items():
        wrong = _wrong_values(tensor, expected[name])
        if wrong:
            raise _Refused(f"{_name(name)}: {wrong}")
    return tensors


def _wrong_container(value: object) -> str | None:
    """Subclasses may do anything when touched, so their type is all that is looked at."""
    if type(value) is np.ndarray:
        return None
    if type(value) is not Tensor and type(value) is not nn.Parameter:
        return f"a {_kind(value)}, not a tensor"
    if value.is_nested or value.layout is not torch.strided or value.is_quantized:
        return "not a dense tensor"
    if value.device.type not in ("cpu", "cuda"):
        return f"on device {value.device.type}"
    reach = (
        1 + value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    )
    if value.numel() and reach * value.element_size() > value.untyped_storage().nbytes():
        return "without its values"
    return None


def _wrong_type(value: Tensor | np.ndarray, expected: Tensor) -> str | None:
    wanted, found = str(expected.dtype).removeprefix("torch."), str(value.dtype).removeprefix("torch.")
    return None if found == wanted else f"{found[:_SHOWN]} instead of {wanted}"


def _wrong_shape(value: Tensor | np.ndarray, expected: Tensor) -> str | None:
    found, wanted = list(value.shape), list(expected.shape)
    return None if found == wanted else f"shape {str(found)[:_SHOWN]} instead of {wanted}"


def _tensor(value: Tensor | np.ndarray, expected: Tensor) -> Tensor:
    """As a tensor without a history; an array may be read-only or backwards, which torch does not take."""
    tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    return tensor.to(expected.device)


def _wrong_values(value: Tensor, sent: Tensor) -> str | None:
    """The same limit as `panacea.core.screening.screen`."""
    if not value.numel():
        return None
    low, high = torch.aminmax(value)
    largest = max(-float(low), float(high))
    if not bool(torch.isfinite(low) & torch.isfinite(high)):  # NaN is passed on by both
        return NOT_FINITE
    allowed = LIMIT * max(1.0, float(sent.abs().max()))
    return None if largest <= allowed else f"{largest:.0e} is too large"


def _kind(value: object) -> str:
    return ascii(type(value).__name__)[1 : _SHOWN + 1].rstrip("'")


def _name(name: str) -> str:
    """A name as it can be logged: whatever characters it has."""
    return ascii(name)[1:-1][:_SHOWN]


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."
