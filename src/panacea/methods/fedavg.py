"""FedAvg, and FedAvg with local fine-tuning."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from panacea.core.aggregate import weighted_mean
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model
from panacea.core.parameters import Parameters
from panacea.core.records import record, unsent
from panacea.core.types import Cohort, Origin, Setting
from panacea.methods.registry import method

__all__ = ["FedAvg", "FedAvgBeside", "FedAvgFt", "StartedModel"]


class FedAvgParameters(MethodParameters):
    """Hyper-parameters of FedAvg."""

    weighting: Literal["samples", "uniform"] = Field(
        "samples", description="weight of client k in the mean: n_k / sum n (McMahan et al.), or 1/|S|"
    )


class FineTuneParameters(FedAvgParameters):
    """Hyper-parameters of FedAvg-FT."""

    tune_steps: int | None = Field(
        None, ge=1, description="fine-tuning steps; default: local_steps, one round's worth (the papers do not say)"
    )


@method("fedavg")
class FedAvg(Method):
    """One global model, the mean of the clients' locally trained copies.

    Paper: McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-efficient learning of deep networks from
    decentralized data, AISTATS 2017 (arXiv 1602.05629).

    Client k: ``w_k <- w``, then K_c times ``w_k <- w_k - eta * grad f_k(w_k; batch)``; sends ``w_k``.
    Server: ``w <- sum_{k in S} (n_k / sum_{j in S} n_j) w_k``.
    Evaluated: ``w``, for participating, idle and novel clients alike.

    Parameters:
        weighting: ``samples`` as in the paper's Algorithm 1; ``uniform`` for the plain mean many relatives use.

    Reduces to: plain SGD with one client; every global or fine-tuned relative reduces to it.

    Differences from the paper: local work is a number of steps with a fresh batch each (the protocol of Panacea and
    pFedHN), not epochs; set `local_epochs` for a number of steps in proportion to n_k.
    """

    facts: ClassVar[Facts] = Facts("McMahan et al., AISTATS", 2017, "w", "nothing", "U", "U", "the global model")
    parameter_model: ClassVar[type[MethodParameters]] = FedAvgParameters
    parameters: FedAvgParameters

    def aggregate(self, server: Model, uploads: Model, cohort: Cohort) -> Model:
        """``w <- sum_k weight_k w_k``."""
        return Model(weighted_mean(uploads.params, cohort.weights(self.parameters.weighting)))


@record
class StartedModel:
    """Server state and download: the global model, and the initial one, which every party makes from the seed."""

    params: Parameters
    initial: Parameters = unsent()


class FedAvgBeside(FedAvg):
    """Base of methods whose clients keep models of their own beside FedAvg's, begun at the common initial model."""

    def init_server(self, setting: Setting) -> StartedModel:
        """The initial model, twice."""
        return StartedModel(setting.initial, setting.initial)

    def template(self, origin: Origin, round: int) -> StartedModel:
        """The same."""
        return StartedModel(origin.initial, origin.initial)

    def download(self, server: StartedModel, cohort: Cohort) -> StartedModel:
        """The global model."""
        rows = len(cohort)
        return StartedModel(server.params.expand(rows, -1), server.initial.expand(rows, -1))

    def aggregate(self, server: StartedModel, uploads: Model, cohort: Cohort) -> StartedModel:  # type: ignore[override]
        """FedAvg's mean."""
        return StartedModel(super().aggregate(Model(server.params), uploads, cohort).params, server.initial)


@method("fedavg_ft")
class FedAvgFt(FedAvg):
    """FedAvg, after which every client fine-tunes its own copy of the global model.

    Paper: the baseline "FedAvg-FT" of Panacea and of FedAMP (Huang et al., AAAI 2021), after Yu, Bagdasaryan,
    Shmatikov: Salvaging federated learning by local adaptation (arXiv 2002.04758).

    Training: FedAvg. Evaluation: client i copies ``w`` and takes `tune_steps` steps
    ``w_i <- w_i - eta * grad f_i(w_i; batch)`` on its own train split; the copy is evaluated and thrown away, so that
    curves over rounds are those of the tuned model while training is untouched. Novel clients tune as well: unlike
    hypernetwork methods they need training data of their own.

    Parameters:
        weighting: see FedAvg.
        tune_steps: number of tuning steps; not stated in the papers, so one round's worth (K_c).

    Reduces to: FedAvg with the tuning rate at 0.

    Differences from the paper: none known; the number of steps is ours.
    """

    facts: ClassVar[Facts] = Facts("Yu et al., arXiv", 2020, "w", "nothing", "U", "U", "w tuned to its samples")
    parameter_model = FineTuneParameters
    parameters: FineTuneParameters

    def adapt(self) -> Adaptation:
        """Plain SGD from the global model."""
        return Adaptation(FedAvg(), self.parameters.tune_steps)
