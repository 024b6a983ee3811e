// Computes RMSNorm with a trained weight (docs/model.md, section 2).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "isoloss/base/matrix.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

class RmsNorm {
 public:
  RmsNorm(LayerContext& context, std::string_view parameter);

  /// Shapes   x, y [T, D]; x may be a window of a wider matrix.
  void Forward(MatrixView<const float> x, MatrixView<float> y);
  /// Overwrites the weight's gradient. Overwrites dx, too, unless `add` is set:
  /// then the result is added to dx, and the sum is rounded, too. A residual's
  /// input needs this, because the norm is a branch of it. `x` is as in
  /// Forward.
  void Backward(MatrixView<const float> x, MatrixView<const float> dy,
                MatrixView<float> dx, bool add = false);

 private:
  /// Fills gain_ with the values that multiply x.
  void ReadGain();
  std::span<const float> Gain() const { return {gain_.data(), gain_.cols()}; }

  LayerContext& context_;
  std::string name_;
  size_t parameter_;
  bool quantizes_gain_;
  Matrix<float> rstd_{context_.memory()};  // [1, T]
  // The last Forward rounded and quantised these gains, [1, D].
  Matrix<float> gain_{context_.memory()};
};

}  // namespace isoloss::model
