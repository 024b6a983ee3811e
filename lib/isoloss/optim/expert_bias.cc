#include "isoloss/optim/expert_bias.h"

#include <numeric>

#include "isoloss/base/error.h"

namespace isoloss::optim {

void UpdateExpertBias(std::span<const int64_t> tokens_per_expert, float rate,
                      std::span<float> bias) {
  if (tokens_per_expert.size() != bias.size()) {
    ThrowError(ErrorKind::kShape,
               "UpdateExpertBias: {} counts were given, but there are {} "
               "biases. Pass the counts of the same layer.",
               tokens_per_expert.size(), bias.size());
  }
  const auto experts = static_cast<int64_t>(bias.size());
  const int64_t total = std::accumulate(tokens_per_expert.begin(),
                                        tokens_per_expert.end(), int64_t{0});
  const auto sign = [&](size_t expert) {
    const int64_t scaled = tokens_per_expert[expert] * experts;
    return (scaled < total) - (scaled > total);
  };

  int sign_sum = 0;
  for (size_t e = 0; e < bias.size(); ++e) sign_sum += sign(e);
  const float mean =
      rate * static_cast<float>(sign_sum) / static_cast<float>(experts);
  for (size_t e = 0; e < bias.size(); ++e) {
    bias[e] += rate * static_cast<float>(sign(e)) - mean;
  }
}

}  // namespace isoloss::optim
