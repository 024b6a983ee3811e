"""isoloss.hugging_face with the real Trainer, and what accelerate wraps."""

import json
import math
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings

import h5py
import torch

import isoloss
from isoloss import run_log
from operation_check import wrong_of

try:
    import accelerate
    import transformers
    from isoloss.hugging_face import Callback
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BINARY = os.environ["ISOLOSS_BINARY"]
DEVICE = os.environ.get("ISOLOSS_TEST_DEVICE", "cpu")
VOCABULARY, LENGTH, IGNORED = 64, 12, -100
SEQUENCES, PARTS = 3, 2  # of a micro-batch, and micro-batches of a step


class Rows(torch.utils.data.Dataset):
    """Of which the beginnings are no labels, of other lengths each."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        tokens = torch.randint(VOCABULARY, (LENGTH,),
                               generator=torch.Generator().manual_seed(place))
        labels = tokens.clone()
        labels[:place % 5] = IGNORED
        return {"input_ids": tokens, "labels": labels}


def make_model():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=LENGTH,
        # Whose gradients have the same bits in each run on a GPU, too.
        attn_implementation="eager"))


def token_loss(outputs, labels, num_items_in_batch=None):
    """As a user's compute_loss_func."""
    logits, labels = outputs["logits"][:, :-1], labels[:, 1:]
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, VOCABULARY).float(), labels.reshape(-1), ignore_index=IGNORED,
        reduction="sum")
    return loss / num_items_in_batch


class Tuner(transformers.Trainer):
    """As TRL's, which reads the outputs of its base's compute_loss."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True,
                                             num_items_in_batch=num_items_in_batch)
        self.seen = outputs
        return (loss, outputs) if return_outputs else loss


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-hugging-face-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "run.h5"
        warnings.filterwarnings("ignore", "'pin_memory'")

    def train(self, callback=None, kind=transformers.Trainer, options=(), resume=None, **settings):
        settings = {"max_steps": 4, "bf16": True, "gradient_accumulation_steps": PARTS, **settings}
        arguments = transformers.TrainingArguments(
            self.folder / "out", use_cpu=DEVICE == "cpu", report_to=[], logging_steps=1,
            disable_tqdm=True,
            per_device_train_batch_size=SEQUENCES, learning_rate=1e-2, warmup_steps=2,
            max_grad_norm=0.5, **settings)
        trainer = kind(make_model(), arguments, train_dataset=Rows(64), eval_dataset=Rows(4),
                       callbacks=[callback] if callback else [], **dict(options))
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    def judge(self, path, code=0):
        done = subprocess.run([BINARY, "check-tensors", path, "--recipe", "bf16"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)


class Log(Case):
    def check_against(self, trainer, path=None, first=1):
        """That each step of the log is what the Trainer itself logged."""
        told = [row for row in trainer.state.log_history if "loss" in row and
                row["step"] >= first]
        with h5py.File(path or self.path) as log:
            self.assertTrue(log.attrs["complete"])
            steps = log["steps"]
            self.assertEqual(list(steps["step"]), [row["step"] for row in told])
            self.assertEqual(list(steps["lr"]), [row["learning_rate"] for row in told])
            for row, loss, norm in zip(told, steps["loss_nats"], steps["grad_norm"]):
                # The Trainer adds losses of micro-batches in FP32, each rounded to 2^-24, and may
                # print fewer digits than that.
                self.assertAlmostEqual(loss, row["loss"],
                                       delta=max(5e-5, loss * PARTS * 2.0 ** -24))
                self.assertEqual(norm, row["grad_norm"])
            return list(steps["tokens_seen"])

    def test_a_step_is_the_mean_over_labels_of_all_its_parts(self):
        seen = []

        def collate(rows):
            seen.append(sum(int((row["labels"][1:] != IGNORED).sum()) for row in rows))
            return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

        for name, kind, options, settings in (
                ("plain", transformers.Trainer, {}, {}),
                ("tuner", Tuner, {}, {"gradient_checkpointing": True}),
                ("function", transformers.Trainer, {"compute_loss_func": token_loss}, {}),
                ("smooth", transformers.Trainer, {}, {"label_smoothing_factor": 0.1})):
            with self.subTest(name):
                seen.clear()
                path = self.folder / f"{name}.h5"
                trainer = self.train(Callback(path), kind,
                                     {"data_collator": collate, **options}, **settings)
                tokens = self.check_against(trainer, path)
                parts = [sum(seen[i:i + PARTS]) for i in range(0, 4 * PARTS, PARTS)]
                self.assertEqual(tokens, [sum(parts[:i + 1]) for i in range(4)])
                self.assertNotIn("compute_loss", vars(trainer))
                self.assertNotIn("clip_grad_norm_", vars(trainer.accelerator))

    def test_recording_changes_no_bit_and_operations_are_right(self):
        trained = [self.train(callback).model.state_dict() for callback in
                   (None, Callback(self.path, dump=[1, 3], parameters=True))]

        for name, values in trained[0].items():
            self.assertTrue(torch.equal(values, trained[1][name]), name)
        path = self.folder / "run.rank-0.operations-000003.h5"
        self.assertEqual(wrong_of(path), set())
        self.judge(path)
        with h5py.File(path) as file:
            operations = list(file["operations"].values())
            products = [op.attrs["module"] for op in operations if op.attrs["type"] == "linear"]
            # Seven linear layers in each of two blocks, and the head.
            self.assertEqual(len(products), (7 * 2 + 1) * PARTS)
            self.assertTrue(all(op["x"].attrs["dtype"] == "bfloat16" for op in operations
                                if op.attrs["type"] == "linear"))
            updates = [op.attrs["module"] for op in operations if op.attrs["type"] == "adamw"]
            self.assertEqual(sorted(updates), sorted(name for name in trained[0]
                                                     if name != "lm_head.weight"
                                                     or name in updates))

    def test_held_out_losses_are_those_of_the_trainer(self):
        trainer = self.train(Callback(self.path), eval_strategy="steps", eval_steps=2,
                             eval_on_start=True)
        told = [(row["step"], row["eval_loss"]) for row in trainer.state.log_history
                if "eval_loss" in row]
        with h5py.File(self.path) as log:
            self.assertEqual(list(zip(log["eval/step"], log["eval/loss_nats"])), told)
            self.assertEqual([step for step, _ in told], [0, 2, 4])
        done = subprocess.run([BINARY, "show", self.path], text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_resumed_run_counts_on(self):
        self.train(max_steps=4, save_steps=2)
        trainer = self.train(Callback(self.path), resume=str(self.folder / "out/checkpoint-2"))
        self.check_against(trainer, first=3)


def train_rank(rank, port, folder):
    global DEVICE
    DEVICE = "cpu"  # of which there is one for each rank
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="1")
    case = Case()
    case.folder = folder
    trainer = case.train(Callback(folder / "run.h5"), ddp_backend="gloo")
    if rank == 0:
        (folder / "told.json").write_text(json.dumps(trainer.state.log_history))
    torch.distributed.destroy_process_group()


class Ranks(Case):
    def test_the_merged_loss_is_that_of_all_labels(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [multiprocessing.get_context("spawn").Process(
            target=train_rank, args=(rank, port, self.folder)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
            self.assertEqual(process.exitcode, 0)

        parts = [run_log.read_rows(self.folder / f"run.rank-{rank}.h5") for rank in range(2)]
        rows = [row for row in run_log.merge(parts) if row["row"] == "step"]
        told = [row for row in json.loads((self.folder / "told.json").read_text()) if "loss" in row]
        self.assertEqual(len(rows), 4)
        for row, found in zip(told, rows):
            # As of one process.
            self.assertAlmostEqual(found["loss"], row["loss"],
                                   delta=max(5e-5, row["loss"] * 2 * PARTS * 2.0 ** -24))
            self.assertEqual(found["grad_norm"], row["grad_norm"])
        self.assertNotEqual(parts[0][2]["tokens"], parts[1][2]["tokens"])


class Ends(Case):
    def test_an_exception_leaves_a_log(self):
        callback = Callback(self.path)

        def fail(rows):
            fail.calls += 1
            if fail.calls > 5:
                raise OSError("no data")
            return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

        fail.calls = 0
        with self.assertRaisesRegex(OSError, "no data"):
            self.train(callback, options={"data_collator": fail})
        # A notebook trains again: to another path, as a recording replaces none.
        with self.assertRaisesRegex(isoloss.RecorderError, "Record to another path"):
            self.train(callback)
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["steps/step"]), [1, 2])
            self.assertFalse(log.attrs["complete"])
            self.assertIn("abort", list(log["events/kind"].asstr()))

    def test_what_cannot_be_known_is_refused(self):
        callback = Callback(self.path)
        with self.assertRaisesRegex(isoloss.RecorderError, "Pass tokens="):
            self.train(callback, options={"data_collator": lambda rows: {
                "input_ids": torch.stack([row["input_ids"] for row in rows])},
                "compute_loss_func": lambda outputs, labels, num_items_in_batch=None:
                outputs["logits"].square().mean()}, remove_unused_columns=False)
        callback.on_train_end(None, None, None)
        with self.assertRaisesRegex(isoloss.RecorderError, "Pass the callback to a"):
            Callback(self.path).on_train_begin(None, None, None)


class Accelerate(Case):
    """Loops that call accelerate themselves."""

    def test_its_optimizer_is_that_which_it_wraps(self):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 4))
        model, optimizer = accelerator.prepare(
            model, torch.optim.AdamW(model.parameters(), lr=0.1))
        with isoloss.record(model, optimizer, self.path, dump=[1, 2]) as recorder:
            for step in range(2):
                for part in range(PARTS):
                    with accelerator.accumulate(model):
                        loss = model(torch.randn(5, 8)).square().mean()
                        accelerator.backward(loss)
                        optimizer.step()
                        optimizer.zero_grad()
                recorder.step(loss, tokens=5)
        for step in (1, 2):
            path = self.folder / f"run.rank-0.operations-{step:06d}.h5"
            self.assertEqual(wrong_of(path), set())
            with h5py.File(path) as file:
                self.assertEqual([op.attrs["type"] for op in file["operations"].values()],
                                 ["linear"] * PARTS + ["adamw"] * 2)
                self.assertEqual(file["operations/000002"].attrs["step"], step)

    def test_a_step_of_its_gradient_scaler_is_seen_once(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 4))
        accelerate.Accelerator(cpu=True)
        inner = torch.optim.AdamW(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
        optimizer = accelerate.optimizer.AcceleratedOptimizer(inner, scaler=scaler)
        with isoloss.record(model, optimizer, self.path, dump=[1, 2]) as recorder:
            for step in (1, 2):
                loss = model(torch.randn(5, 8)).square().mean()
                scaler.scale(loss * (math.inf if step == 2 else 1)).backward()
                scaler.unscale_(inner)
                optimizer.step()
                optimizer.zero_grad()
                self.assertEqual(optimizer.step_was_skipped, step == 2)
                recorder.step(loss, tokens=5, lr=0.1)
        self.assertEqual(wrong_of(self.folder / "run.rank-0.operations-000001.h5"), set())
        # The scaler of the second step called no step().
        for step, updates in ((1, 2), (2, 0)):
            with h5py.File(self.folder / f"run.rank-0.operations-{step:06d}.h5") as file:
                self.assertEqual([op.attrs["type"] for op in file["operations"].values()],
                                 ["linear"] + ["adamw"] * updates)


if __name__ == "__main__":
    unittest.main()
