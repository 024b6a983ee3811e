"""isoloss certifies recorded trainings: faults of a restart and of one operation are named."""

import json
import shutil
import subprocess
import unittest
import unittest.mock
import warnings

import torch
from torch import nn
from torch.nn import functional

import isoloss
from recorder_test import BINARY, Case

PASS, FAIL, INVALID, INCONCLUSIVE = 0, 1, 3, 4
TOKENS, WIDTH, EXPERTS, WORDS = 16, 24, 4, 11
STEPS, SAVED = 8, 4


class Model(nn.Module):
    """A layer, a dropout and a router with a bias."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.multiply = functional.linear

    def forward(self, tokens):
        hidden = functional.silu(self.up(self.embed(tokens)))
        hidden = isoloss.linear("down", self.multiply, hidden, self.down.weight)
        hidden = functional.dropout(hidden, 0.1)
        logits = self.gate(hidden)
        scores = logits.sigmoid()
        chosen = torch.topk(scores + self.bias, 2).indices
        weights = scores.gather(1, chosen)
        isoloss.observe("router", "router", logits=logits, scores=scores, bias=self.bias,
                        expert_ids=chosen, weights=weights, top_k=2, score_function="sigmoid",
                        normalize=0, scale=1.0)
        with torch.no_grad():
            load = torch.bincount(chosen.flatten(), minlength=EXPERTS)
            self.bias -= 0.05 * torch.sign(load - load.float().mean())
        return self.head(hidden * (weights * (chosen + 1)).sum(1, keepdim=True))


def in_halves(x, weight):
    half = x.shape[1] // 2
    return x[:, :half] @ weight[:, :half].T + x[:, half:] @ weight[:, half:].T


def at_random(x, weight):
    """As atomics add."""
    order = torch.randperm(x.shape[1])
    total = torch.zeros(len(x), len(weight))
    for k in order.tolist():
        total = total + x[:, k:k + 1] * weight[:, k]
    return total


class Certify(Case):
    def train(self, name, first=1, last=STEPS, checkpoint=None, lost=(), multiply=None, flip=None,
              updates=torch.optim.AdamW, **options):
        """Records a run and returns its log and its last state. `multiply` stands in for a product
        in step 6; before step `flip` the last bit of a weight flips."""
        torch.manual_seed(1)
        model = Model()
        optimizer = updates(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        data = torch.Generator().manual_seed(9)
        for part, load in (checkpoint or {}).items():
            if part in lost:
                continue
            {"model": model.load_state_dict, "moments": optimizer.load_state_dict,
             "rng": torch.set_rng_state, "schedule": schedule.load_state_dict,
             "data": data.set_state, "bias": model.bias.copy_}[part](load)
        if checkpoint:
            saved = checkpoint["moments"]["param_groups"][0]["lr"]
            optimizer.param_groups[0]["lr"] = 1e-2 if "schedule" in lost else saved
        path = self.folder / f"{name}.h5"
        with isoloss.record(model, optimizer, path, first_step=first, steps=STEPS, config="test",
                            seed=1, **options) as recorder:
            for step in range(first, last + 1):
                model.multiply = multiply if multiply and step == 6 else functional.linear
                if step == flip:
                    model.down.weight.data.view(torch.int32)[2, 3] ^= 1
                tokens = torch.randint(WORDS, (TOKENS + 1,), generator=data)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(tokens[:-1]), tokens[1:])
                loss.backward()
                optimizer.step()
                recorder.step(loss, tokens=TOKENS, batch=[tokens])
                schedule.step()
        state = {key: value for key, value in model.state_dict().items() if key != "bias"}
        return path, {"model": {**state, "bias": torch.zeros(EXPERTS)},
                      "moments": optimizer.state_dict(), "schedule": schedule.state_dict(),
                      "data": data.get_state(), "bias": model.bias.clone(),
                      "rng": torch.get_rng_state()}

    def certify(self, *arguments, code):
        done = subprocess.run([BINARY, "certify", *map(str, arguments), "--json"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def difference(self, *arguments):
        """The first one, and the kinds of its causes."""
        found = self.certify(*arguments, code=FAIL)["differences"][0]
        return found, [cause["kind"] for cause in found["causes"]]


class Repeat(Certify):
    def test_runs_are_certified_as_far_as_they_were_recorded(self):
        logs = [self.train(name, dump=[STEPS], digests=[2])[0] for name in ("a", "b")]
        bare = [self.train(name, weights=False)[0] for name in ("c", "d")]
        short = self.train("short", last=5)[0]

        found = self.certify("repeat", *logs, code=PASS)
        lacking = self.certify("repeat", *bare, code=INCONCLUSIVE)
        cut = self.certify("repeat", logs[0], short, code=INVALID)
        ended = self.certify("repeat", short, self.train("as_short", last=5)[0], code=INCONCLUSIVE)

        self.assertEqual(found["compared"]["operation_steps"], [STEPS])
        self.assertEqual(found["compared"]["tensor_steps"], [2])
        self.assertGreater(found["compared"]["operation_tensors"], 40)
        self.assertIn("nothing was recorded", lacking["lacking"][0])
        self.assertIn("5, 1 to 5", cut["invalid"][0])
        self.assertIn("did not end", ended["lacking"][0])

    def test_the_first_operation_that_differs_is_named_with_its_kind(self):
        dump = {"dump": [5, 6]}
        whole = self.train("whole", **dump)[0]
        for name, kind, options in (
                ("split", "split_of_k", {"multiply": in_halves}),
                ("atomics", "order_of_sums", {"multiply": at_random}),
                ("wrong", "wrong_result", {"multiply": lambda x, w: (x @ w.T) * 1.001}),
                ("flipped", "weights", {"flip": 6})):
            with self.subTest(name):
                other = self.train(name, **dump, **options)[0]

                found, kinds = self.difference("repeat", whole, other)

                self.assertEqual((found["step"], kinds[0]), (6, kind), found)
                self.assertEqual(found["operation"]["module"], "down")
                self.assertEqual(found["operation"]["what"],
                                 "input" if name == "flipped" else "result")

    def test_of_three_runs_the_one_that_parts_is_named_and_what_to_record(self):
        logs = [self.train(name)[0] for name in ("a", "b")]
        logs.append(self.train("c", multiply=at_random)[0])

        found = self.certify("repeat", *logs, code=FAIL)

        self.assertEqual([difference["run"] for difference in found["differences"]], ["run 3"])
        self.assertIn("dump=[", found["differences"][0]["next"])

    def test_all_ranks_are_needed_and_runs_of_other_ranks_are_invalid(self):
        logs = {}
        for name in ("a", "b"):
            for rank in range(2):
                self.train(name, rank=rank, ranks=2)
            logs[name] = [self.folder / f"{name}.rank-{rank}.h5" for rank in range(2)]
        alone = self.train("alone")[0]

        self.certify("repeat", *logs["a"], *logs["b"], code=PASS)
        part = self.certify("repeat", logs["a"][0], logs["b"][0], code=INCONCLUSIVE)
        other = self.certify("repeat", alone, *logs["a"], code=INVALID)

        self.assertIn("no log of rank 1", part["lacking"][0])
        self.assertIn("ranks 1 and 2", other["invalid"][0])

    def test_the_last_state_needs_parameters_of_all_ranks(self):
        digests = {"weights": False, "digests": [STEPS]}
        logs = {optimizer: [self.train(f"{name}_{optimizer.__name__}", updates=optimizer,
                                       **digests)[0]
                            for name in ("a", "b")]
                for optimizer in (torch.optim.AdamW, torch.optim.SGD)}
        ranks = []
        for name in ("a", "b"):
            for rank in range(2):
                self.train(name, rank=rank, ranks=2, weights=False, dump=[STEPS])
                ranks.append(self.folder / f"{name}.rank-{rank}.h5")

        self.certify("repeat", *logs[torch.optim.AdamW], code=PASS)
        self.certify("repeat", *ranks, code=PASS)
        for path in self.folder.glob("?.rank-1.operations-*.h5"):
            path.unlink()
        for runs in (logs[torch.optim.SGD], ranks):
            lacking = self.certify("repeat", *runs, code=INCONCLUSIVE)["lacking"]
            self.assertIn("nothing was recorded", lacking[0])

    def test_operations_of_another_run_show_no_last_state(self):
        logs = [self.train("a", weights=False, dump=[STEPS])[0], self.train("b", weights=False)[0]]
        shutil.copy(self.folder / f"a.rank-0.operations-{STEPS:06d}.h5",
                    self.folder / f"b.rank-0.operations-{STEPS:06d}.h5")

        found = self.certify("repeat", *logs, code=INCONCLUSIVE)

        self.assertIn("it says that it is of run `a`", " ".join(found["not_certified"]))

    def test_a_copied_file_of_operations_shows_no_last_state(self):
        logs = []
        for name in ("one", "two"):
            (self.folder / name).mkdir()
            logs.append(self.train(f"{name}/run", weights=False, dump=[STEPS])[0])
        self.certify("repeat", *logs, code=PASS)
        file = f"run.rank-0.operations-{STEPS:06d}.h5"
        shutil.copy(self.folder / "one" / file, self.folder / "two" / file)

        found = self.certify("repeat", *logs, code=INCONCLUSIVE)

        self.assertIn("one recording wrote both", " ".join(found["not_certified"]))

    def test_a_part_of_a_log_is_no_second_run(self):
        logs = []
        for last in (STEPS, 5):
            with unittest.mock.patch("isoloss.recorder.time.monotonic",
                                     side_effect=(1.7 ** i for i in range(99))):
                logs.append(self.train(f"run{last}", last=last)[0])

        found = self.certify("repeat", *logs, code=INVALID)

        self.assertIn("are one run", " ".join(found["invalid"]))

    def test_settings_are_those_of_all_ranks(self):
        logs = []
        for name, recipe in (("a", "bf16"), ("b", "fp32")):
            for rank in range(2):
                self.train(name, rank=rank, ranks=2, recipe=recipe if rank else "bf16")
                logs.append(self.folder / f"{name}.rank-{rank}.h5")

        found = self.certify("repeat", *logs, code=INVALID)

        self.assertIn("recipe `bf16` and `fp32`", " ".join(found["invalid"]))

    def test_values_that_are_no_numbers_certify_nothing(self):
        class Broken(Model):
            def forward(self, tokens):
                return super().forward(tokens) * float("nan")

        with unittest.mock.patch(f"{__name__}.Model", Broken):
            logs = [self.train(name)[0] for name in ("a", "b")]

        found = self.certify("repeat", *logs, code=INCONCLUSIVE)

        self.assertIn("The loss of step 1 is nan", " ".join(found["lacking"]))


class Restart(Certify):
    def setUp(self):
        super().setUp()
        self.dump = {"dump": [SAVED, SAVED + 1]}
        self.whole = self.train("whole", **self.dump)[0]
        self.before, self.checkpoint = self.train("before", last=SAVED)

    def resumed(self, name, *lost, checkpoint=None, **options):
        return self.train(name, first=SAVED + 1, checkpoint=checkpoint or self.checkpoint,
                          lost=lost, **options)[0]

    def test_a_resumed_run_is_certified(self):
        found = self.certify("restart", self.whole, self.before, self.resumed("resumed"), code=PASS)
        alone = self.certify("restart", self.whole, self.resumed("alone", **self.dump), code=PASS)

        self.assertEqual((found["restarts"], found["compared"]["steps"]), ([SAVED + 1], STEPS))
        self.assertTrue(found["compared"]["weights_at_restart"])
        self.assertTrue(alone["compared"]["states_at_restart"])
        self.assertEqual(alone["compared"]["steps"], STEPS - SAVED)

    def test_lost_state_is_named_by_logs_alone(self):
        for lost, kind, step, words in (
                ("moments", "moments", SAVED + 2, "moments"),
                ("schedule", "schedule", SAVED + 1, "began anew"),
                ("data", "data", SAVED + 1,
                 "of step 1 of the whole run: the order of the data began"),
                ("bias", "hidden_state", SAVED + 1, "biases of routers"),
                ("rng", "hidden_state", SAVED + 1, "random numbers")):
            with self.subTest(lost):
                found, kinds = self.difference("restart", self.whole, self.before,
                                               self.resumed(lost, lost))

                self.assertEqual((found["step"], kinds), (step, [kind]))
                self.assertIn(words, found["causes"][0]["text"])

    def test_lost_state_is_named_by_operations(self):
        model = {key: value.clone() for key, value in self.checkpoint["model"].items()}
        flipped = {**self.checkpoint, "model": model}
        model["down.weight"].view(torch.int32)[2, 3] ^= 1
        for lost, kinds, options in (("moments", ["moments", "step_counter"], {}),
                                     ("bias", ["router_bias"], {}), ("rng", ["random_numbers"], {}),
                                     ("weight", ["weights"], {"checkpoint": flipped})):
            with self.subTest(lost):
                resumed = self.resumed(lost, lost, **self.dump, **options)

                found, named = self.difference("restart", self.whole, self.before, resumed)

                self.assertEqual((found["step"], named), (SAVED + 1, kinds), found)

    def test_steps_that_no_part_has_are_no_certificate(self):
        late = self.train("late", last=6)[1]
        resumed = self.train("resumed", first=7, checkpoint=late)[0]

        found = self.certify("restart", self.whole, self.before, resumed, code=INCONCLUSIVE)

        self.assertIn("2 steps are in no part, from step 5 on", " ".join(found["lacking"]))


def setUpModule():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
