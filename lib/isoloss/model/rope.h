// Computes the rotary position embedding: frequencies, YaRN, and the table of
// cosines and sines (docs/model.md, section 4).
#pragma once

#include <cstddef>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"

namespace isoloss::model {

/// Returns the frequency of each rotated pair, in radians per position, FP32.
///
/// f_i = theta^(-2i / dr), dr = qk_rope_head_dim, i < dr / 2. With YaRN and
/// factor > 1, slow pairs are divided by the factor: f_i becomes (f_i / factor)
/// ramp_i + f_i (1 - ramp_i) with ramp_i = clamp((i - low) / (high - low), 0,
/// 1).
std::vector<float> RopeFrequencies(const ModelConfig& config);

/// Holds cosine and sine of fl32(position * f_i), each rounded to FP32 once.
/// The table grows on demand; the values at a position never change.
class RopeTable {
 public:
  explicit RopeTable(const ModelConfig& config, Memory& memory = kHostMemory)
      : frequencies_(RopeFrequencies(config)), cos_(memory), sin_(memory) {}

  /// Makes the table hold at least `positions` rows.
  void Reach(size_t positions);

  /// Return tables of shape [positions, dr / 2].
  MatrixView<const float> cos() const { return cos_.view(); }
  MatrixView<const float> sin() const { return sin_.view(); }

 private:
  std::vector<float> frequencies_;
  Matrix<float> cos_;
  Matrix<float> sin_;
};

}  // namespace isoloss::model
