#include "isoloss/optim/clip.h"

#include <cmath>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::optim {

double GlobalNorm(std::span<const Tensor> tensors, ThreadTeam& team) {
  const auto squares = [&](size_t tensor) {
    return kernels::SumOfSquares(tensors[tensor].gradient, team);
  };
  return std::sqrt(kernels::AlignedTreeSum(0, tensors.size(), squares));
}

double GlobalNorm(std::span<const double> squares) {
  return std::sqrt(kernels::AlignedTreeSum(squares.data(), squares.size()));
}

double ClipCoefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  // std::min would turn NaN into 1.
  return coefficient > 1.0 ? 1.0 : coefficient;
}

}  // namespace isoloss::optim
