// Says how little a statistic of a small tensor may mean.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "isoloss/runlog/probe_log.h"

namespace isoloss::gate {

/// Holds floors that grow as tensors get small. Otherwise a single element of
/// a small tensor would look significant: one underflow where good runs show
/// none, or one update whose sign is in doubt.
class CountFloors {
 public:
  /// Knows no sizes, so that every floor stays as it is given.
  CountFloors() = default;

  /// Takes the sizes of tensors, parameters and routers from the probe's case
  /// plain.
  explicit CountFloors(const runlog::ProbeLog& log);

  /// Returns the larger of `floor` and the effect of one element, which is
  /// `whole` divided by the number of elements of tensor `subject` (or tokens
  /// of a router).
  double Floor(std::string_view subject, double floor, double whole) const;

 private:
  std::map<std::string, double, std::less<>> counts_;  // by subject
};

/// Returns the subject of a MoE layer's router.
std::string RouterSubject(int64_t layer);

}  // namespace isoloss::gate
