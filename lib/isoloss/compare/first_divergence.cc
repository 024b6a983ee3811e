#include "isoloss/compare/first_divergence.h"

#include <algorithm>
#include <bit>

namespace isoloss::compare {

std::optional<size_t> FirstDifferentBits(std::span<const double> a,
                                         std::span<const double> b) {
  const size_t count = std::min(a.size(), b.size());
  for (size_t i = 0; i < count; ++i) {
    if (std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i])) {
      return i;
    }
  }
  return std::nullopt;
}

std::optional<Divergence> FirstDivergence(
    const runlog::StepColumns& baseline, const runlog::StepColumns& candidate) {
  const auto loss = FirstDifferentBits(baseline.loss_nats, candidate.loss_nats);
  const auto norm = FirstDifferentBits(baseline.grad_norm, candidate.grad_norm);
  if (loss.has_value() && (!norm.has_value() || *loss <= *norm)) {
    return Divergence{baseline.step.at(*loss), "loss_nats",
                      baseline.loss_nats[*loss], candidate.loss_nats[*loss]};
  }
  if (norm.has_value()) {
    return Divergence{baseline.step.at(*norm), "grad_norm",
                      baseline.grad_norm[*norm], candidate.grad_norm[*norm]};
  }
  return std::nullopt;
}

std::optional<Divergence> FirstDivergence(const runlog::RunLog& baseline,
                                          const runlog::RunLog& candidate) {
  if (auto found = FirstDivergence(baseline.steps, candidate.steps)) {
    return found;
  }
  const auto& a = baseline.eval;
  const auto& b = candidate.eval;
  const auto loss = FirstDifferentBits(a.loss_nats, b.loss_nats);
  if (!loss.has_value()) return std::nullopt;
  return Divergence{a.step.at(*loss), "held-out loss_nats", a.loss_nats[*loss],
                    b.loss_nats[*loss]};
}

}  // namespace isoloss::compare
