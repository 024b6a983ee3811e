#include "isoloss/compare/tensor_divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "isoloss/compare/common_steps.h"

namespace isoloss::compare {
namespace {

using runlog::RunLog;
using runlog::TensorColumns;

constexpr size_t kNeighbours = 3;

/// How far apart two values of a statistic may be.
enum class Bound {
  kRelative,   ///< by the tolerance's share of the larger
  kOfRms,      ///< or, a mean, of the larger root mean square
  kOfHundred,  ///< a percentage, by that share of 100
  kExact,
};

/// What bounded comparison looks at, in this order.
struct BoundedStatistic {
  size_t statistic;
  Bound bound;
};
constexpr BoundedStatistic kBoundedStatistics[] = {
    {runlog::kStat_l2_norm, Bound::kRelative},
    {runlog::kStat_mean, Bound::kOfRms},
    {runlog::kStat_cur_amax, Bound::kRelative},
    {runlog::kStat_std, Bound::kRelative},
    {runlog::kStat_mse, Bound::kRelative},
    {runlog::kStat_mse_columnwise, Bound::kRelative},
    {runlog::kStat_underflows, Bound::kOfHundred},
    {runlog::kStat_underflows_columnwise, Bound::kOfHundred},
    {runlog::kStat_saturated, Bound::kOfHundred},
    {runlog::kStat_saturated_columnwise, Bound::kOfHundred},
    {runlog::kStat_scale_inv_min, Bound::kExact},
    {runlog::kStat_scale_inv_min_columnwise, Bound::kExact},
    {runlog::kStat_scale_inv_max, Bound::kExact},
    {runlog::kStat_scale_inv_max_columnwise, Bound::kExact}};

std::string NumberText(double value) { return fmt::format("{:.17g}", value); }

std::string DigestText(int64_t digest) {
  if (digest == 0) return "none";
  return fmt::format("{:016x}", static_cast<uint64_t>(digest));
}

/// Does |a - b| exceed `tolerance` times `scale`? NaN and infinities agree with
/// their like only.
bool Exceeds(double a, double b, double scale, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) != std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a != b;
  return std::fabs(a - b) > tolerance * scale;
}

/// One step of a group that both logs have it in.
struct Rows {
  size_t a = 0;
  size_t b = 0;
};

std::optional<Rows> RowsOfStep(const std::vector<int64_t>& a,
                               const std::vector<int64_t>& b, int64_t step) {
  const auto row_a = RowOfStep(a, step);
  const auto row_b = RowOfStep(b, step);
  if (!row_a || !row_b) return std::nullopt;
  return Rows{*row_a, *row_b};
}

/// Row `row` of an array; empty if the array is.
template <typename T>
std::span<const T> RowOf(const std::vector<T>& values, size_t row,
                         size_t width) {
  if (values.size() < (row + 1) * width) return {};
  return {values.data() + row * width, width};
}

class Search {
 public:
  Search(const RunLog& a, const RunLog& b, const DivergenceOptions& options)
      : a_(a),
        b_(b),
        tolerance_(options.tolerance),
        tensors_(MatchNames(a.tensors.names, b.tensors.names)),
        parameters_(MatchNames(a.parameters.names, b.parameters.names)) {}

  DivergenceReport Run() {
    DivergenceReport report;
    report.tensors_only_a = tensors_.only_a;
    report.tensors_only_b = tensors_.only_b;
    report.parameters_only_a = parameters_.only_a;
    report.parameters_only_b = parameters_.only_b;
    const std::vector<int64_t> steps = AllCommonSteps();
    report.steps = static_cast<int64_t>(steps.size());
    for (const int64_t step : CommonSteps(a_.tensors.step, b_.tensors.step)) {
      if (HasTensors(step)) report.tensor_steps.push_back(step);
    }
    Find(steps, &Search::AtStep, report);
    if (!report.first) {
      Find(CommonSteps(a_.eval.step, b_.eval.step), &Search::HeldOut, report);
    }
    return report;
  }

 private:
  std::vector<int64_t> AllCommonSteps() const {
    std::vector<int64_t> all;
    for (const auto& common :
         {CommonSteps(a_.steps.step, b_.steps.step),
          CommonSteps(a_.tensors.step, b_.tensors.step),
          CommonSteps(a_.moe.step, b_.moe.step),
          CommonSteps(a_.parameters.step, b_.parameters.step)}) {
      all.insert(all.end(), common.begin(), common.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  void Find(const std::vector<int64_t>& steps,
            std::optional<TensorDivergence> (Search::*at_step)(int64_t) const,
            DivergenceReport& report) const {
    std::optional<int64_t> last;
    for (const int64_t step : steps) {
      report.first = (this->*at_step)(step);
      if (report.first) {
        report.first->step = step;
        report.first->last_equal_step = last;
        return;
      }
      last = step;
    }
  }

  std::optional<TensorDivergence> AtStep(int64_t step) const {
    auto found = Tensors(step);
    if (!found) found = Routing(step);
    if (!found)
      found =
          StepColumn(step, "loss_nats", a_.steps.loss_nats, b_.steps.loss_nats);
    if (!found)
      found = Parameters(step, "grad_norm", a_.parameters.grad_norm,
                         b_.parameters.grad_norm);
    if (!found)
      found =
          StepColumn(step, "grad_norm", a_.steps.grad_norm, b_.steps.grad_norm);
    if (!found)
      found = Parameters(step, "update_ratio", a_.parameters.update_ratio,
                         b_.parameters.update_ratio);
    if (!found) found = ExpertBias(step);
    return found;
  }

  bool Differ(double a, double b) const {
    if (!tolerance_) {
      return std::bit_cast<uint64_t>(a) != std::bit_cast<uint64_t>(b);
    }
    return Exceeds(a, b, std::max(std::fabs(a), std::fabs(b)), *tolerance_);
  }

  std::optional<TensorDivergence> Number(const std::string& quantity,
                                         const std::string& name, double a,
                                         double b) const {
    if (!Differ(a, b)) return std::nullopt;
    TensorDivergence found;
    found.quantity = quantity;
    found.name = name;
    found.a = NumberText(a);
    found.b = NumberText(b);
    return found;
  }

  // Scalars of a step ------------------------------------------------------

  std::optional<TensorDivergence> StepColumn(
      int64_t step, const std::string& quantity, const std::vector<double>& a,
      const std::vector<double>& b) const {
    const auto rows = RowsOfStep(a_.steps.step, b_.steps.step, step);
    if (!rows || rows->a >= a.size() || rows->b >= b.size()) return {};
    return Number(quantity, "", a[rows->a], b[rows->b]);
  }

  std::optional<TensorDivergence> HeldOut(int64_t step) const {
    const auto rows = RowsOfStep(a_.eval.step, b_.eval.step, step);
    if (!rows || a_.eval.loss_nats.empty() || b_.eval.loss_nats.empty()) {
      return {};
    }
    return Number("held-out loss_nats", "", a_.eval.loss_nats[rows->a],
                  b_.eval.loss_nats[rows->b]);
  }

  std::optional<TensorDivergence> Parameters(
      int64_t step, const std::string& quantity, const std::vector<double>& a,
      const std::vector<double>& b) const {
    const auto rows = RowsOfStep(a_.parameters.step, b_.parameters.step, step);
    if (!rows) return {};
    const auto of_a = RowOf(a, rows->a, a_.parameters.names.size());
    const auto of_b = RowOf(b, rows->b, b_.parameters.names.size());
    if (of_a.empty() || of_b.empty()) return {};
    for (const SharedName& shared : parameters_.shared) {
      auto found = Number(quantity, a_.parameters.names[shared.a],
                          of_a[shared.a], of_b[shared.b]);
      if (found) return found;
    }
    return {};
  }

  std::optional<TensorDivergence> Routing(int64_t step) const {
    if (tolerance_) return {};
    const auto rows = RowsOfStep(a_.moe.step, b_.moe.step, step);
    if (!rows || a_.moe.layers != b_.moe.layers) return {};
    const auto layers = static_cast<size_t>(a_.moe.layers);
    const auto of_a = RowOf(a_.moe.routing_digest, rows->a, layers);
    const auto of_b = RowOf(b_.moe.routing_digest, rows->b, layers);
    if (of_a.empty() || of_b.empty()) return {};
    for (size_t layer = 0; layer < layers; ++layer) {
      if (of_a[layer] == of_b[layer]) continue;
      TensorDivergence found;
      found.quantity = "routing_digest";
      found.name = fmt::format("MoE layer {}", layer);
      found.a = DigestText(of_a[layer]);
      found.b = DigestText(of_b[layer]);
      found.phase = Phase::kForward;
      return found;
    }
    return {};
  }

  /// No tensor is computed from a bias but by the choice of experts, steps
  /// later maybe.
  std::optional<TensorDivergence> ExpertBias(int64_t step) const {
    if (tolerance_) return {};
    const auto rows = RowsOfStep(a_.moe.step, b_.moe.step, step);
    if (!rows || a_.moe.layers != b_.moe.layers ||
        a_.moe.experts != b_.moe.experts) {
      return {};
    }
    const auto experts = static_cast<size_t>(a_.moe.experts);
    const size_t count = static_cast<size_t>(a_.moe.layers) * experts;
    const auto of_a = RowOf(a_.moe.expert_bias, rows->a, count);
    const auto of_b = RowOf(b_.moe.expert_bias, rows->b, count);
    if (of_a.empty() || of_b.empty()) return {};
    for (size_t i = 0; i < count; ++i) {
      auto found = Number(
          "expert_bias",
          fmt::format("MoE layer {}, expert {}", i / experts, i % experts),
          of_a[i], of_b[i]);
      if (!found) continue;
      found->phase = Phase::kOptimizer;
      return found;
    }
    return {};
  }

  // Tensors ----------------------------------------------------------------

  /// A row of zeros: no digests were asked for at that step.
  static std::span<const int64_t> Digests(const TensorColumns& tensors,
                                          size_t row) {
    const auto digests = RowOf(tensors.digest, row, tensors.names.size());
    const bool any = std::any_of(digests.begin(), digests.end(),
                                 [](int64_t digest) { return digest != 0; });
    return any ? digests : std::span<const int64_t>{};
  }

  bool HasTensors(int64_t step) const {
    const auto rows = RowsOfStep(a_.tensors.step, b_.tensors.step, step);
    if (!rows || tensors_.shared.empty()) return false;
    if (!tolerance_) {
      return !Digests(a_.tensors, rows->a).empty() &&
             !Digests(b_.tensors, rows->b).empty();
    }
    return std::any_of(tensors_.shared.begin(), tensors_.shared.end(),
                       [&](const SharedName& shared) {
                         return HasStatistics(a_.tensors, rows->a, shared.a) &&
                                HasStatistics(b_.tensors, rows->b, shared.b);
                       });
  }

  std::optional<TensorDivergence> Tensors(int64_t step) const {
    if (!HasTensors(step)) return {};
    const Rows rows = *RowsOfStep(a_.tensors.step, b_.tensors.step, step);
    for (size_t i = 0; i < tensors_.shared.size(); ++i) {
      auto found = tolerance_ ? Statistics(rows, tensors_.shared[i])
                              : Digest(rows, tensors_.shared[i]);
      if (!found) continue;
      found->is_tensor = true;
      found->name = a_.tensors.names[tensors_.shared[i].a];
      found->phase = PhaseOfTensor(found->name);
      AddNeighbours(i, *found);
      return found;
    }
    return {};
  }

  void AddNeighbours(size_t place, TensorDivergence& found) const {
    found.agreeing_count = static_cast<int64_t>(place);
    for (size_t i = place - std::min(place, kNeighbours); i < place; ++i) {
      found.agreeing.push_back(a_.tensors.names[tensors_.shared[i].a]);
    }
  }

  std::optional<TensorDivergence> Digest(const Rows& rows,
                                         const SharedName& shared) const {
    const int64_t a = Digests(a_.tensors, rows.a)[shared.a];
    const int64_t b = Digests(b_.tensors, rows.b)[shared.b];
    if (a == b) return {};
    TensorDivergence found;
    found.quantity = "digest";
    found.a = DigestText(a);
    found.b = DigestText(b);
    return found;
  }

  static double Statistic(const TensorColumns& tensors, size_t row,
                          size_t place, size_t statistic) {
    const auto values =
        RowOf(tensors.statistics[statistic], row, tensors.names.size());
    return values.empty() ? std::nan("") : values[place];
  }

  /// Root mean square; 0 if the log does not hold what it takes.
  static double Rms(const TensorColumns& tensors, size_t row, size_t place) {
    const double norm = Statistic(tensors, row, place, runlog::kStat_l2_norm);
    const double numel = Statistic(tensors, row, place, runlog::kStat_numel);
    const double rms = norm / std::sqrt(numel);
    return std::isfinite(rms) ? rms : 0;
  }

  double Scale(Bound bound, double a, double b, const Rows& rows,
               const SharedName& shared) const {
    const double larger = std::max(std::fabs(a), std::fabs(b));
    switch (bound) {
      case Bound::kRelative:
        return larger;
      case Bound::kOfRms:
        // A mean near zero is the remainder of a cancellation: its own
        // magnitude says nothing about how well it is determined.
        return std::max({larger, Rms(a_.tensors, rows.a, shared.a),
                         Rms(b_.tensors, rows.b, shared.b)});
      case Bound::kOfHundred:
        return 100;
      case Bound::kExact:
        return 0;
    }
    return 0;
  }

  std::optional<TensorDivergence> Statistics(const Rows& rows,
                                             const SharedName& shared) const {
    if (!HasStatistics(a_.tensors, rows.a, shared.a) ||
        !HasStatistics(b_.tensors, rows.b, shared.b)) {
      return {};
    }
    for (const auto& [s, bound] : kBoundedStatistics) {
      if (a_.tensors.statistics[s].empty() ||
          b_.tensors.statistics[s].empty()) {
        continue;
      }
      const double a = Statistic(a_.tensors, rows.a, shared.a, s);
      const double b = Statistic(b_.tensors, rows.b, shared.b, s);
      // What one recipe does not quantise has no such statistic.
      const bool of_quantisation =
          bound == Bound::kOfHundred || bound == Bound::kExact ||
          s == runlog::kStat_mse || s == runlog::kStat_mse_columnwise;
      if (of_quantisation && (std::isnan(a) || std::isnan(b))) continue;
      const double scale = Scale(bound, a, b, rows, shared);
      if (!Exceeds(a, b, scale, *tolerance_)) continue;
      TensorDivergence found;
      found.quantity = runlog::kTensorStatistics[s].name;
      found.a = NumberText(a);
      found.b = NumberText(b);
      return found;
    }
    return {};
  }

  const RunLog& a_;
  const RunLog& b_;
  const std::optional<double> tolerance_;
  const MatchedNames tensors_;
  const MatchedNames parameters_;
};

}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
  }
  return "";
}

std::optional<Phase> PhaseOfTensor(std::string_view name) {
  const size_t separator = name.rfind('_');
  if (separator == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(separator + 1);
  if (kind == "weight" || kind == "activation" || kind == "output" ||
      name.ends_with("_expert_ids")) {
    return Phase::kForward;
  }
  if (kind == "gradient" || kind == "dgrad" || kind == "wgrad") {
    return Phase::kBackward;
  }
  if (kind == "parameter" || kind == "update") return Phase::kOptimizer;
  return std::nullopt;
}

bool HasStatistics(const TensorColumns& tensors, size_t row, size_t place) {
  const auto& numel = tensors.statistics[runlog::kStat_numel];
  const size_t at = row * tensors.names.size() + place;
  if (!numel.empty()) return at < numel.size() && !std::isnan(numel[at]);
  return std::ranges::any_of(kBoundedStatistics, [&](const auto& bounded) {
    const auto& values = tensors.statistics[bounded.statistic];
    return at < values.size();
  });
}

bool DivergenceReport::HidesTensors() const {
  if (!first) return false;
  // Tensors of this step say what differs in it, and those of the step before
  // that nothing did until then.
  const int64_t telling = first->is_tensor ? first->step - 1 : first->step;
  return telling > 0 &&
         !std::binary_search(tensor_steps.begin(), tensor_steps.end(), telling);
}

DivergenceReport FindDivergence(const RunLog& a, const RunLog& b,
                                const DivergenceOptions& options) {
  return Search(a, b, options).Run();
}

}  // namespace isoloss::compare
