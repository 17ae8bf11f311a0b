"""The ClientApp: every message is an order, answered by `panacea.deploy.site.answer`."""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from panacea.deploy.flower_records import WRONG, nonce_of, order_of, reply_records
from panacea.deploy.orders import Failure
from panacea.deploy.site import answer, open_site

__all__ = ["SITE", "app"]

SITE = "PANACEA_SITE"
"""The environment variable that names the client's folder: set by its operator, never by the server."""

app = ClientApp()


@app.train()
def work(message: Message, context: Context) -> Message:
    """Do what the order asks."""
    site = open_site(Path(os.environ[SITE]))
    nonce = nonce_of(message.content)
    try:
        order = order_of(message.content)
    except WRONG as error:
        return Message(reply_records(Failure(f"this is no order: {error}"), site.name, nonce), reply_to=message)
    return Message(reply_records(answer(order, site), site.name, nonce), reply_to=message)


@app.query()
def who(message: Message, context: Context) -> Message:
    """The client's name, for a server without authentication: a try on one machine."""
    site = open_site(Path(os.environ[SITE]))
    return Message(RecordDict({"reply": ConfigRecord({"name": site.name})}), reply_to=message)
