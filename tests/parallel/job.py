"""Runs `isoloss` under the launcher that the environment variable MPI names."""

import os
import pathlib
import shutil
import subprocess
import unittest

import h5py

from program import BINARY, PASS, ProgramTest, same_bits

MPI = os.environ["MPI"]
MODULE = pathlib.Path(os.environ["MODULES"]) / f"isoloss_mpi_{MPI}.so"
LAUNCHER = shutil.which(f"mpirun.{MPI}")
OPTIONS = ["--oversubscribe"] if MPI == "openmpi" else []

# Every process gets a sequence, and whole leaves of 32 tokens and 1024 weights.
MESH = """\
name = "mesh"
[model]
vocab_size = 23
dim = 32
n_layers = 2
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 40
moe_hidden_dim = 32
num_experts = 256
num_shared_experts = 1
top_k = 4
[data]
source = "synthetic"
sequence_length = 32
noise_levels = 4
tokens = 4000
[train]
steps = 8
sequences_per_batch = 8
seeds = [1]
warmup_steps = 2
lr = 0.01
[log]
eval_every = 4
eval_sequences = 8
routing = true
[parallel]
ranks = 8
ranks_per_node = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
[arms.mxfp8_hp]
recipe = "mxfp8_rceil_wgrad_with_hp"
"""

# Rows are added up per rank and per node, and travel in the GEMM's format.
HIERARCHIES = """\
[arms.rank]
recipe = "mxfp8_rceil"
exchange = "rank"
[arms.node]
recipe = "mxfp8_rceil"
exchange = "node"
payload = "mx1x32"
[arms.titan]
recipe = "bf16"
exchange = "titan_bf16"
payload = "e4m3_1x128_fp32"
"""


@unittest.skipUnless(LAUNCHER, f"mpirun.{MPI} is not installed")
@unittest.skipUnless(MODULE.exists(), f"this build has no module for {MPI}")
class JobTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mesh = cls.write("mesh.toml", MESH)
        cls.hierarchies = cls.write("hierarchies.toml", MESH + HIERARCHIES)

    def command(self, processes, command, experiment, out, *settings,
                transport="mpi"):
        settings = (f"parallel.transport={transport}", "parallel.workers=1",
                    *settings)
        return [LAUNCHER, *OPTIONS, "-n", str(processes), str(BINARY), command,
                str(experiment), "--out", str(self.folder / out),
                *(f"--set={setting}" for setting in settings)]

    def environment(self):
        return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def job(self, *arguments, **options):
        return subprocess.run(
            self.command(*arguments, **options), env=self.environment(),
            cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", timeout=240, check=False)

    def files(self, out):
        folder = self.folder / out
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []

    def single(self, experiment, out, *settings):
        """Bits of all logs of a single process without MPI, by run."""
        result = self.run_isoloss(
            "run", experiment, "--out", out, "--set=parallel.transport=loop",
            *(f"--set={setting}" for setting in settings))
        self.assertEqual(result.returncode, PASS, result.stderr)
        return {path.stem: same_bits(path)
                for path in (self.folder / out).glob("*.h5")}

    def assert_same(self, out, expected, processes, other_mesh=False):
        """`other_mesh`: what says how ranks are cut, and what they exchanged, may differ."""
        def compared(content):
            return {name: value for name, value in content.items()
                    if not (other_mesh and name.startswith(("exchange", "rank", "expert_data")))}

        self.assertEqual(self.files(out), sorted(f"{run}.h5" for run in expected))
        for run, content in expected.items():
            path = self.folder / out / f"{run}.h5"
            with h5py.File(path) as log:
                self.assertEqual(log.attrs["transport"], "mpi")
                self.assertEqual(log.attrs["processes"], processes)
            found = compared(same_bits(path))
            content = compared(content)
            self.assertEqual(found.keys(), content.keys())
            for name, value in found.items():
                self.assertEqual(value, content[name], f"{path}: {name}")
