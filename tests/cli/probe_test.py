"""The oracle probe: its log, its table, what is refused."""

import h5py

from program import ProgramTest, INVALID, PASS, USAGE


class Probe(ProgramTest):
    def probe(self, *options):
        return self.run_isoloss("probe", self.tiny, "--case", "plain", "--steps", "2",
                                *options)

    def test_writes_a_log_and_says_what_it_found(self):
        result = self.probe("--arm", "mxfp8", "--out", "probes")

        self.assertEqual(result.returncode, PASS, result.stderr)
        header, plain, routing, path = result.stdout.splitlines()
        self.assertEqual(header.split()[:6],
                         ["case", "tensors", "elements", "flips", "expected", "other"])
        self.assertEqual(plain.split()[0], "plain")
        self.assertEqual(plain.split()[5], "0", "a correct arm has no others")
        self.assertEqual(routing, "routing      114 tokens, 0 flips, 0 other")
        self.assertTrue(path.startswith("probes/mxfp8-seed1.probe.h5 ("), path)
        with h5py.File(self.folder / "probes/mxfp8-seed1.probe.h5", "r") as log:
            self.assertEqual(log.attrs["arm"], "mxfp8")

    def test_takes_seed_and_reference(self):
        result = self.probe("--arm", "mxfp8", "--seed", "7", "--reference", "bf16",
                            "--reference-steps", "1,2", "--out", "more")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual([path.name for path in (self.folder / "more").iterdir()],
                         ["mxfp8-seed7.probe.h5"])

    def test_names_what_it_does_not_know(self):
        self.assert_refused(self.probe("--arm", "fp8"),
                            "Arms of this experiment: bf16, mxfp8.")
        self.assert_refused(self.run_isoloss("probe", self.tiny, "--case", "plane"),
                            "there is no case `plane`", "plain", "tails")
        self.assert_refused(self.probe("--arm", "bf16", "--reference", "mxfp8"), "mxfp8",
                            code=INVALID)

    def test_steps_must_be_positive(self):
        self.assertEqual(self.probe("--steps", "0").returncode, USAGE)
