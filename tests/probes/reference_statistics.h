// Statistics of a tensor by plain loops: a tensor is a list of blocks, and
// everything follows from the definitions of
// lib/isoloss/runlog/tensor_statistics.def, in 64 bits of significand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "isoloss/model/tap.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::probes {

struct Expected {
  long double value;
  long double bound;  ///< of the absolute difference; 0: exact
};
/// By index; those not in it are not defined.
using ExpectedStatistics = std::map<size_t, Expected>;

struct ReferenceStatistics {
  ExpectedStatistics values;
  std::vector<int32_t> bytes = std::vector<int32_t>(runlog::kScaleBytes);
  std::vector<int32_t> bytes_columnwise =
      std::vector<int32_t>(runlog::kScaleBytes);
};

/// `starts`: rows at which blocks down columns start anew.
ReferenceStatistics ReferenceOf(const model::Tensor& tensor,
                                const std::vector<size_t>& starts);

}  // namespace isoloss::probes
