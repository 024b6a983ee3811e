// What a gate has to notice in a log, whoever spoilt it: each is a log that a
// known error of a gate, or of the tools before it, lets pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "isoloss/runlog/schema.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using runlog::RunLog;

template <typename T>
void Erase(std::vector<T>& column, size_t first, size_t count) {
  if (column.empty()) return;
  const auto begin = column.begin() + static_cast<std::ptrdiff_t>(first);
  column.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
}

template <typename T>
void Repeat(std::vector<T>& column, size_t at) {
  if (column.empty()) return;
  const T value = column[at];
  column.insert(column.begin() + static_cast<std::ptrdiff_t>(at), value);
}

template <typename T>
void SwapEntries(std::vector<T>& column, size_t one, size_t other) {
  if (!column.empty()) std::swap(column[one], column[other]);
}

/// Calls `edit` with every column of the log's steps.
template <typename Edit>
void ForEachColumn(runlog::StepColumns& steps, const Edit& edit) {
  for (const runlog::Column& column :
       runlog::ColumnsOf<runlog::StepColumns>()) {
    runlog::MutableView(steps).WithValues(column, edit);
  }
}

auto LastLoss(double value) {
  return [value](RunLog& log) {
    if (!log.steps.loss_nats.empty()) log.steps.loss_nats.back() = value;
  };
}

void AllNan(RunLog& log) {
  std::fill(log.steps.loss_nats.begin(), log.steps.loss_nats.end(),
            std::numeric_limits<double>::quiet_NaN());
}

/// The last quarter of the steps is 5 % worse.
void LossInflated(RunLog& log) {
  std::vector<double>& loss = log.steps.loss_nats;
  for (size_t i = loss.size() * 3 / 4; i < loss.size(); ++i) loss[i] *= 1.05;
}

/// The log says that it is whole, but its last third is missing.
void TruncatedLog(RunLog& log) {
  const size_t count = log.steps.step.size();
  ForEachColumn(log.steps, [&](auto& column) {
    Erase(column, count - count / 3, count / 3);
  });
}

void MissingSteps(RunLog& log) {
  const size_t count = log.steps.step.size();
  if (count < 3) return;
  ForEachColumn(log.steps, [&](auto& column) { Erase(column, count / 2, 1); });
}

void RepeatedStep(RunLog& log) {
  const size_t count = log.steps.step.size();
  if (count == 0) return;
  ForEachColumn(log.steps, [&](auto& column) { Repeat(column, count / 2); });
}

void ShuffledSteps(RunLog& log) {
  const size_t count = log.steps.step.size();
  if (count < 2) return;
  ForEachColumn(log.steps, [&](auto& column) {
    SwapEntries(column, count / 2 - 1, count / 2);
  });
}

/// Rows keep their places, their values move on by one: what a parser does that
/// skips a line without a number.
void ShiftedLoss(RunLog& log) {
  std::vector<double>& loss = log.steps.loss_nats;
  if (loss.size() < 2) return;
  std::rotate(loss.begin(), loss.begin() + 1, loss.end());
  loss.back() = loss[loss.size() - 2];
}

void WrongArm(RunLog& log) { log.provenance.arm = log.provenance.baseline_arm; }

/// Halves were merged with the squared difference of their means taken off
/// where it has to be added: negative where means dominate.
void VarianceMergeSign(RunLog& log) {
  auto& statistics = log.tensors.statistics;
  std::vector<double>& variance = statistics[runlog::kStat_variance];
  const std::vector<double>& mean = statistics[runlog::kStat_mean];
  std::vector<double>& deviation = statistics[runlog::kStat_std];
  for (size_t i = 0; i < std::min(variance.size(), mean.size()); ++i) {
    variance[i] -= 2 * mean[i] * mean[i];
    if (i < deviation.size()) deviation[i] = std::sqrt(variance[i]);
  }
}

}  // namespace

std::vector<Mutant> GateMutants() {
  const std::string group = "gate";
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      {.name = "loss_inflated",
       .catalogue = 59,
       .group = group,
       .what = "The loss of the last quarter is 5 % higher, which an inverted "
               "inequality takes for better",
       .link = "https://github.com/NVIDIA/Megatron-LM/issues/3097",
       .edit_log = LossInflated},
      {.name = "loss_all_nan",
       .catalogue = 60,
       .group = group,
       .what = "Every loss is NaN, which compares false with every limit",
       .link = "",
       .edit_log = AllNan},
      {.name = "loss_last_nan",
       .catalogue = 60,
       .group = group,
       .what = "The last loss is NaN",
       .link = "",
       .edit_log = LastLoss(kNan)},
      {.name = "loss_last_infinite",
       .catalogue = 60,
       .group = group,
       .what = "The last loss is infinite",
       .link = "",
       .edit_log = LastLoss(kInfinity)},
      {.name = "variance_merge_sign",
       .catalogue = 61,
       .group = group,
       .what = "Variances of tensors were merged with the wrong sign",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/3044",
       .edit_log = VarianceMergeSign},
      {.name = "log_truncated",
       .catalogue = 62,
       .group = group,
       .what = "The last third of the steps is missing from a log that calls "
               "itself whole",
       .link = "",
       .edit_log = TruncatedLog},
      {.name = "step_missing",
       .catalogue = 62,
       .group = group,
       .what = "A step is missing",
       .link = "",
       .edit_log = MissingSteps},
      {.name = "step_repeated",
       .catalogue = 62,
       .group = group,
       .what = "A step is there twice",
       .link = "",
       .edit_log = RepeatedStep},
      {.name = "steps_shuffled",
       .catalogue = 62,
       .group = group,
       .what = "Two steps changed places",
       .link = "",
       .edit_log = ShuffledSteps},
      {.name = "loss_shifted",
       .catalogue = 62,
       .group = group,
       .what = "Every loss stands at the step before its own",
       .link = "",
       .edit_log = ShiftedLoss},
      {.name = "wrong_arm",
       .catalogue = 63,
       .group = group,
       .what = "The log names the baseline as its arm",
       .link = "https://github.com/IST-DASLab/Quartet/issues/12",
       .edit_log = WrongArm},
  };
}

}  // namespace isoloss::qualification
