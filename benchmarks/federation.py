"""What a federation costs: CPU seconds and memory per message and per node, measured on this machine.

    python benchmarks/federation.py --clients 6 --rounds 5

Starts a whole federation over TLS with authentication, as `panacea federate local` does, and reads /proc (Linux).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from panacea.cli.federating_setup import deploy_plan, federated_config
from panacea.deploy.deployment import ServerSettings
from panacea.deploy.flower_local import run_here
from panacea.deploy.plan import plan_from_data
from panacea.deploy.processes import free_port
from panacea.experiment.table import markdown_table

TICKS = os.sysconf("SC_CLK_TCK")
FORKS = "worker and its forks"
PART = {b"flower-superlink": "SuperLink", b"flower-superexec": "its SuperExec", b"flwr-serverapp": "run (ServerApp)",
        b"flower-supernode": "SuperNode", b"flower_worker": FORKS}  # fmt: skip


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
    """Remembers the largest values of every process, and those at the run's first round."""

    def __init__(self, folder: Path, deployment: Any) -> None:
        self.folder, self.deployment = folder, deployment
        self.most: dict[int, tuple[str, float, float]] = {}
        self.begun: dict[int, float] | None = None
        self.looked = 0.0

    def __call__(self, *_: object) -> None:
        if time.monotonic() < self.looked + 0.5:
            return
        self.looked = time.monotonic()
        for pid, (part, cpu, memory) in sample(self.folder).items():
            _, old_cpu, old_memory = self.most.get(pid, (part, 0.0, 0.0))
            self.most[pid] = part, max(cpu, old_cpu), max(memory, old_memory)
        if self.begun is None and self.deployment.read_run()["directory"]:
            self.begun = {pid: cpu for pid, (_, cpu, _) in self.most.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("keys", nargs="*", default=["data=fl60", "method=panacea"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        keys = [*given.keys, f"rounds={given.rounds}", "eval_every=100000", f"out={place}/runs"]
        plan = plan_from_data(federated_config(keys, given.clients))
        port = free_port()
        settings = ServerSettings(public=f"127.0.0.1:{port}", port=port)
        deployment = deploy_plan(Path(place) / "deployment", plan, settings)
        watch = Watch(deployment.folder, deployment)
        started = time.monotonic()
        run_here(deployment, watch)
        seconds = time.monotonic() - started
        cohort = min(5, int((~plan.roster.novel).sum()))
        messages = given.rounds * cohort + given.clients
    rows = []
    for part in PART.values():
        its = [(pid, cpu, memory) for pid, (name, cpu, memory) in watch.most.items() if name == part]
        start = sum((watch.begun or {}).get(pid, cpu) for pid, cpu, _ in its)
        spent = sum(cpu for _, cpu, _ in its)
        rows.append([
            part, str(len(its)), f"{start / max(len(its), 1):.2f}", f"{(spent - start) / messages:.3f}",
            f"{max((memory for *_, memory in its), default=0):.0f}",
        ])  # fmt: skip
    print(f"{given.clients} clients, {given.rounds} rounds, {plan.parameters} parameters, {messages} messages: "
          f"{seconds:.0f} s in all; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")  # fmt: skip
    header = ["process", "how many", "CPU s to start, each", "CPU s per message", "MiB each, at most"]
    print(markdown_table(header, rows), end="")


if __name__ == "__main__":
    main()
