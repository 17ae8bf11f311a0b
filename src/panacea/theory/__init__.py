"""The theorems of the Panacea and FedAMP papers, each as printed and as corrected, checked numerically.

>>> from panacea.theory import STATEMENTS, check
>>> (finding,) = check(["theorem-3.3"], trials=2_000)
>>> finding.printed_holds, finding.holds
(False, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from panacea.errors import RequestError, unknown
from panacea.theory.absence import check_absence
from panacea.theory.fedamp import check_convex, check_smooth
from panacea.theory.lemma import check_lemma
from panacea.theory.optimum import check_optimum
from panacea.theory.ordering import check_ordering
from panacea.theory.recovery import check_recovery
from panacea.theory.statement import Finding, Row, Settings, Table

__all__ = ["STATEMENTS", "Finding", "Row", "Settings", "Table", "check", "chosen"]

STATEMENTS: dict[str, Callable[[Settings], Finding]] = {
    "theorem-3.1": check_optimum,
    "theorem-3.2": check_absence,
    "theorem-3.3": check_recovery,
    "lemma": check_lemma,
    "ordering": check_ordering,
    "fedamp-1": check_convex,
    "fedamp-2": check_smooth,
}


def chosen(names: Sequence[str], trials: int, seed: int, search: int) -> tuple[list[str], Settings]:
    """The statements to check (all where none is named) and how.

    Raises:
        RequestError: a name is unknown or given twice, or a number is out of range.
    """
    for name in names:
        if name not in STATEMENTS:
            raise unknown("statement", name, STATEMENTS)
    if len(set(names)) != len(names):
        raise RequestError(f"{' '.join(names)}: a statement is given twice")
    if trials < 100:
        raise RequestError(f"--trials {trials}: at least 100, or a standard error means little")
    if seed < 0:
        raise RequestError(f"--seed {seed}: a whole number from 0")
    if not 2 <= search <= 6:
        raise RequestError(f"--search {search}: from 2 to 6 clients (seven have two million graphs)")
    return list(names) or list(STATEMENTS), Settings(trials, seed, search)


def check(names: Sequence[str] = (), trials: int = 20_000, seed: int = 0, search: int = 5) -> Iterator[Finding]:
    """Check the named statements, or all of them, one after the other.

    Args:
        names: from `STATEMENTS`.
        trials: Monte-Carlo draws of every mean.
        seed: of all random numbers.
        search: graphs with up to so many clients are searched exhaustively.
    """
    wanted, settings = chosen(names, trials, seed, search)
    return (STATEMENTS[name](settings) for name in wanted)
