"""Judges and reads logs of trainings, and records trainings of PyTorch.

    verdict = isoloss.gate(baseline=["bf16.csv"], candidate=["fp8.csv"], margin=0.25)
    verdict.passed, verdict.verdict

    isoloss.compare("a.h5", "b.h5").equal
    isoloss.read("run.h5").steps["loss"]

    with isoloss.record(model, optimizer, "run.h5", steps=1000, dump=[1, 100]) as recorder:
        for batch in batches:
            loss = train(batch)
            optimizer.step()
            recorder.step(loss, tokens=batch.numel())

gate and compare need the program alone; read needs numpy and h5py; record torch, h5py and xxhash.
"""

from importlib import import_module

_HOMES = {
    "judging": ("Comparison", "ProgramError", "Verdict", "compare", "gate"),
    "reading": ("Group", "Log", "Operations", "ReadError", "read"),
    "recorder": ("Recorder", "RecorderError"),
    "recording": ("grouped_linear", "linear", "observe", "record"),
}
# Parts that are used by their own names.
_MODULES = ("hugging_face", "lightning", "recorder")
_OTHERS = {"torch", "h5py", "numpy", "xxhash"}

__all__ = ["__version__", *(name for names in _HOMES.values() for name in names)]


def __getattr__(name):
    """Imports a part when it is asked for, so that each does without what others need."""
    if name == "__version__":
        return import_module(".version", __name__).VERSION
    home = name if name in _MODULES else next(
        (module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{home}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in _OTHERS:
            raise
        raise ImportError(f"isoloss.{name} needs {error.name}, which is not installed. Install it: "
                          "pip install torch h5py xxhash (the extra `record`)") from error
    return module if name == home else getattr(module, name)


def __dir__():
    return sorted({*globals(), *__all__})
