"""What a federation costs: CPU seconds and memory per message and per node, measured on this machine.

    python benchmarks/federation.py --clients 6 --rounds 5         one federation, by process
    python benchmarks/federation.py --clients 2,6,12 --rounds 3    how it grows with the number of clients

Starts a whole federation over TLS with authentication, as `panacea federate local` does, and reads /proc (Linux).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from panacea.cli.federating_setup import deploy_plan, federated_config
from panacea.core.files import read_lines
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.flower_local import run_here
from panacea.deploy.plan import Plan, plan_from_data
from panacea.deploy.processes import free_port
from panacea.experiment.table import markdown_table

TICKS = os.sysconf("SC_CLK_TCK")
LINK, EXEC, RUN, NODE, FORKS = "SuperLink", "its SuperExec", "run (ServerApp)", "SuperNode", "worker and its forks"
PART = {b"flower-superlink": LINK, b"flower-superexec": EXEC, b"flwr-serverapp": RUN, b"flower-supernode": NODE,
        b"flower_worker": FORKS}  # fmt: skip


def sample(folder: Path) -> dict[int, tuple[str, float, float]]:
    """By process of a deployment: what it is, CPU seconds with those of its dead children, and MiB that are its own."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            part = next((name for word, name in PART.items() if word in words), None)
            if part is None or str(folder).encode() not in (entry / "environ").read_bytes():
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if part == FORKS and b"flower_worker" in (Path("/proc") / fields[1] / "cmdline").read_bytes():
                continue  # a fork: its CPU seconds are its parent's when it has ended
            memory = (entry / "smaps_rollup").read_text()
        except OSError:
            continue
        pss = next(int(line.split()[1]) for line in memory.splitlines() if line.startswith("Pss:"))
        found[int(entry.name)] = (part, sum(map(int, fields[11:15])) / TICKS, pss / 1024)
    return found


class Watch:
    """Remembers the largest values of every process, and what all had used at the run's start and after each round."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.most: dict[int, tuple[str, float, float]] = {}
        self.begun: dict[int, float] | None = None
        self.rounds: list[tuple[float, dict[str, float]]] = []  # moment, and CPU seconds by part
        self.looked = 0.0

    def __call__(self, *_: object) -> None:
        if time.monotonic() < self.looked + 0.5:
            return
        self.looked = time.monotonic()
        for pid, (part, cpu, memory) in sample(self.deployment.folder).items():
            _, old_cpu, old_memory = self.most.get(pid, (part, 0.0, 0.0))
            self.most[pid] = part, max(cpu, old_cpu), max(memory, old_memory)
        directory = self.deployment.read_run()["directory"]
        if self.begun is None and directory:
            self.begun = {pid: cpu for pid, (_, cpu, _) in self.most.items()}
        if directory and len(read_lines(Path(directory) / "timings.jsonl")) > len(self.rounds):
            self.rounds.append((self.looked, {part: self.spent(part) for part in PART.values()}))

    def spent(self, part: str) -> float:
        """CPU seconds of all processes of a kind."""
        return sum(cpu for name, cpu, _ in self.most.values() if name == part)

    def memory(self, part: str) -> float:
        """MiB that one of them had at most."""
        return max((memory for name, _, memory in self.most.values() if name == part), default=0.0)

    def a_round(self, *parts: str) -> float:
        """CPU seconds of some kinds of processes in a round: from the end of the first to that of the last."""
        (_, first), (_, last) = self.rounds[0], self.rounds[-1]
        return sum(last[part] - first[part] for part in parts) / (len(self.rounds) - 1)

    @property
    def seconds(self) -> float:
        """Of a round, in the same way."""
        return (self.rounds[-1][0] - self.rounds[0][0]) / (len(self.rounds) - 1)


def run(keys: list[str], clients: int, rounds: int) -> tuple[Watch, Plan, float]:
    """A whole federation: what was seen of it, what it was, and the seconds it took."""
    with tempfile.TemporaryDirectory() as place:
        keys = [*keys, f"rounds={rounds}", "eval_every=100000", f"out={place}/runs"]
        plan = plan_from_data(federated_config(keys, clients))
        port = free_port()
        settings = ServerSettings(public=f"127.0.0.1:{port}", port=port, deadline=300, start=600)
        deployment = deploy_plan(Path(place) / "deployment", plan, settings)
        watch, started = Watch(deployment), time.monotonic()
        run_here(deployment, watch)
        return watch, plan, time.monotonic() - started


def machine() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def by_message(keys: list[str], clients: int, rounds: int) -> None:
    """The table of one federation, by process."""
    watch, plan, seconds = run(keys, clients, rounds)
    messages = rounds * min(5, int((~plan.roster.novel).sum())) + clients
    rows = []
    for part in PART.values():
        its = [(pid, cpu) for pid, (name, cpu, _) in watch.most.items() if name == part]
        start = sum((watch.begun or {}).get(pid, cpu) for pid, cpu in its)
        rows.append([
            part, str(len(its)), f"{start / max(len(its), 1):.2f}", f"{(watch.spent(part) - start) / messages:.3f}",
            f"{watch.memory(part):.0f}",
        ])  # fmt: skip
    print(f"{clients} clients, {rounds} rounds, {plan.parameters} parameters, {messages} messages: {seconds:.0f} s in "
          f"all; {machine()}")  # fmt: skip
    header = ["process", "how many", "CPU s to start, each", "CPU s per message", "MiB each, at most"]
    print(markdown_table(header, rows), end="")


def by_clients(keys: list[str], counts: list[int], rounds: int) -> None:
    """The table over the number of clients, all of which are asked in every round; the first round does not count."""
    rows = []
    for clients in counts:
        watch, plan, _ = run([*keys, "novel=0", f"cohort={clients}"], clients, rounds)
        server, client = watch.a_round(LINK, EXEC, RUN), watch.a_round(NODE, FORKS)
        rows.append([
            str(clients), f"{watch.seconds:.1f}", f"{server:.2f}", f"{server / clients:.2f}",
            f"{watch.a_round(LINK) / clients:.2f}",
            f"{watch.memory(LINK):.0f}", f"{watch.memory(RUN):.0f}", f"{client / clients:.2f}",
            f"{watch.memory(NODE) + watch.memory(FORKS):.0f}",
        ])  # fmt: skip
        print(f"{clients} clients, {rounds} rounds, {plan.parameters} parameters: {machine()}", flush=True)
    header = [
        "clients", "s a round", "server: CPU s a round", "per client", "of it SuperLink", "SuperLink MiB", "run MiB",
        "a client: CPU s a round", "MiB",
    ]  # fmt: skip
    print(markdown_table(header, rows), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="6", help="how many; several (2,6,12) give the table over their number")
    parser.add_argument("--rounds", type=int, default=5, help="at least 3 for the table over the number of clients")
    parser.add_argument("keys", nargs="*", default=["data=fl60", "method=panacea"])
    given = parser.parse_args()
    counts = [int(word) for word in given.clients.split(",")]
    if len(counts) == 1:
        by_message(given.keys, counts[0], given.rounds)
    elif given.rounds < 3:
        parser.error("--rounds: at least 3, as the first does not count")
    else:
        by_clients(given.keys, counts, given.rounds)


if __name__ == "__main__":
    main()
