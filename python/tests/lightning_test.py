"""isoloss.lightning with the real library where it is installed, else with the
order of its hooks."""

import os
import pathlib
import sys
import tempfile
import types
import unittest
import warnings

import h5py
import numpy as np
import torch
from torch.nn import functional

try:
    import lightning.pytorch as library
    REAL = True
except ImportError:
    import lightning_stand_in as library
    sys.modules["lightning"] = types.ModuleType("lightning")
    sys.modules["lightning.pytorch"] = library
    REAL = False

import isoloss
from isoloss.lightning import Callback
from operation_check import wrong_of

DEVICE = {"cuda": "gpu"}.get(os.environ.get("ISOLOSS_TEST_DEVICE"), "cpu")
PARTS, STEPS, CLIP, LR = 2, 3, 0.1, 0.02
warnings.filterwarnings("ignore", module="lightning")


def batches(count):
    """Of several lengths, so that a mean of means is no mean over labels."""
    found = []
    for place in range(count):
        draw = torch.Generator().manual_seed(place)
        rows = 3 + place % 4
        found.append((torch.randn(rows, 8, generator=draw),
                      torch.randint(5, (rows,), generator=draw)))
    return found


class Module(library.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU(),
                                       torch.nn.Linear(6, 5))
        self.seen = []

    def loss(self, batch):
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.seen.append((loss.item(), len(batch[1])))
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=LR)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Manual(Module):
    """Accumulates by itself, and divides no loss by the number of parts."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss)
        if batch_idx % PARTS == PARTS - 1:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
        return loss


class Failing(Module):
    def training_step(self, batch, batch_idx):
        if batch_idx == PARTS * 2:
            raise OSError("no data")
        return super().training_step(batch, batch_idx)


class Lightning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-lightning-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "run.h5"

    def fit(self, module, callback=None, held_out=(), parts=PARTS, **settings):
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
                   "enable_model_summary": False, "accelerator": DEVICE,
                   "default_root_dir": self.folder} if REAL else {}
        trainer = library.Trainer(callbacks=[callback] if callback else [], max_steps=STEPS,
                                  accumulate_grad_batches=parts, **options, **settings)
        trainer.fit(module, *(torch.utils.data.DataLoader(found, batch_size=None)
                              for found in (batches(STEPS * PARTS), held_out) if found))

    def check(self, module):
        with h5py.File(self.path) as log:
            self.assertTrue(log.attrs["complete"])
            self.assertEqual(list(log["steps/step"]), list(range(1, STEPS + 1)))
            for step, loss in enumerate(log["steps/loss_nats"]):
                parts = module.seen[step * PARTS:(step + 1) * PARTS]
                labels = sum(count for _, count in parts)
                mean = sum(loss * count for loss, count in parts) / labels
                # A loss is divided by the number of parts, a power of two, and multiplied again.
                self.assertAlmostEqual(loss, mean, delta=2.0 ** -50 * mean)
            tokens = np.cumsum([count for _, count in module.seen])[PARTS - 1::PARTS]
            self.assertEqual(list(log["steps/tokens_seen"]), list(tokens))
            return list(log["steps/lr"]), list(log["steps/grad_norm"])

    def test_steps_of_automatic_optimization(self):
        plain, module = Module(), Module()
        self.fit(plain, gradient_clip_val=CLIP)
        self.fit(module, Callback(self.path, dump=[2]), gradient_clip_val=CLIP)
        for a, b in zip(plain.parameters(), module.parameters()):
            self.assertTrue(torch.equal(a, b))

        rates, norms = self.check(module)
        self.assertEqual(rates, [LR * 0.5 ** step for step in range(STEPS)])
        path = self.folder / "run.rank-0.operations-000002.h5"
        self.assertEqual(wrong_of(path), set())
        with h5py.File(path) as file:
            operations = list(file["operations"].values())
            self.assertEqual([op.attrs["type"] for op in operations],
                             ["linear"] * 2 * PARTS + ["adamw"] * 4)
            read = np.sqrt(sum((op["gradient"][()].astype(float) ** 2).sum() for op in operations
                               if op.attrs["type"] == "adamw"))
            # Clipped to CLIP with FP32 factors; the log has the norm from before.
            self.assertAlmostEqual(read, CLIP, delta=CLIP * 2.0 ** -18)
            self.assertGreater(norms[1], 1.1 * CLIP)

    def test_steps_of_manual_optimization(self):
        module = Manual()
        self.fit(module, Callback(self.path), parts=1)
        rates, _ = self.check(module)
        self.assertEqual(rates, [LR] * STEPS)

    def test_held_out_losses_are_those_that_were_logged(self):
        module = Module()
        held_out = batches(1)
        self.fit(module, Callback(self.path), held_out, val_check_interval=PARTS)
        with torch.no_grad():
            device = next(module.parameters()).device
            last = module.loss([part.to(device) for part in held_out[0]]).item()
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["eval/step"]), list(range(1, STEPS + 1)))
            self.assertEqual(log["eval/loss_nats"][-1], last)

    def test_an_exception_ends_the_log(self):
        with self.assertRaisesRegex(OSError, "no data"):
            self.fit(Failing(), Callback(self.path))
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["steps/step"]), [1, 2])
            self.assertFalse(log.attrs["complete"])
            self.assertEqual(log["events/text"].asstr()[-1], "OSError: no data")

    def test_labels_that_nobody_counts_are_asked_for(self):
        with self.assertRaisesRegex(isoloss.RecorderError, "Pass tokens="):
            self.fit(Module(), Callback(self.path, tokens=lambda batch: None))


if __name__ == "__main__":
    unittest.main()
