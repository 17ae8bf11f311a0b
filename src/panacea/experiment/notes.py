"""What is warned of while runs train, told to the person who waits for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["warnings_as_notes"]


@contextmanager
def warnings_as_notes(note: Callable[[str], None]) -> Iterator[None]:
    """A `UserWarning` inside is a note, at once, and once for each place and text; other warnings are as before.

    What takes the note may warn in its turn, as `panacea.experiment.batch.Listener` does: that is heard outside.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        otherwise = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, UserWarning):
                warnings.showwarning = otherwise
                try:
                    note(str(message))
                finally:
                    warnings.showwarning = show
            else:
                otherwise(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
