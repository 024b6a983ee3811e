#include "isoloss/compare/arm_summary.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <span>

#include "isoloss/compare/final_window.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

using Values = std::vector<double>;

/// Returns the mean over runs of a number that a run may lack.
std::optional<double> MeanOverRuns(
    const std::vector<const Run*>& runs,
    const std::function<std::optional<double>(const runlog::RunLog&)>& value) {
  Values found;
  for (const Run* run : runs) {
    if (const auto v = value(run->log)) found.push_back(*v);
  }
  if (found.empty()) return std::nullopt;
  return stats::Mean(found);
}

std::optional<double> FinalMean(const Values& column, double share) {
  if (column.empty()) return std::nullopt;
  return stats::Mean(
      std::span(column).last(WindowLength(column.size(), share)));
}

RunRecord Record(const Run& run) {
  const auto& provenance = run.log.provenance;
  return {run.file,
          provenance.seed,
          static_cast<int64_t>(run.log.steps.step.size()),
          provenance.complete,
          provenance.initial_weights_digest,
          provenance.final_weights_digest};
}

void SetEntropyComparison(const runlog::Provenance& provenance,
                          ArmSummary& summary) {
  if (!summary.final_loss_nats.has_value()) return;
  const double loss = *summary.final_loss_nats;
  if (provenance.unigram_entropy_nats > 0) {
    summary.percent_below_unigram =
        100 * (1 - loss / provenance.unigram_entropy_nats);
  }
  if (provenance.entropy_floor_nats > 0) {
    summary.percent_above_floor =
        100 * (loss / provenance.entropy_floor_nats - 1);
  }
}

}  // namespace

ArmSummary SummarizeArm(const std::string& arm,
                        const std::vector<const Run*>& runs,
                        double window_share) {
  ArmSummary summary;
  summary.arm = arm;
  if (runs.empty()) return summary;

  const auto final_mean = [&](Values runlog::StepColumns::*column) {
    return MeanOverRuns(runs, [&](const runlog::RunLog& log) {
      return FinalMean(log.steps.*column, window_share);
    });
  };
  summary.final_loss_nats = final_mean(&runlog::StepColumns::loss_nats);
  summary.final_grad_norm = final_mean(&runlog::StepColumns::grad_norm);
  summary.final_load_max_over_mean =
      final_mean(&runlog::StepColumns::expert_load_max_over_mean);
  summary.final_dead_experts =
      MeanOverRuns(runs, [&](const runlog::RunLog& log) {
        const auto& dead = log.steps.dead_experts;
        return FinalMean(Values(dead.begin(), dead.end()), window_share);
      });
  summary.held_out_loss_nats =
      MeanOverRuns(runs, [](const runlog::RunLog& log) {
        return FinalMean(log.eval.loss_nats, 0);
      });
  const auto seconds = MeanOverRuns(runs, [](const runlog::RunLog& log) {
    return FinalMean(log.steps.step_seconds, 1);
  });
  if (seconds.has_value() && *seconds > 0) {
    summary.steps_per_second = 1 / *seconds;
  }

  const auto& provenance = runs[0]->log.provenance;
  summary.recipe = provenance.recipe;
  summary.exchange = provenance.exchange;
  summary.quantized_gemms_per_step = provenance.quantized_gemms_per_step;
  summary.gemms_per_step = provenance.gemms_per_step;
  SetEntropyComparison(provenance, summary);
  for (const Run* run : runs) summary.runs.push_back(Record(*run));
  return summary;
}

std::string LearningWarning(const ArmSummary& summary) {
  // NaN is reported by other checks and says nothing here.
  if (!(summary.percent_below_unigram.value_or(1) <= 0)) return "";
  return fmt::format(
      "{} ends {:.1f} % above the corpus' unigram entropy: it has learnt "
      "nothing yet, so a verdict says little. Train longer.",
      summary.arm, -*summary.percent_below_unigram);
}

}  // namespace isoloss::compare
