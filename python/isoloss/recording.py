"""What a training loop calls: record(), and inside of it what tells of operations."""

from .recorder import Recorder, active


def record(model, optimizer, path, **options):
    """A context in which a training loop is recorded in the run log `path`.

    model       its linear layers are found by their type, or by `isoloss_type`; or
                a list of its parts, as stages of pipelines have several
    optimizer   or a list of several
    steps       planned number of steps; the log is complete with them
    dump        steps whose operations are written into a file each
    statistics  steps with statistics of tensors in the log
    digests     steps with digests of tensors in the log
    parameters  whether each parameter's gradient norm is logged: as the
                optimizer read it, or if step() is told the norm from before
                clipping, as it was then
    first_step  number of the first step, of a run that is resumed
    gradients   of plain tensors, as DTensors tell it themselves: "replicated" if
                all ranks have the same weights and gradients; "sharded" if each
                has its own part of all of them; or names of the parameters of
                which each rank has its own, while all share the others:
                ["*.experts.*"]. Default: "sharded" under FSDP1, else "replicated"
    rank, ranks default: those of torch.distributed
    data_rank, data_ranks  which part of the batch the rank's tokens are. Ranks of
                a group of tensor parallelism have the same. Default: as meshes of
                DTensors tell it, else rank and ranks
    stage       of a pipeline, from 0. Default: as the mesh tells it
    eager       whether steps with tensors run without torch.compile, so that layers
                within compiled regions are recorded. These steps then have the
                bits of eager PyTorch
    arm, seed   which side of a comparison the run is on, and which of its runs
                it is: the gate pairs runs of equal seeds. Default: the recipe's
                name, and the order in which the gate is given the logs
    recipe      of number formats; a name
    name        of this run, default: that of the file
    experiment  what the runs of all arms and seeds are part of
    config      text or dictionary of all settings but the recipe and the seed,
                equal for runs that may be compared
    expected    attributes of operations as they are configured, in place of what
                modules and optimizers say of themselves: {"router": {"top_k": 2}},
                or by patterns of names, of which the first counts: {"adamw":
                {"weight_decay": {"*norm*": 0.0, "*": 0.1}}}
    weights     whether digests of all weights before and after are logged,
                default: of up to 10^8 weights

    In it, call step() of what it returns after each optimizer step.
    """
    return Recorder(model, optimizer, path, **options)


def observe(kind, module, **values):
    """Recorder.observe of the recording that this is called in, if any."""
    if active:
        active[-1].observe(kind, module, **values)


def linear(name, function, x, weight, bias=None, dtype=None, operands=None):
    """Recorder.linear of the recording that this is called in; without one it
    calls the function."""
    if not active:
        return function(x, weight) if bias is None else function(x, weight, bias)
    return active[-1].linear(name, function, x, weight, bias, dtype, operands)


def grouped_linear(name, function, x, weight, group_ends, dtype=None, operands=None, experts=None):
    """Recorder.grouped_linear of the recording that this is called in; without
    one it calls the function."""
    if not active:
        return function(x, weight, group_ends)
    return active[-1].grouped_linear(name, function, x, weight, group_ends, dtype, operands,
                                      experts)
