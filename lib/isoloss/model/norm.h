// RMSNorm with a trained weight (docs/model.md, section 2).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

class RmsNorm {
 public:
  RmsNorm(LayerContext& context, std::string_view parameter);

  /// Shapes   x, y [T, D]; x may be a window of a wider matrix.
  void Forward(MatrixView<const float> x, MatrixView<float> y);
  /// Overwrites the weight's gradient, and dx unless its values are to be added
  /// to it: the gradient of a residual's input, of which the norm is a branch.
  /// Then the sum is rounded, too. `x` as in Forward.
  void Backward(MatrixView<const float> x, MatrixView<const float> dy,
                MatrixView<float> dx, bool add = false);

 private:
  /// Makes gain_ what multiplies.
  void ReadGain();
  std::span<const float> Gain() const { return {gain_.data(), gain_.cols()}; }

  LayerContext& context_;
  std::string name_;
  size_t parameter_;
  bool quantizes_gain_;
  std::vector<float> rstd_;
  // Of the last Forward, rounded and quantised, [1, D].
  Matrix<float> gain_{context_.memory()};
};

}  // namespace isoloss::model
