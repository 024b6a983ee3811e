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

/// `scale`: of the summands, where a sum may be far smaller than they are.
template <typename T>
bool Agree(T a, T b, double scale) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(a) || !std::isfinite(b)) {
      return a == b || (std::isnan(a) && std::isnan(b));
    }
    return std::fabs(a - b) <=
           kTolerance * std::max({std::fabs(a), std::fabs(b), scale});
  } else {
    return a == b;
  }
}

/// How the values of one group of columns are laid out: [steps, values].
struct Layout {
  const std::vector<int64_t>& steps;
  /// What value number i of a step belongs to: " of lm_head.weight".
  std::function<std::string(size_t)> of;
  /// Of value number i of the column; empty: no more than the value itself.
  std::function<double(size_t)> scale = {};
};

Layout OfLayers(const std::vector<int64_t>& steps) {
  return {steps, [](size_t i) { return fmt::format(" of MoE layer {}", i); }};
}

/// Keeps the first difference that it meets.
class Search {
 public:
  template <typename T>
  void Column(const char* name, const Layout& layout, const std::vector<T>& a,
              const std::vector<T>& b) {
    if (found_ || a.size() != b.size() || layout.steps.empty()) return;
    const size_t per_step = a.size() / layout.steps.size();
    for (size_t i = 0; i < a.size(); ++i) {
      if (Agree(a[i], b[i], layout.scale ? layout.scale(i) : 0.0)) continue;
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

void Steps(const runlog::StepColumns& a, const runlog::StepColumns& b,
           Search& search) {
  if (a.step != b.step) return;
  const Layout of_step = {a.step, [](size_t) { return std::string(); }};
  search.Column("expert_load_max_over_mean", of_step,
                a.expert_load_max_over_mean, b.expert_load_max_over_mean);
  search.Column("dead_experts", of_step, a.dead_experts, b.dead_experts);
  search.Column("nonfinite_gradients", of_step, a.nonfinite_gradients,
                b.nonfinite_gradients);
}

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
  const std::vector<double>& magnitudes = a.statistics[runlog::kStat_l1_norm];
  const std::vector<double>& numel = a.statistics[runlog::kStat_numel];
  Layout sums = layout;
  Layout means = layout;
  if (!magnitudes.empty() && magnitudes.size() == numel.size()) {
    sums.scale = [&](size_t i) { return magnitudes[i]; };
    means.scale = [&](size_t i) { return magnitudes[i] / numel[i]; };
  }
  for (size_t k = 0; k < runlog::kTensorStatisticCount; ++k) {
    const Layout& of_statistic = k == runlog::kStat_sum    ? sums
                                 : k == runlog::kStat_mean ? means
                                                           : layout;
    search.Column(runlog::kTensorStatistics[k].name, of_statistic,
                  a.statistics[k], b.statistics[k]);
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
  const Layout of_layer = OfLayers(a.step);
  search.Column("tokens_per_expert", of_expert, a.tokens_per_expert,
                b.tokens_per_expert);
  search.Column("expert_bias", of_expert, a.expert_bias, b.expert_bias);
  search.Column("dropped_tokens", of_layer, a.dropped_tokens, b.dropped_tokens);
  search.Column("router_entropy", of_layer, a.router_entropy, b.router_entropy);
  search.Column("routing_flips", of_layer, a.routing_flips, b.routing_flips);
}

void Evaluations(const runlog::EvalColumns& a, const runlog::EvalColumns& b,
                 Search& search) {
  if (a.step != b.step) return;
  const Layout of_sequence = {
      a.step,
      [](size_t i) { return fmt::format(" of held-out sequence {}", i); }};
  search.Column("loss_nats", of_sequence, a.per_sequence_loss_nats,
                b.per_sequence_loss_nats);
}

bool SameMesh(const runlog::Provenance& a, const runlog::Provenance& b) {
  return a.ranks == b.ranks && a.ranks_per_node == b.ranks_per_node &&
         a.expert_data_parallel == b.expert_data_parallel;
}

void Padding(const runlog::MoeColumns& a, const runlog::MoeColumns& b,
             Search& search) {
  if (a.step != b.step || a.layers != b.layers) return;
  const Layout of_layer = OfLayers(a.step);
  search.Column("padding_rows", of_layer, a.padding_rows, b.padding_rows);
}

/// How many bytes carry them is the transport's business.
void Rows(const runlog::ExchangeColumns& a, const runlog::ExchangeColumns& b,
          Search& search) {
  if (a.step != b.step || a.layers != b.layers) return;
  const Layout of_layer = OfLayers(a.step);
  search.Column("assignments", of_layer, a.assignments, b.assignments);
  search.Column("dispatch_rows", of_layer, a.dispatch_rows, b.dispatch_rows);
  search.Column("rank_rows", of_layer, a.rank_rows, b.rank_rows);
  search.Column("node_rows", of_layer, a.node_rows, b.node_rows);
  search.Column("max_rows_per_rank", of_layer, a.max_rows_per_rank,
                b.max_rows_per_rank);
  search.Column("max_rows_per_expert", of_layer, a.max_rows_per_expert,
                b.max_rows_per_expert);
  search.Column("empty_experts", of_layer, a.empty_experts, b.empty_experts);
}

}  // namespace

std::optional<RecordedDifference> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate) {
  Search search;
  Steps(baseline.steps, candidate.steps, search);
  Parameters(baseline.parameters, candidate.parameters, search);
  Tensors(baseline.tensors, candidate.tensors, search);
  Experts(baseline.moe, candidate.moe, search);
  Evaluations(baseline.eval, candidate.eval, search);
  if (SameMesh(baseline.provenance, candidate.provenance)) {
    Padding(baseline.moe, candidate.moe, search);
    Rows(baseline.exchange, candidate.exchange, search);
  }
  return search.found();
}

}  // namespace isoloss::compare
