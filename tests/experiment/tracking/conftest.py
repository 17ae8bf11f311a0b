from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

_OWN = ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")
_LOOPBACK = ("127.0.0.1", "::1", "localhost", None, "")


@pytest.fixture(autouse=True)
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Hosts this process asked for; a test fails if any of them is not this machine."""
    for name in _OWN:
        monkeypatch.delenv(name, raising=False)
    hosts: list[object] = []
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host: Any, *given: Any, **named: Any) -> Any:
        hosts.append(host)
        return look_up(host, *given, **named)

    def connected(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            hosts.append(address[0])
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", connected)
    yield hosts
    assert [host for host in hosts if host not in _LOOPBACK] == []
