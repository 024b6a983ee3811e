// Turns pairs as the tables of the rotary position embedding do, with FP32's
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/model/config.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle {

/// Returns the frequency of each rotated pair by the formulas of docs/model.md,
/// section 4. It is FP32 where the section says FP32.
std::vector<float> OracleRopeFrequencies(const model::ModelConfig& config);

/// Tabulates the turns of all pairs at all positions of a batch.
class Rotation {
 public:
  /// `positions` are not negative.
  Rotation(const model::ModelConfig& config,
           const std::vector<int32_t>& positions);

  size_t pairs() const { return frequencies_.size(); }

  /// Sets `y` to `x` turned by the angles of `position`, or back, without
  /// rounding.
  /// Shapes   x, y [2 * pairs]; other memory.
  void Turn(int32_t position, bool inverse, const Estimate* x,
            Estimate* y) const;

 private:
  struct Entry {
    Estimate cos;
    Estimate sin;
  };

  std::vector<float> frequencies_;
  std::vector<Entry> entries_;  // [positions * pairs]
};

}  // namespace isoloss::oracle
