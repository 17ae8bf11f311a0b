"""`panacea compare --tune`: the search before the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from panacea.cli.progress import say
from panacea.cli.search_progress import SearchProgress
from panacea.experiment.search.tables import write_tables
from panacea.experiment.search.tuning import comparison_tuning, tune_methods, with_settings
from panacea.report.search_figure import write_search_figure

__all__ = ["tuned_keys"]


def tuned_keys(
    keys: Mapping[str, Any], trials: int, workers: int | None, cluster: str | None, *, quiet: bool
) -> tuple[dict[str, Any], str]:
    """The keys of a comparison with the chosen settings as its methods, and the words for its caption."""
    request = comparison_tuning(keys, trials)
    with SearchProgress(request, quiet) as progress:
        tuned = tune_methods(request, workers=workers, listener=progress, cluster=cluster)
    write_tables(tuned.found)
    note = write_search_figure(tuned.found)
    if not quiet:
        say(f"tuning: {request.folder}" + (f"; {note}" if note else ""))
    return with_settings(keys, tuned), tuned.caption
