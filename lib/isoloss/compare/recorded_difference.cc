#include "isoloss/compare/recorded_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

namespace isoloss::compare {
namespace {

constexpr double kTolerance = 1e-9;

template <typename T>
bool Agree(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::fabs(a - b) <=
                         kTolerance * std::max(std::fabs(a), std::fabs(b));
  } else {
    return a == b;
  }
}

/// How the values of one group of columns are laid out: [steps, values].
struct Layout {
  const std::vector<int64_t>& steps;
  /// What value number i of a step belongs to: " of lm_head.weight".
  std::function<std::string(size_t)> of;
};

/// Keeps the first difference that it meets.
class Search {
 public:
  template <typename T>
  void Column(const char* name, const Layout& layout, const std::vector<T>& a,
              const std::vector<T>& b) {
    if (found_ || a.size() != b.size() || layout.steps.empty()) return;
    const size_t per_step = a.size() / layout.steps.size();
    for (size_t i = 0; i < a.size(); ++i) {
      if (Agree(a[i], b[i])) continue;
      found_ = {fmt::format("{}{}", name, layout.of(i % per_step)),
                layout.steps[i / per_step], static_cast<double>(a[i]),
                static_cast<double>(b[i])};
      return;
    }
  }
  const std::optional<RecordedDifference>& found() const { return found_; }

 private:
  std::optional<RecordedDifference> found_;
};

void Parameters(const runlog::ParameterColumns& a,
                const runlog::ParameterColumns& b, Search& search) {
  if (a.step != b.step || a.names != b.names) return;
  const Layout layout = {
      a.step, [&](size_t i) { return fmt::format(" of {}", a.names[i]); }};
  search.Column("grad_norm", layout, a.grad_norm, b.grad_norm);
  search.Column("update_ratio", layout, a.update_ratio, b.update_ratio);
}

void Tensors(const runlog::TensorColumns& a, const runlog::TensorColumns& b,
             Search& search) {
  if (a.step != b.step || a.names != b.names) return;
  const Layout layout = {
      a.step, [&](size_t i) { return fmt::format(" of {}", a.names[i]); }};
  search.Column("digest", layout, a.digest, b.digest);
  for (size_t k = 0; k < runlog::kTensorStatisticCount; ++k) {
    search.Column(runlog::kTensorStatistics[k].name, layout, a.statistics[k],
                  b.statistics[k]);
  }
  const Layout histograms = {
      a.step, [&](size_t i) {
        return fmt::format(" of {}, byte {}", a.names[i / runlog::kScaleBytes],
                           i % runlog::kScaleBytes);
      }};
  search.Column("e8m0_histogram", histograms, a.e8m0_histogram,
                b.e8m0_histogram);
  search.Column("e8m0_histogram_columnwise", histograms,
                a.e8m0_histogram_columnwise, b.e8m0_histogram_columnwise);
}

void Experts(const runlog::MoeColumns& a, const runlog::MoeColumns& b,
             Search& search) {
  if (a.step != b.step || a.layers != b.layers || a.experts != b.experts) {
    return;
  }
  const auto experts = static_cast<size_t>(std::max<int64_t>(1, a.experts));
  const Layout of_expert = {a.step, [&](size_t i) {
                              return fmt::format(" of MoE layer {}, expert {}",
                                                 i / experts, i % experts);
                            }};
  const Layout of_layer = {
      a.step, [](size_t i) { return fmt::format(" of MoE layer {}", i); }};
  search.Column("tokens_per_expert", of_expert, a.tokens_per_expert,
                b.tokens_per_expert);
  search.Column("expert_bias", of_expert, a.expert_bias, b.expert_bias);
  search.Column("dropped_tokens", of_layer, a.dropped_tokens, b.dropped_tokens);
  search.Column("router_entropy", of_layer, a.router_entropy, b.router_entropy);
  search.Column("routing_digest", of_layer, a.routing_digest, b.routing_digest);
  search.Column("routing_flips", of_layer, a.routing_flips, b.routing_flips);
}

}  // namespace

std::optional<RecordedDifference> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate) {
  Search search;
  Parameters(baseline.parameters, candidate.parameters, search);
  Tensors(baseline.tensors, candidate.tensors, search);
  Experts(baseline.moe, candidate.moe, search);
  return search.found();
}

}  // namespace isoloss::compare
