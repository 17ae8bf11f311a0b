"""A SuperNode that is killed in the middle of its upload: ``python -m tests.network.dying_node MARK ...``.

As long as the file MARK is not there it is an honest one; then the first piece of a reply is sent, the file taken away,
and the process killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.supernode import start_client_internal as internal
from flwr.supernode.cli import flower_supernode


def main() -> None:
    mark, honest, alone = Path(sys.argv.pop(1)), internal.push_object_contents_from_iterable, threading.Lock()

    def half(contents: Any, push_object_fn: Callable[[str, bytes], None], **rest: Any) -> None:
        def push(number: str, content: bytes) -> None:
            with alone:  # pieces are sent by several threads: the second must not be under way
                push_object_fn(number, content)
                if mark.exists():
                    mark.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)

        honest(contents, push_object_fn=push, **rest)

    vars(internal).update(push_object_contents_from_iterable=half)
    flower_supernode()


if __name__ == "__main__":
    main()
