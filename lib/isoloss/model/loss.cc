#include "isoloss/model/loss.h"

#include <algorithm>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::model {

size_t CountedLabels(std::span<const int32_t> labels) {
  return static_cast<size_t>(std::count_if(
      labels.begin(), labels.end(),
      [](int32_t label) { return label != kernels::kIgnoredLabel; }));
}

double LossSum(std::span<const float> token_losses) {
  const auto leaf = [&](size_t index) {
    const size_t begin = index * kernels::kTokenLeaf;
    const size_t end =
        std::min(token_losses.size(), begin + kernels::kTokenLeaf);
    double sum = 0.0;
    for (size_t t = begin; t < end; ++t) {
      sum += static_cast<double>(token_losses[t]);
    }
    return sum;
  };
  const size_t leaves =
      (token_losses.size() + kernels::kTokenLeaf - 1) / kernels::kTokenLeaf;
  return kernels::AlignedTreeSum(0, leaves, leaf);
}

}  // namespace isoloss::model
