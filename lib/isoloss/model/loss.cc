#include "isoloss/model/loss.h"

#include <algorithm>
#include <vector>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::model {

size_t CountedLabels(std::span<const int32_t> labels) {
  return static_cast<size_t>(std::count_if(
      labels.begin(), labels.end(),
      [](int32_t label) { return label != kernels::kIgnoredLabel; }));
}

double MeanLoss(std::span<const float> token_losses, size_t counted_labels) {
  std::vector<double> leaves;
  for (size_t begin = 0; begin < token_losses.size();
       begin += kernels::kTokenLeaf) {
    double sum = 0.0;
    const size_t end =
        std::min(token_losses.size(), begin + kernels::kTokenLeaf);
    for (size_t t = begin; t < end; ++t) {
      sum += static_cast<double>(token_losses[t]);
    }
    leaves.push_back(sum);
  }
  return kernels::AlignedTreeSum(leaves.data(), leaves.size()) /
         static_cast<double>(counted_labels);
}

}  // namespace isoloss::model
