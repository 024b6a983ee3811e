"""The parts of tools/dev/bench, in the order in which a run passes through them.

programs   builds and runs the programs of tests/bench; steps, memory, verify beside them
steps      our training step and PyTorch's in turn
machine    what it ran on
bars       the limits that a run is held to
tables     figures as Markdown
files      documents and the history on disk
history    one run beside another

Figures are {benchmark: {counter: value}}, with the names of the Google Benchmark programs, as in
figures["gemm/64x128x256"]["of_peak_bf16"].
"""


class BenchError(Exception):
    """The run can't go on; the text says where, what, the rule and the remedy."""
