"""Three sites with their own arrays, a relation between two of them, and a network of one's own."""

import numpy as np
from torch import nn

import panacea as pn

generator = np.random.default_rng(0)
x = [generator.normal(size=(n, 4)) for n in (60, 40, 80)]
y = [
    (sample @ np.array([1.0, -1.0, 0.5, 0.0]) + shift > 0).astype(int)
    for sample, shift in zip(x, (0, 0.2, -1), strict=True)
]

fed = pn.Federation.from_arrays(x, y, edges=[("north", "south")], names=["north", "south", "east"])
network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
run = pn.train(fed, method="fedavg_ft", model=network, rounds=30, lr=0.1)

print(run)
print(run.clients[["name", "n_train", "metric"]])
print(run.model(2))
