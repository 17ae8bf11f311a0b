"""Replies from Flower's grid, each fetched by itself: one that is slow, endless or broken costs its sender alone.

Flower's own `Grid.pull_messages` fetches the pieces of one reply after those of another, for up to two hours, and puts
together whatever came. Here a look is one short request; pieces are fetched until a moment and up to a size. It uses
names that are private to flwr, which is pinned to one version for that reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects

from panacea.deploy.orders import Failure

__all__ = ["Arrived", "Parcel", "fetch", "look"]

_MOST_PIECES = 10_000  # of one reply
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 1.0  # seconds before asking again for a piece that is not there yet


@dataclass(frozen=True)
class Parcel:
    """A reply that was announced, and not yet fetched.

    Attributes:
        answers: the message that it answers, and `node`, who sent it: both by the SuperLink's own book.
        number: its own.
        tree: of its pieces.
    """

    answers: str
    node: int
    number: str
    tree: Any


@dataclass(frozen=True)
class Arrived:
    """A reply that is here. What `message` says of itself are its sender's words."""

    node: int
    message: Message


class _Unfit(Exception):  # noqa: N818  (not an error: an answer)
    """Why a reply is not fetched to its end."""


def look(grid: Any, numbers: Sequence[str]) -> list[Parcel]:
    """Replies to some messages that were announced since the last look; the SuperLink names each but once."""
    found = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=numbers))
    return [
        Parcel(said.metadata.reply_to_message_id, said.metadata.src_node_id, said.metadata.message_id, tree)
        for said, tree in zip(found.messages_list, found.message_object_trees, strict=True)
    ]


def fetch(grid: Any, parcel: Parcel, end: float, most: int) -> Arrived | Failure:
    """All of a reply; raises nothing, whatever was sent.

    Args:
        grid: Flower's.
        parcel: what to fetch.
        end: moment of `time.monotonic` to give up at.
        most: bytes it may have.
    """
    client = grid._runtime_client
    run = grid.run.run_id
    try:
        pieces = [piece.object_id for piece in iterate_object_tree(parcel.tree)]
        if len(pieces) > _MOST_PIECES:
            raise _Unfit(f"its reply has {len(pieces)} pieces, more than {_MOST_PIECES}")
        pull = _bounded(make_pull_object_fn_protobuf(client.PullObject, grid.node, run), end, most)
        contents = pull_objects(
            pieces, pull, max_time=max(0.0, end - time.monotonic()), initial_backoff=_FIRST_WAIT,
            backoff_cap=_LONGEST_WAIT,
        )  # fmt: skip
        if _unfolded(contents) > most:  # an array may name the same piece a million times
            raise _Unfit(f"its reply is larger than {most} bytes")
        message = inflate_object_from_contents(parcel.number, contents)
        if not isinstance(message, Message):
            raise _Unfit("its reply cannot be read")
        return Arrived(parcel.node, message)
    except _Unfit as unfit:
        return Failure(str(unfit))
    except Exception as error:  # whatever a stranger's bytes can raise
        late = time.monotonic() >= end
        return Failure("its reply was not complete in time" if late else f"its reply cannot be read ({_kind(error)})")
    finally:
        with suppress(Exception):  # the SuperLink forgets it, with all pieces
            client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=grid.node, run_id=run, message_object_id=parcel.number)
            )


def _kind(error: Exception) -> str:
    return type(error).__name__


def _bounded(pull: Callable[[str], bytes], end: float, most: int) -> Callable[[str], bytes]:
    """Fetches a piece, while there is time and the sum of all is not too much."""
    total = [0]

    def piece(number: str) -> bytes:
        if time.monotonic() >= end:
            raise _Unfit("its reply was not complete in time")
        content = pull(number)
        total[0] += len(content)
        if total[0] > most:
            raise _Unfit(f"its reply is larger than {most} bytes")
        return content

    return piece


def _unfolded(contents: Mapping[str, bytes]) -> int:
    """Bytes of all arrays as they will be put together."""
    total = 0
    for content in contents.values():
        if get_object_type_from_object_content(content) == Array.__qualname__:
            pieces = get_object_children_ids_from_object_content(content)
            order = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(contents[pieces[place]]) for place in order)
    return total
