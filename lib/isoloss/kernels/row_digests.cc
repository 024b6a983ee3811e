#include "isoloss/kernels/row_digests.h"

#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {

void RowDigests(MatrixView<const float> x, std::span<uint64_t> digests,
                Executor& executor) {
  RequireLength("RowDigests", "digests", digests.size(), x.rows());
  if (RanElsewhere(&RowDigests, x, digests, executor)) return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      uint64_t digest = 0;
      for (size_t j = 0; j < x.cols(); ++j) {
        digest += DigestOfElement(x(i, j), j);
      }
      digests[i] = digest;
    }
  });
}

}  // namespace isoloss::kernels
