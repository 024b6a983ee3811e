"""Digests and statistics of the recorder, and codes of the example, against
isoloss' own, of tensors that it trained with and dumped."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np
import torch

from isoloss import tensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cli"), str(ROOT / "python/examples")]
import moe_mxfp8  # noqa: E402
from program import TINY  # noqa: E402


class OwnRuns(unittest.TestCase):
    def test_the_same_tensor_has_the_same_digest_statistics_and_codes(self):
        with tempfile.TemporaryDirectory(prefix="isoloss-recorder-") as name:
            folder = pathlib.Path(name)
            (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
            settings = ["train.seeds=[1]", "train.steps=2", "train.warmup_steps=1",
                        "log.statistics_every=2", "log.digests_every=2", 'log.dump_tensors=["_"]',
                        "log.dump_steps=[2]"]
            subprocess.run([os.environ["ISOLOSS_BINARY"], "run", folder / "tiny.toml", "--out",
                            folder / "out", "--arm", "mxfp8",
                            *(f"--set={setting}" for setting in settings)],
                           check=True, stdin=subprocess.DEVNULL, capture_output=True)
            compared = self.compare(folder / "out/mxfp8-seed1.h5",
                                    folder / "out/dumps/mxfp8-seed1.dump-000002.h5")
        self.assertGreater(compared["tensors"], 100)
        self.assertGreater(compared["codes"], 50)

    def compare(self, log_path, dump_path):
        with h5py.File(log_path) as log, h5py.File(dump_path) as dump:
            row = list(log["tensors/step"]).index(2)
            compared = {"tensors": 0, "codes": 0}
            for at, name in enumerate(log["tensors/names"].asstr()):
                if name.endswith("_expert_ids"):
                    continue
                compared["tensors"] += 1
                values = torch.from_numpy(dump[name]["values"][()])
                ends = torch.from_numpy(dump[name]["segment_ends"][()])
                # A sequence is no group of its own, but blocks begin anew in it.
                groups = ends if ".routed_experts." in name else None
                digest = tensors.finish_digest(tensors.digest_sum(values, groups))
                self.assertEqual(digest, log["tensors/digest"][row, at], name)
                found = tensors.statistics(tensors.moments(values, ends))
                for (statistic, _, _), value in zip(tensors.STATISTICS, found):
                    # Sums of 1024 elements are good to twice the bits of FP64, magnitudes to 2^-43.
                    np.testing.assert_allclose(
                        value, log[f"tensors/{statistic}"][row, at], rtol=2.0 ** -43,
                        err_msg=f"{name}: {statistic}")
                for direction, quantise in (
                        ("rowwise", moe_mxfp8.quantise),
                        ("columnwise",
                         lambda x, ends=ends: moe_mxfp8.quantise_down(x, ends.tolist()))):
                    if dump[name].attrs[f"format_{direction}"] != "e4m3":
                        continue
                    compared["codes"] += 1
                    found = quantise(values)
                    np.testing.assert_array_equal(found.scales, dump[name][f"scales_{direction}"],
                                                  name)
                    np.testing.assert_array_equal(found.codes, dump[name][f"codes_{direction}"],
                                                  name)
            return compared


if __name__ == "__main__":
    unittest.main()
