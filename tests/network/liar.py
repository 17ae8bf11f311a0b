"""A client that lies, run as its worker: ``python -m tests.network.liar HOW ADDRESS PARENT``."""

from __future__ import annotations

import io
import os
import sys
import time
from dataclasses import replace

import numpy as np
from flwr.supernode.runtime import run_clientapp as clientapp

from panacea.deploy import flower_client, flower_worker
from panacea.deploy.orders import Failure, Order, Packed, Reply
from panacea.deploy.site import Site, answer


def packed(array: np.ndarray) -> Packed:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return Packed(str(array.dtype), array.shape, content.getvalue())


def lie(how: str, order: Order, site: Site) -> Reply | Failure:
    reply = answer(order, site)
    if "train" not in order.asks or isinstance(reply, Failure):
        return reply
    name = max(reply.arrays, key=lambda n: len(reply.arrays[n].data))
    old = reply.arrays[name]
    if how == "nan":
        return replace(reply, arrays={**reply.arrays, name: packed(np.full(old.shape, np.nan, np.float32))})
    if how == "shape":
        return replace(reply, arrays={**reply.arrays, name: packed(np.zeros((3, 3), np.float32))})
    if how == "hidden":  # the declared shape is right, that of the bytes is not
        content = packed(np.zeros(7, np.float32)).data
        return replace(reply, arrays={**reply.arrays, name: Packed(old.dtype, old.shape, content)})
    if how == "huge":
        return replace(reply, arrays={**reply.arrays, name: packed(np.zeros(50_000_000, np.float32))})
    if how == "garbage":
        return replace(reply, arrays={**reply.arrays, name: Packed(old.dtype, old.shape, b"\x80\x04garbage")})
    if how == "nothing":
        time.sleep(3600)
    if how == "dies":
        os._exit(3)
    raise AssertionError(how)


def withhold(*_: object, **__: object) -> None:
    time.sleep(3600)


def main() -> None:
    how, address, parent = sys.argv[1:]
    if how.startswith("name="):
        honest = flower_client.reply_records
        flower_client.reply_records = lambda reply, name, nonce: honest(reply, how[5:], nonce)
    elif how == "withheld":  # what the reply is made of is announced, and its pieces never come
        vars(clientapp).update(push_object_contents_from_iterable=withhold, push_objects=withhold)
    elif how != "honest":
        flower_client.answer = lambda order, site: lie(how, order, site)
    flower_worker.main(address, int(parent))


if __name__ == "__main__":
    main()
