"""Records PyTorch trainings as run logs and operation files of isoloss.

    with isoloss.record(model, optimizer, "run.h5", steps=1000, dump=[1, 100]) as recorder:
        for batch in batches:
            loss = train(batch)
            optimizer.step()
            recorder.step(loss, tokens=batch.numel())
"""

from .recorder import VERSION as __version__
from .recorder import Recorder, RecorderError, grouped_linear, linear, observe, record

__all__ = ["Recorder", "RecorderError", "grouped_linear", "linear", "observe", "record", "__version__"]
