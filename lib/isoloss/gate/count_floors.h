// How little a statistic of a small tensor may mean.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "isoloss/runlog/probe_log.h"

namespace isoloss::gate {

/// Floors that grow as tensors get small: a single element must not be as
/// significant as its tensor is small, such as one underflow where good runs
/// show none, or one update whose sign is in doubt.
class CountFloors {
 public:
  /// Knows no size: every floor is as given.
  CountFloors() = default;

  /// Counts the tensors, parameters and routers in the probe's case plain.
  explicit CountFloors(const runlog::ProbeLog& log);

  /// The larger of `floor` and of what one element does, `whole` / elements of
  /// tensor `subject` (or tokens of a router).
  double Floor(std::string_view subject, double floor, double whole) const;

 private:
  std::map<std::string, double, std::less<>> counts_;  // by subject
};

/// Returns the subject of a MoE layer's router.
std::string RouterSubject(int64_t layer);

}  // namespace isoloss::gate
