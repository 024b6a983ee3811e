"""All numbers of ranks, processes and workers, over mpirun; mpirun_test.py is the
short form."""

import unittest

from job import JobTest
from program import PASS


class FullMatrix(JobTest):
    def test_every_v_and_number_of_processes_gives_the_same_bits(self):
        """All recipes; V of 1 to 256, n of 1 to 8 that divides it, W."""
        expected = self.single(self.mesh, "single", "parallel.ranks=1")
        for ranks in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            for processes in (n for n in (1, 2, 4, 8) if n <= ranks):
                for workers in (1, 2, 5):
                    with self.subTest(ranks=ranks, processes=processes,
                                      workers=workers):
                        out = f"v{ranks}n{processes}w{workers}"
                        job = self.job(processes, "run", self.mesh, out,
                                       f"parallel.ranks={ranks}",
                                       f"parallel.workers={workers}")

                        self.assertEqual(job.returncode, PASS, job.stderr)
                        self.assert_same(out, expected, processes)


if __name__ == "__main__":
    unittest.main()
