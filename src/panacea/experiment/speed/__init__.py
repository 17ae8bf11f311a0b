"""How fast this installation is: `panacea bench`.

Workloads are in `workloads`, what they are measured against in `baselines` and `peers`, how in `measuring`; `engines`,
`growth` and `methods` are the three tables, `targets` what they should show.
"""

from __future__ import annotations

from panacea.experiment.speed.engines import Request, Row, measure_engines, planned_rounds
from panacea.experiment.speed.growth import CURVES, Curve, Plan, Point, measure_growth
from panacea.experiment.speed.measuring import one_thread
from panacea.experiment.speed.methods import WORKLOAD, MethodSpeed, measure_methods
from panacea.experiment.speed.peers import PEERS, Peers
from panacea.experiment.speed.result import OURS, Bench, tolerance_of
from panacea.experiment.speed.targets import Check, check_growth, check_rows
from panacea.experiment.speed.workloads import choose, find_workload

__all__ = [
    "CURVES",
    "OURS",
    "PEERS",
    "WORKLOAD",
    "Bench",
    "Check",
    "Curve",
    "MethodSpeed",
    "Peers",
    "Plan",
    "Point",
    "Request",
    "Row",
    "check_growth",
    "check_rows",
    "choose",
    "find_workload",
    "measure_engines",
    "measure_growth",
    "measure_methods",
    "one_thread",
    "planned_rounds",
    "tolerance_of",
]
