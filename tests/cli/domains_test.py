"""A wrong number in a sealed log and options that are no numbers never end in
exit code 0."""

import math

import numpy

from program import ProgramTest, FAIL, INVALID
from sealed_log import edited_log


# Dataset, value, exit code: what the gate once passed.
WRONG = (
    ("steps/nonfinite_gradients", 7, FAIL),
    ("steps/dead_experts", -5, INVALID),
    ("steps/tokens_per_second", math.nan, FAIL),
    ("moe/expert_bias", math.nan, FAIL),
    ("moe/router_entropy", math.nan, FAIL),
    ("moe/router_entropy", 99.0, FAIL),
    ("moe/tokens_per_expert", -7, INVALID),
    ("moe/tokens_per_expert", 1, INVALID),
    ("moe/dropped_tokens", 3, FAIL),
    ("events/unix_seconds", math.nan, INVALID),
)


# What the gate once passed if both logs lacked it or had it.
REMOVED = ("steps/nonfinite_gradients", "steps/tokens_seen",
           "steps/batch_digest", "steps/dead_experts", "steps/lr",
           "parameters/update_ratio", "moe/tokens_per_expert",
           "moe/dropped_tokens", "tensors/numel", "tensors/nonfinite_num",
           "tensors/digest", "tensors/e8m0_histogram")
ALIKE = (
    ("steps/lr", 0, FAIL),
    ("steps/lr", 0.5, FAIL),
    ("parameters/grad_norm", 1e300, FAIL),
    ("parameters/update_ratio", 1e300, FAIL),
    ("tensors/digest", 0, INVALID),
    ("tensors/signed_gain", 1e300, FAIL),
    ("tensors/cosine_columnwise", 0, FAIL),
    ("tensors/max_blockwise_dynamic_range", math.nan, FAIL),
    ("tensors/dynamic_range", 0, FAIL),
)


def first_number(data):
    """The place of a number that is neither NaN nor 0."""
    values = data[()]
    places = numpy.argwhere(numpy.isfinite(values) & (values != 0))
    return tuple(places[0])


class Domains(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")

    def test_no_wrong_number_of_a_log_passes(self):
        log = self.logs["mxfp8-seed1"]
        sound = log.read_bytes()
        for dataset, value, code in WRONG:
            with self.subTest(dataset=dataset, value=value):
                with edited_log(log) as file:
                    data = file[dataset]
                    data[(0,) * data.ndim] = value

                result = self.run_isoloss("gate", *self.logs.values(),
                                          "--out", "verdict")

                self.assertEqual(result.returncode, code, result.stdout)
                self.assertIn("/" + dataset, "".join((result.stdout + result.stderr).split()))
            log.write_bytes(sound)

    def judge_against_itself(self, log):
        return self.run_isoloss("gate", log, "--against", log,
                                "--out", "verdict")

    def test_what_both_sides_lack_or_have_does_not_pass_either(self):
        log = self.make_logs("full", "log.statistics_first=2",
                             "log.digests_first=2")["mxfp8-seed1"]
        sound = log.read_bytes()
        self.assertNotIn(self.judge_against_itself(log).returncode,
                         (FAIL, INVALID))
        for dataset in REMOVED:
            with self.subTest(removed=dataset):
                with edited_log(log) as file:
                    del file[dataset]

                result = self.judge_against_itself(log)

                self.assertEqual(result.returncode, INVALID, result.stdout)
                self.assertIn(f"/{dataset}ismissing",
                              "".join((result.stdout + result.stderr).split()))
            log.write_bytes(sound)
        for dataset, value, code in ALIKE:
            with self.subTest(dataset=dataset, value=value):
                with edited_log(log) as file:
                    file[dataset][first_number(file[dataset])] = value

                result = self.judge_against_itself(log)

                self.assertEqual(result.returncode, code, result.stdout)
            log.write_bytes(sound)

    def test_no_option_takes_what_is_no_number(self):
        a, b = (self.logs[name] for name in ("bf16-seed1", "mxfp8-seed1"))
        policy = self.write("policy.toml", "margin_percent = nan\n")
        for value in ("nan", "inf", "-inf", "-1", "x"):
            for command in (["compare", a, b, f"--tolerance={value}"],
                            ["watch", self.folder, f"--interval={value}"]):
                with self.subTest(command=command[0], value=value):
                    result = self.run_isoloss(*command)

                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn(value, result.stderr)
        for command in (["run", self.tiny, "--set", "train.lr=nan"],
                        ["gate", a, b, "--policy", policy]):
            with self.subTest(command=command[0]):
                result = self.run_isoloss(*command)

                self.assertEqual(result.returncode, INVALID, result.stderr)
                self.assertIn("nan", result.stderr)

