"""A GPU that is none, for what can be tried of code for GPUs where there is none.

A `GpuTensor` says that it is on `cuda:0` and computes on the CPU. Inside `stand_in()` whatever asks for CUDA gets such
tensors, and what a GPU would refuse is refused: operands on two devices, `.numpy()`, a look at values while a graph is
captured. Captured graphs are recorded, and replayed operation by operation (`graphs`); streams know what has happened
before what, so that a race is an error (`streams`); every time the host waits is counted. Results are a CPU's. What is
tried is where they are, who waits for whom, and what a graph keeps.

Not tried: how fast anything is, the last digits of a GPU's sums, its libraries, sparse tensors, generated code, and
where tensors are inside `torch.vmap`.
"""

from tests.gpu.standing_in import stand_in

__all__ = ["stand_in"]
