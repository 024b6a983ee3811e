"""Records PyTorch trainings as run logs and operation files of isoloss.

    with isoloss.record(model, optimizer, "run.h5", steps=1000, dump=[1, 100]) as recorder:
        for batch in batches:
            loss = train(batch)
            optimizer.step()
            recorder.step(loss, tokens=batch.numel())
"""

from importlib import import_module

__all__ = ["Recorder", "RecorderError", "grouped_linear", "linear", "observe", "record", "__version__"]


def __getattr__(name):
    """Imports the recorder when it is asked for: `sick` does without its dependencies."""
    if name not in __all__ and name != "recorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    recorder = import_module(".recorder", __name__)
    if name == "recorder":
        return recorder
    return recorder.VERSION if name == "__version__" else getattr(recorder, name)
