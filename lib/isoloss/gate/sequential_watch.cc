#include "isoloss/gate/sequential_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

stats::SequentialOptions OptionsOf(const Policy& policy,
                                   const std::optional<BatchSpread>& spread) {
  stats::SequentialOptions options;
  options.margin = policy.margin_percent;
  options.alpha = policy.sequential_alpha;
  options.one_sided = policy.one_sided;
  if (spread.has_value()) {
    options.sd = spread->sd_percent;
    options.null_mean = spread->mean_percent;
    options.cusum_limit = policy.cusum_limit;
  }
  return options;
}

/// Means of whole batches of 100 (L_c - L_b) / L_b.
std::vector<double> BatchMeans(const runlog::EnsembleMember& member,
                               size_t batch) {
  const auto& candidate = member.steps.loss_nats;
  const auto& baseline = member.reference_steps.loss_nats;
  const size_t steps = std::min(candidate.size(), baseline.size());
  std::vector<double> means;
  for (size_t begin = 0; begin + batch <= steps; begin += batch) {
    std::vector<double> percent;
    for (size_t i = begin; i < begin + batch; ++i) {
      percent.push_back(100 * (candidate[i] - baseline[i]) / baseline[i]);
    }
    means.push_back(stats::Mean(percent));
  }
  return means;
}

bool IsFinite(const runlog::StepRow& row) {
  return std::isfinite(row.loss_nats) && std::isfinite(row.grad_norm) &&
         row.nonfinite_gradients == 0;
}

std::string Reason(const stats::SequentialState& state, double margin) {
  switch (state.alarm) {
    case stats::Alarm::kEProcess:
      return fmt::format(
          "the mean difference is beyond +-{:g} %: e-value {:.3g} after {} "
          "batches",
          margin, std::exp(state.log_e.value_or(0)), state.batches);
    case stats::Alarm::kConfidenceSequence:
      return fmt::format(
          "the mean difference lies in [{:+.3f} %, {:+.3f} %], beyond +-{:g} "
          "%, after {} batches",
          state.lower, state.upper, margin, state.batches);
    case stats::Alarm::kCusum:
      return fmt::format("the difference jumped: CUSUM {:.3g} after {} batches",
                         state.cusum, state.batches);
    case stats::Alarm::kNotFinite:
      return "the paired loss difference is not finite";
    case stats::Alarm::kNone:
      break;
  }
  return "";
}

}  // namespace

std::optional<BatchSpread> SpreadOfBatches(const NullEnsemble& ensemble,
                                           const Policy& policy) {
  std::vector<double> all;
  double squares = 0;
  int64_t degrees = 0;
  int64_t members = 0;
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const auto means =
        BatchMeans(member, static_cast<size_t>(policy.sequential_batch));
    if (means.size() < 2) continue;
    const stats::Summary summary = stats::Summarize(means);
    squares += summary.sd * summary.sd * static_cast<double>(summary.count - 1);
    degrees += summary.count - 1;
    ++members;
    all.insert(all.end(), means.begin(), means.end());
  }
  if (members < policy.min_members) return std::nullopt;
  const double sd = std::sqrt(squares / static_cast<double>(degrees));
  if (!std::isfinite(sd) || sd == 0) return std::nullopt;
  return BatchSpread{stats::Mean(all), sd};
}

SequentialWatch::SequentialWatch(const Policy& policy,
                                 const std::optional<BatchSpread>& spread)
    : margin_percent_(policy.margin_percent),
      batch_(policy.sequential_batch),
      monitor_(OptionsOf(policy, spread)) {}

const std::optional<Abort>& SequentialWatch::Add(
    const runlog::StepRow& baseline, const runlog::StepRow& candidate) {
  CheckOrder(baseline.step, candidate.step);
  if (abort_.has_value()) return abort_;
  for (const auto* row : {&baseline, &candidate}) {
    if (IsFinite(*row)) continue;
    abort_ = {
        row->step, stats::Alarm::kNotFinite,
        fmt::format("the {} has loss {}, gradient norm {} and {} "
                    "gradient elements that are not finite",
                    row == &baseline ? "baseline" : "candidate", row->loss_nats,
                    row->grad_norm, row->nonfinite_gradients)};
    return abort_;
  }
  sum_percent_ +=
      100 * (candidate.loss_nats - baseline.loss_nats) / baseline.loss_nats;
  if (++steps_in_batch_ == batch_) AddBatch(candidate.step);
  return abort_;
}

void SequentialWatch::CheckOrder(int64_t baseline, int64_t candidate) {
  if (baseline == candidate && baseline > last_step_) {
    last_step_ = baseline;
    return;
  }
  ThrowError(ErrorKind::kConfig,
             "sequential watch: got step {} of the baseline and {} of the "
             "candidate after step {}, but both arms' steps must be the same "
             "and ascend. Feed each step once.",
             baseline, candidate, last_step_);
}

void SequentialWatch::AddBatch(int64_t step) {
  const auto& state = monitor_.Add(sum_percent_ / static_cast<double>(batch_));
  steps_in_batch_ = 0;
  sum_percent_ = 0;
  if (state.alarm == stats::Alarm::kNone) return;
  abort_ = {step, state.alarm, Reason(state, margin_percent_)};
}

}  // namespace isoloss::gate
