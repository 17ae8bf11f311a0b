"""FedCG: cluster-driven graph federated learning."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from panacea.core.aggregate import weighted_mean
from panacea.core.clusters import FirstUpdates, group_members
from panacea.core.local import Iterate, Local, Sgd
from panacea.core.method import Facts, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.random import Streams
from panacea.core.records import Tree, record
from panacea.core.store import ClientStore
from panacea.core.types import Batch, ClientIds, Cohort, Newcomers, Origin, Setting
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.methods.registry import method
from panacea.models.domain_graph import AdjacencyInit, AdjacencyKind, first_adjacency, similarity
from panacea.models.domain_network import DomainNetwork, Source, Standardise, averaged_means
from panacea.models.domains import DomainLayer, DomainPlan, WMode

__all__ = ["FedCg"]


class FedCgParameters(MethodParameters):
    """Hyper-parameters of FedCG."""

    domains: int = Field(4, ge=1, le=64, description="D, number of domains; the paper's final choice")
    layers: str = Field("last", min_length=1, description="which have domains: last (paper), all, or names joined by +")
    source: Source = Field(
        "teacher", description="who says a sample's domain: the teacher (paper), the client's known group, or k-means"
    )
    branch: Literal["residual", "specific_only", "separate_models"] = Field(
        "residual", description="eq. (4) of the paper; domains' layers alone; or a whole network per domain"
    )
    w_mode: WMode = Field("per_filter", description="W of whole layers (paper), bottleneck, per filter (ours), or none")
    bottleneck: int = Field(16, ge=1, description="w_mode=bottleneck: divides the features by this (paper, FEMNIST)")
    gcn_layers: int = Field(1, ge=1, le=8, description="graph convolutions; paper: 1 for CelebA, 2 for FEMNIST")
    adjacency: Literal["shared", "per_layer"] = Field(
        "shared", description="one A (the paper's formulas) or one per layer (its text)"
    )
    a_kind: AdjacencyKind = Field(
        "similarity", description="A by distance of domains' parameters (paper), all equal, or by bits of the group"
    )
    a_init: AdjacencyInit = Field("eye", description="A before the first aggregation; the paper's final choice")
    beta: float = Field(0.5, ge=0, le=1, description="beta, self-connection in A; the paper's value")
    out_relu: bool = Field(True, description="ReLU on the generated parameters; on in the paper's best rows")
    soft_test: bool = Field(True, description="mix domains by the student's probabilities at test; the paper's choice")
    lambda_init: float = Field(1.0, description="lambda_l at the start; ours, the paper ends at 0.3 and 2.1")
    learn_lambda: bool = Field(True, description="train lambda_l (paper), or keep it constant")
    student_lr: float = Field(1e-4, ge=0, description="learning rate of the student; the paper's value")
    teacher_every: int = Field(10, ge=1, description="T, rounds between teacher <- student; not in the paper, ours")
    standardise: Standardise = Field("off", description="level the teacher's scores over a batch or all clients; ours")
    weighting: Literal["samples", "uniform"] = Field("samples", description="see FedAvg; samples in the paper")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.a_kind == "hamming" and (self.source != "oracle" or self.domains & (self.domains - 1)):
            raise ValueError(
                f"a_kind=hamming compares the bits of known groups: it needs source=oracle and a power of two as "
                f"domains, not source={self.source} and domains={self.domains}"
            )
        if self.standardise != "off" and self.source != "teacher":
            raise ValueError(f"standardise={self.standardise} is for source=teacher; source={self.source} has none")
        return self


@record
class FedCgState:
    """The server's state.

    Attributes:
        params: ``[P]`` network, student and what is given (teacher, A).
        domains: ``[clients, D]`` known domain of each client, one-hot; None unless ``source=oracle``.
        first_updates: what k-means knows of the clients; None unless ``source=kmeans``.
    """

    params: Parameters
    domains: Tensor | None = None
    first_updates: FirstUpdates | None = None


@record
class FedCgCarry:
    """What a client trains: the network by the task's loss, the student by the teacher's labels; and what it saw."""

    network: Iterate
    student: Iterate
    seen: Tensor


@method("fedcg")
class FedCg(Method):
    r"""One model with branches for D domains that are found by clustering and linked by a graph convolution.

    Paper: Caldarola, Mancini, Galasso, Ciccone, Rodola, Caputo: Cluster-driven graph federated learning over multiple
    domains, CVPR workshops 2021 (arXiv 2104.14628).

    Network: in the chosen layers l, with ``w`` the weights of a sample's domains,
    ``z <- f(z; theta_a^l) + lambda_l * sum_d w_d f(z; Vhat^l_d)``, where ``Vhat^l = relu(A V^l W^l)``.
    In training w is one-hot, ``d = argmax teacher(x)``; at test ``w = softmax(student(x))``.
    Client k: K_c times, with ``theta = (theta_a, V, W, lambda)``, ``theta <- theta - eta * grad CE(y, f(x; theta))``
    and ``phi_s <- phi_s - student_lr * grad CE(d, student(x))``; sends theta and phi_s.
    Server: both ``<- sum_k (n_k / n) (.)_k``; then ``A_ii = beta`` and
    ``A_ij = (1 - beta) h_ij / sum_{d != i} h_id``, ``h_ij = 1 / (||V_i - V_j|| + 1e-8)``; every T rounds
    ``teacher <- student``.
    Evaluated: this one model, for participating, idle and novel clients alike: the student finds a sample's domains.

    Parameters:
        domains: D = 4 in the paper's final comparison.
        layers: ``last`` as there: the last convolution; ``all``: convolutions and batch normalisations (CelebA); where
            there are no convolutions: linear layers. Or layers' names joined by ``+``.
        source: ``teacher``; ``oracle``: the client's known group (Table 3), also at test; ``kmeans`` (Table 4): k-means
            over the directions of the clients' first updates, see below.
        branch: ``residual``; ``specific_only``: the chosen layers have no theta_a ("GCN" of Table 3);
            ``separate_models``: D whole networks, no graph ("domain-specific models").
        w_mode: W^l is q x q with q all parameters of a layer (``full``), through q / `bottleneck` (``bottleneck``),
            shared by the layer's filters, q then one filter with its bias (``per_filter``), or absent (``identity``).
            ``full`` is the paper's but has 85 million weights for a 32-32-3x3 convolution, hence the default.
        bottleneck, gcn_layers: 16 and 2 for FEMNIST, ``Vhat = relu(A relu(A V W_1) W_2)``; 1 for CelebA. One layer
            with a bottleneck is ``relu(A V W_1 W_2)``.
        adjacency: eqs. (5) and (6) have one A; the text speaks of a graph per layer.
        a_kind: also constant A: ``uniform``: 1/D; ``hamming``: h is one over the number of bits in which two groups
            differ, for groups numbered by D = 2^n combinations of n attributes.
        a_init, out_relu, soft_test: as in the paper's final comparison; soft_test off: the student's favourite.
        beta: the paper's 0.5 makes all of A 1/2 for D = 2, and so both domains the same; take another one there.
        lambda_init, learn_lambda: lambda_l starts at 1; the paper does not say.
        student_lr: 1e-4 as in the paper, without weight decay; momentum is the experiment's, clipping its own.
        teacher_every: T is not given in the paper.
        standardise: ours. A random teacher's favourite is mostly one and the same domain for all samples, and stays so.
            ``batch`` standardises its scores over a client's batch; ``federation`` takes off their mean over all
            clients, so that domains share the samples (2 D numbers more travel each way: means of teacher and student).
        weighting: see FedAvg.

    Reduces to: FedAvg, for theta_a, with lambda_init = 0 and learn_lambda off.

    Differences from the paper: those named above as ours; A is the identity until the first aggregation only; the
    branches start as fresh layers, W as the identity plus N(0, 1e-3). With ``oracle`` and ``kmeans`` there is no
    teacher: the client receives its domain (D numbers), imitated by the student, which decides where none is known.
    The paper's k-means is on models trained separately from the start; here a client's first upload minus what it
    received, scaled to length one, stands for it, so that no phase precedes training; clients not clustered yet train
    all domains equally.
    """

    facts: ClassVar[Facts] = Facts(
        "Caldarola et al., CVPR workshops", 2021, "theta_a, V, W, lambda, A, student, teacher", "nothing",
        "U", "U - 4P_given", "the same model: the student finds its domains",
    )  # fmt: skip
    parameter_model: ClassVar[type[MethodParameters]] = FedCgParameters
    parameters: FedCgParameters

    def enlarge(self, module: nn.Module, task: Task, streams: Streams) -> DomainNetwork:
        """The user's network with domains, student and teacher."""
        p = self.parameters
        plan = None
        if p.branch != "separate_models":
            kept = p.branch == "residual"
            shape = (p.w_mode, p.bottleneck, p.gcn_layers, p.out_relu)
            plan = DomainPlan(p.domains, *shape, residual=kept, balance=p.lambda_init, learn_balance=p.learn_lambda)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(streams.key("domains") >> 1)
            made = DomainNetwork(
                module, task.inputs, plan=plan, domains=p.domains, layers=p.layers, source=p.source,
                per_layer=p.adjacency == "per_layer", soft=p.soft_test, standardise=p.standardise,
            )  # fmt: skip
        self.layers = [name for name, part in made.named_modules() if isinstance(part, DomainLayer)]
        return made

    def bind(self, origin: Origin) -> None:
        """Where the parts of the network are in its vector."""
        sizes = dict.fromkeys(("network", "student", "seen", "given"), 0)
        for name, size in zip(origin.layout.names, origin.layout.sizes, strict=True):
            sizes[name.partition(".")[0]] += size
        self.sizes = list(sizes.values())
        self.network, self.student, self.sent = itertools.accumulate(self.sizes[:3])  # where each part ends

    def init_server(self, setting: Setting) -> FedCgState:
        """The network's initial values, A as asked for."""
        self.setting, p = setting, self.parameters
        self.bind(setting.origin)
        graphs = len(self.layers) if p.adjacency == "per_layer" else 1
        first = first_adjacency(p.a_kind, p.a_init, (graphs, p.domains), p.beta, setting.streams.torch("adjacency"))
        params = self._with_given(setting.initial, "adjacency", first.to(setting.initial).flatten())
        if p.source == "teacher":
            return FedCgState(params)
        if p.domains > (able := len(setting.train_ids)) and p.source == "kmeans":
            raise RequestError(f"method.domains={p.domains}: k-means has {able} training clients only")
        if p.source == "oracle":
            return FedCgState(params, group_members(setting.groups, p.domains, setting.initial))
        return FedCgState(params, None, FirstUpdates.none(len(setting.counts), p.domains, self.network, params))

    def _with_given(self, params: Tensor, name: str, value: Tensor) -> Tensor:
        """``params [..., P]`` with a part of ``given.*`` (if there is one of that name) replaced."""
        place = self.setting.layout.slices.get(f"given.{name}")
        if place is None:
            return params
        return torch.cat([params[..., : place.start], value, params[..., place.stop :]], dim=-1)

    def download(self, server: FedCgState, cohort: Cohort) -> Model:
        """Everything; with known domains, each client's own (all of them equally while it is not known)."""
        return Model(self._own(server, cohort.ids, 1 / self.parameters.domains))

    def _own(self, server: FedCgState, ids: ClientIds, unknown: float = 0.0) -> Parameters:
        """``[rows, P]``: the one model; with each client's known domain, where domains are not the teacher's affair."""
        params = server.params.expand(len(ids), -1)
        known = server.domains if server.first_updates is None else server.first_updates.members
        if known is None:
            return params
        known = torch.cat([known, torch.zeros_like(known[:1])])  # the last row is for a stranger
        own = known[torch.from_numpy(ids).clamp_max(len(known) - 1).to(known.device)]
        own = torch.where(own.sum(dim=1, keepdim=True) > 0, own, unknown)
        return self._with_given(params, "domain", own)

    def aggregate(self, server: FedCgState, uploads: Model, cohort: Cohort) -> FedCgState:
        """FedAvg of all that was trained; then A from V, and the teacher from the student every T rounds."""
        p, setting, old = self.parameters, self.setting, server.params
        trained = weighted_mean(uploads.params, cohort.weights(p.weighting))
        seen = averaged_means(old[self.student : self.sent], trained[self.student :], cohort.round, p.teacher_every)
        params = torch.cat([trained[: self.student], seen, old[self.sent :]])
        if p.a_kind == "similarity" and self.layers:
            parts = setting.layout.unflatten(params)
            nodes = [parts[f"{layer}.nodes"].flatten(1) for layer in self.layers]
            nodes = nodes if p.adjacency == "per_layer" else [torch.cat(nodes, dim=1)]
            params = self._with_given(params, "adjacency", torch.cat([similarity(v, p.beta).flatten() for v in nodes]))
        if p.source == "teacher" and cohort.round % p.teacher_every == 0:
            student, means = params[self.network : self.student], params[self.student : self.sent].chunk(2)[-1:]
            teacher = min(s.start for n, s in setting.layout.slices.items() if n.startswith("given.teacher."))
            after = params[teacher + len(student) :]
            params = torch.cat([params[: self.student], *means, *means, params[self.sent : teacher], student, after])
        if server.first_updates is None:
            return FedCgState(params, server.domains)
        moved = uploads.params[:, : self.network] - old[: self.network]
        return FedCgState(params, None, server.first_updates.add(torch.from_numpy(cohort.ids).to(moved.device), moved))

    def unchanged(self, downloads: Model, uploads: Model) -> Model:
        """What was sent, without what is only given."""
        return Model(downloads.params[..., : self.sent])

    def _student_sgd(self, local: Local) -> Sgd:
        return dataclasses.replace(local.sgd, lr=self.parameters.student_lr, weight_decay=0.0)

    def start(self, download: Model, client: None, local: Local) -> FedCgCarry:
        """Network and student as received, nothing seen."""
        network, student, seen, _ = download.params.split(self.sizes, dim=-1)
        return FedCgCarry(local.sgd.start(network), self._student_sgd(local).start(student), torch.zeros_like(seen))

    def step(
        self, carry: FedCgCarry, download: Model, client: None, batches: tuple[Batch, ...], local: Local
    ) -> FedCgCarry:
        """One gradient for both: their losses share no parameters. What was given stays as it is."""
        rest = download.params[..., self.student :]
        gradient = local.grad(torch.cat([carry.network.params, carry.student.params, rest], dim=-1), batches[0])
        network, student, seen, _ = gradient.split(self.sizes, dim=-1)
        imitating = self._student_sgd(local)(carry.student, student)
        return FedCgCarry(local.sgd(carry.network, network), imitating, carry.seen + seen)

    def finish(self, carry: FedCgCarry, download: Model, client: None, steps: int | Tensor) -> tuple[Tree, Tree]:
        """What was trained is sent, what was given is not; what was seen as the mean over the steps."""
        return Model(torch.cat([carry.network.params, carry.student.params, carry.seen / steps], dim=-1)), client

    def personal(self, server: FedCgState, clients: ClientStore, cohort: Cohort) -> Parameters:
        """The one model; with the client's known domain, if there is one."""
        return self._own(server, cohort.ids)

    def admit(self, server: FedCgState, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """The same model; the student finds the domains of a newcomer whose group is not known."""
        return self._own(server, newcomers.ids)

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing; its group, where groups are known."""
        return "group" if self.parameters.source == "oracle" else "nothing"

    def diagnostics(self, server: FedCgState, clients: ClientStore, train_ids: ClientIds) -> dict[str, float]:
        """lambda_l of every layer; the entries of A (the largest off its diagonal, if they are many)."""
        parts = self.setting.layout.unflatten(server.params)
        found = {
            layer.replace("network", "lambda", 1): float(parts[f"{layer}.balance"])
            for layer in self.layers
            if f"{layer}.balance" in parts
        }
        a, d = parts.get("given.adjacency"), self.parameters.domains
        if a is not None and d > 1:
            found["a_largest"] = float((a - a * torch.eye(d).to(a)).max())
        if a is not None and d <= 4 and len(a) == 1:
            found |= {f"a_{i}{j}": float(a[0, i, j]) for i in range(d) for j in range(d) if i != j}
        return found

    def observations(self, module: nn.Module, x: Tensor) -> dict[str, float]:
        """Entropy of the student's (and the teacher's) favourite domains, 1 for equal shares; how often they agree."""
        assert isinstance(module, DomainNetwork)
        return module.observations(x)
