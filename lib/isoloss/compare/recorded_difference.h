// Statistics that two logs of the same training disagree about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

struct RecordedDifference {
  std::string quantity;  ///< "update_ratio of layers.0.attention.wo.weight"
  int64_t step = 0;
  double baseline = 0;
  double candidate = 0;
};

/// The first statistic of /steps (expert load and gradients that are not
/// finite), /parameters, /tensors, /moe, the held-out sequences and the rows
/// (not the bytes) of /exchange, in this order, that two logs of bit-equal
/// training disagree about: what computed it has changed then, not the
/// training. Real numbers may differ by 1e-9 of the larger, sums and means
/// by that of the magnitudes summed, since mathematical libraries and orders of
/// summation differ. Digests are not compared: the sign of a zero or the
/// order of slots changes them.
/// Special  NaN equals NaN. Columns that only one log has, or that hold other
///          steps, names or extents, are not compared; nor rows that travelled
///          over another mesh.
std::optional<RecordedDifference> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

}  // namespace isoloss::compare
