"""A run's bits are a function of the experiment, not of its execution."""

import resource
import subprocess
import unittest

import h5py

from program import ProgramTest, BINARY, INVALID, TINY, same_bits

ARMS = """\
[arms.mxfp8_hp]
recipe = "mxfp8_rceil_wgrad_with_hp"
[arms.fp32]
recipe = "fp32"
"""

# The other branches of the model, and widths of whole MX blocks.
BLOCKS = {
    "dim": 64, "n_heads": 3, "q_lora_rank": 32, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "dense_hidden_dim": 96, "moe_hidden_dim": 32, "num_experts": 8,
    "num_expert_groups": 4, "num_limited_groups": 2, "tied_embeddings": "true",
    "yarn": "true", "rope_factor": 40.0, "score_function": "softmax",
}

# glibc without the instructions that its functions are chosen by, under all
# names that its versions give them.
OLD_PROCESSOR = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(
    f"-{name}{suffix}" for name in ("FMA", "FMA4", "AVX2", "AVX512F", "ERMS")
    for suffix in ("", "_Usable"))}

# What surrounds a run without being part of it.
SURROUNDINGS = {
    "a processor without FMA": OLD_PROCESSOR,
    "memory full of 0x5a": {"GLIBC_TUNABLES": "glibc.malloc.perturb=165",
                            "MALLOC_PERTURB_": "165"},
    "the locale C": {"LC_ALL": "C"},
    "the locale C.UTF-8": {"LC_ALL": "C.UTF-8"},
    # Which a bare machine lacks; a name that isn't there must not matter either.
    "a locale with a decimal comma": {"LC_ALL": "de_DE.UTF-8"},
}

STACKS = {"1 MiB": 1 << 20, "64 MiB": 64 << 20,
          "as large as it may be": resource.getrlimit(resource.RLIMIT_STACK)[1]}


def supported_kernels():
    """Vector targets of this processor, as the program lists them."""
    result = subprocess.run(
        [BINARY, "--version"], capture_output=True, encoding="utf-8",
        env={"ISOLOSS_FORCE_KERNEL": "none"}, check=False)
    assert result.returncode == INVALID, result
    names = result.stderr.split(" runs ")[1].split(". ")[0].split(", ")
    assert names[-1] == "scalar", names
    return names


class Determinism(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tiny = cls.write("tiny.toml", TINY + ARMS)
        odd = ["train.steps=12", "log.eval_every=5", "log.statistics_every=3",
               "log.digests_every=3"]
        blocks = ["train.steps=2", "data.sequence_length=64",
                  "log.eval_sequences=2",
                  *(f"model.{key}={value}" for key, value in BLOCKS.items())]
        # Name of a shape: its settings and the logs of a plain execution.
        cls.shapes = {}
        for name, settings in (("odd", odd), ("blocks", blocks)):
            logs = cls.make_logs(f"{name}-plain", *settings,
                                 "parallel.workers=1")
            assert len(logs) == 8, logs  # 4 arms x 2 seeds
            cls.shapes[name] = (
                settings, {run: same_bits(log) for run, log in logs.items()})

    def assert_same(self, logs, expected):
        for run, log in logs.items():
            found = same_bits(log)
            self.assertEqual(found.keys(), expected[run].keys())
            for name, value in found.items():
                self.assertEqual(value, expected[run][name], f"{log}: {name}")

    def execute(self, shape, out, *settings, environment=None, arm=None,
                **options):
        all_settings = (*self.shapes[shape][0], *settings)
        result = self.run_isoloss(
            "run", self.tiny, "--out", out,
            *(f"--set={setting}" for setting in all_settings),
            *(["--arm", arm] if arm else []), environment=environment,
            **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {p.stem: p for p in (self.folder / out).glob("*.h5")}

    def test_arms_and_seeds_differ_so_equal_bits_mean_something(self):
        for _, logs in self.shapes.values():
            for key in ("steps/loss_nats", "steps/grad_norm", "eval/loss_nats",
                        "final_weights_digest"):
                values = [log[key] for log in logs.values()]
                self.assertEqual(len(set(values)), len(logs), key)

    def test_number_of_workers_and_neighbours_change_no_bit(self):
        for shape, (_, expected) in self.shapes.items():
            for workers in (1, 2, 3):
                with self.subTest(shape=shape, workers=workers):
                    logs = self.execute(shape, f"{shape}-workers{workers}",
                                        f"parallel.workers={workers}")

                    self.assertEqual(logs.keys(), expected.keys())
                    self.assert_same(logs, expected)

    def test_an_arm_alone_has_the_bits_it_has_beside_others(self):
        # A single run gets all workers as threads of one executor.
        for shape, (_, expected) in self.shapes.items():
            for arm in ("bf16", "mxfp8", "mxfp8_hp", "fp32"):
                for workers in (1, 2, 3):
                    with self.subTest(shape=shape, arm=arm, workers=workers):
                        logs = self.execute(
                            shape, f"{shape}-{arm}-alone{workers}",
                            "train.seeds=[2]", f"parallel.workers={workers}",
                            arm=arm)

                        self.assertEqual(list(logs), [f"{arm}-seed2"])
                        with h5py.File(logs[f"{arm}-seed2"]) as log:
                            self.assertEqual(log.attrs["workers"], workers)
                        # Which other seeds are trained is no part of a run.
                        self.assertEqual(same_bits(logs[f"{arm}-seed2"]),
                                         expected[f"{arm}-seed2"])

    def test_every_kernel_of_this_processor_gives_the_same_bits(self):
        # Each log names its kernel in EXECUTION, which same_bits leaves out.
        for shape, (_, expected) in self.shapes.items():
            for kernel in supported_kernels():
                with self.subTest(shape=shape, kernel=kernel):
                    logs = self.execute(
                        shape, f"{shape}-{kernel}",
                        environment={"ISOLOSS_FORCE_KERNEL": kernel})

                    self.assertEqual(logs.keys(), expected.keys())
                    for log in logs.values():
                        with h5py.File(log) as file:
                            self.assertEqual(file.attrs["cpu_target"], kernel)
                    self.assert_same(logs, expected)

    def test_processor_memory_and_locale_change_no_bit(self):
        shape, expected = "odd", self.shapes["odd"][1]
        for number, (name, environment) in enumerate(SURROUNDINGS.items()):
            for kernel in (supported_kernels()[0], "scalar"):
                with self.subTest(surroundings=name, kernel=kernel):
                    logs = self.execute(
                        shape, f"{shape}-{number}-{kernel}",
                        environment={**environment,
                                     "ISOLOSS_FORCE_KERNEL": kernel})

                    self.assertEqual(logs.keys(), expected.keys())
                    self.assert_same(logs, expected)

    def test_limits_of_the_stack_change_no_bit(self):
        shape, expected = "odd", self.shapes["odd"][1]
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        for name, limit in STACKS.items():
            with self.subTest(stack=name):
                logs = self.execute(
                    shape, f"{shape}-stack-{limit}",
                    preexec_fn=lambda limit=limit: resource.setrlimit(
                        resource.RLIMIT_STACK, (limit, hard)))

                self.assertEqual(logs.keys(), expected.keys())
                self.assert_same(logs, expected)


if __name__ == "__main__":
    unittest.main()
