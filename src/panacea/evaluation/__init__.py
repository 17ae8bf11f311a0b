"""Scores per client and what they amount to."""

from panacea.evaluation.evaluate import Evaluation, evaluate_clients
from panacea.evaluation.metrics import mean, spread, worst_decile

__all__ = ["Evaluation", "evaluate_clients", "mean", "spread", "worst_decile"]
