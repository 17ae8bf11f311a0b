"""Published tables and figures, run again and put beside the paper's numbers."""

from __future__ import annotations

from panacea.experiment.reproduce.claims import Checked, check_claims
from panacea.experiment.reproduce.entry import Entry
from panacea.experiment.reproduce.library import entry_names, find_entry
from panacea.experiment.reproduce.plan import Plan, Request, make_plan, whereabouts
from panacea.experiment.reproduce.result import Cell, Reproduction, gather
from panacea.experiment.reproduce.verdict import judge, tolerance

__all__ = [
    "Cell", "Checked", "Entry", "Plan", "Reproduction", "Request", "check_claims", "entry_names", "find_entry",
    "gather", "judge", "make_plan", "tolerance", "whereabouts",
]  # fmt: skip
