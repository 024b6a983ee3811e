// Checks rule `training` of level L0: the weights of each run moved. Two runs
// that do nothing are equal, whatever their recipes are.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

/// Masked batches, a warm-up from 0, or a loss scale explain this many steps in
/// a row without an update.
constexpr size_t kMostIdleSteps = 3;

/// Says by how much the mean loss of the last fifth is below that of the first,
/// and which standard error the noise of batches gives it. Second differences
/// tell that noise, since a trend hardly moves them: their variance is 6 times
/// that of independent values.
struct LossFall {
  double nats = 0;
  double error = 0;

  /// Chance gives 4 standard errors once in 30 000 runs.
  bool is_clear() const { return nats > 4 * error && nats > 0; }
  bool is_rise() const { return -nats > 4 * error && nats < 0; }
};

double MeanOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

LossFall FallOf(const runlog::RunLog& log) {
  const std::span<const double> loss = log.steps.loss_nats;
  const size_t fifth = std::max<size_t>(1, loss.size() / 5);
  double squares = 0;
  for (size_t i = 2; i < loss.size(); ++i) {
    squares += std::pow(loss[i] - 2 * loss[i - 1] + loss[i - 2], 2);
  }
  const auto bends = static_cast<double>(std::max<size_t>(3, loss.size()) - 2);
  const double unit = log.provenance.origin.loss_half_unit;
  // Rounding to units of 2 h has the variance h^2 / 3.
  const double variance = squares / (6 * bends) + unit * unit / 3;
  return {MeanOf(loss.first(fifth)) - MeanOf(loss.last(fifth)),
          std::sqrt(2 * variance / static_cast<double>(fifth))};
}

/// In a column of `count` values, `zeros` are 0.
struct Zeros {
  size_t zeros = 0;
  size_t longest = 0;  ///< in a row
  size_t end = 0;      ///< row of the last zero of the longest row of them
  size_t count = 0;
};

template <typename IsZero>
Zeros ZerosIn(size_t count, const IsZero& is_zero) {
  Zeros found{.count = count};
  size_t in_a_row = 0;
  for (size_t i = 0; i < count; ++i) {
    in_a_row = is_zero(i) ? in_a_row + 1 : 0;
    found.zeros += in_a_row > 0 ? 1 : 0;
    if (in_a_row <= found.longest) continue;
    found.longest = in_a_row;
    found.end = i;
  }
  return found;
}

/// Reports zeros of a column. If all values are 0 though the loss falls, the
/// log is wrong. `says` is a clause: "the learning rate is 0".
void ReportZeros(const Run& run, std::string_view says, const Zeros& found,
                 std::span<const int64_t> step, Findings& findings) {
  if (found.zeros < found.count) {
    return Report(findings, Severity::kBad,
                  "{}: {} in {} steps in a row, {} to {}, but the weights must "
                  "move. Look at what stopped the updates.",
                  Label(run), says, found.longest,
                  step[found.end + 1 - found.longest], step[found.end]);
  }
  const LossFall fall = FallOf(run.log);
  if (fall.is_clear()) {
    return Report(findings, Severity::kUnverified,
                  "{}: {} in {} of {} steps, but the loss falls by {:.3g} "
                  "nats, and both can't be true. Log it as it is, or leave it "
                  "out.",
                  Label(run), says, found.zeros, found.count, fall.nats);
  }
  Report(findings, Severity::kBad,
         "{}: {} in {} of {} steps, so no weight moved, and runs that do "
         "nothing are equal. Train the run.",
         Label(run), says, found.zeros, found.count);
}

/// Returns whether zeros may be small values. A value that a log writes as 0.00
/// is 0 only if the remaining values are far above a unit.
bool HidesSmall(std::vector<double> values, double half_unit) {
  std::erase(values, 0);
  if (values.empty()) return false;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  constexpr double kTimes = 20;  // what is written as 0
  return *middle <= kTimes * half_unit;
}

/// Reports zeros in the learning rate. A rate may be 0 at the beginning and at
/// the end, but not in a fifth of the run in a row, nor in half of it.
void ReportPausedRates(const Run& run, const Zeros& found, Findings& findings) {
  const auto& rates = run.log.steps.lr;
  const bool long_pause =
      found.longest > kMostIdleSteps && 5 * found.longest >= found.count;
  if (!long_pause && 2 * found.zeros < found.count) return;
  const auto& step = run.log.steps.step;
  const size_t begin = found.end + 1 - found.longest;
  // A rate that digits hide is next to a small rate, of up to two units.
  constexpr double kHidden = 5;  // half units
  const double around =
      std::max(begin > 0 ? rates[begin - 1] : 0,
               found.end + 1 < found.count ? rates[found.end + 1] : 0);
  if (around <= kHidden * run.log.provenance.origin.lr_half_unit) return;
  const bool at_end = found.end + 1 == found.count && begin > 0;
  Report(findings, Severity::kUnverified,
         "{}: the learning rate is 0 in {} of {} steps, {} to {} in a row, and "
         "there the log shows no training. Look at the schedule{}.",
         Label(run), found.zeros, found.count, step[begin], step[found.end],
         at_end ? fmt::format(", or judge what is before with --until {}",
                              step[begin - 1])
                : "");
}

void ReportRates(const Run& run, Findings& findings) {
  const auto& rates = run.log.steps.lr;
  const Zeros found =
      ZerosIn(rates.size(), [&](size_t i) { return rates[i] == 0; });
  if (found.count <= kMostIdleSteps) return;
  if (found.zeros < found.count) {
    return ReportPausedRates(run, found, findings);
  }
  // 0.0000 may mean any rate up to half a unit; 0.0 is 0 as programs write it.
  const double unit = run.log.provenance.origin.lr_half_unit;
  constexpr double kSmallestRate = 1e-6;
  constexpr double kOneDecimal = 0.05;
  const bool is_rounded = unit >= kSmallestRate && unit < 0.99 * kOneDecimal;
  if (!is_rounded) {
    return ReportZeros(run, "the learning rate is 0", found, run.log.steps.step,
                       findings);
  }
  if (FallOf(run.log).is_clear()) return;
  Report(findings, Severity::kUnverified,
         "{}: the learning rate is 0 in {} of {} steps as far as its digits "
         "go, and the loss does not fall. Log the rate with more digits.",
         Label(run), found.zeros, found.count);
}

/// At a rate of 0, no weight has to move.
bool HasRate(const runlog::RunLog& log, int64_t step) {
  const auto found = std::ranges::lower_bound(log.steps.step, step);
  const auto row = static_cast<size_t>(found - log.steps.step.begin());
  return found == log.steps.step.end() || *found != step ||
         row >= log.steps.lr.size() || log.steps.lr[row] > 0;
}

/// Reports idle steps up to the last step that is judged. A loss scale that
/// begins at 2^32 skips up to 32 steps until it fits.
void ReportIdle(const Run& run, const runlog::Told::Idle& idle,
                Findings& findings) {
  constexpr size_t kMostForScale = 32;
  const runlog::RunLog& log = run.log;
  if (log.steps.step.empty() || idle.step.size() != idle.value.size() ||
      HidesSmall(idle.value, idle.half_unit)) {
    return;
  }
  std::span<const int64_t> step(
      idle.step.begin(),
      std::ranges::upper_bound(idle.step, log.steps.step.back()));
  const auto is_idle = [&](size_t i) {
    return idle.value[i] == 0 && HasRate(log, idle.step[i]);
  };
  size_t first = 0;
  while (idle.may_begin && first < step.size() && is_idle(first)) ++first;
  if (first > kMostForScale || 2 * first > step.size()) first = 0;
  step = step.subspan(first);
  const Zeros found =
      ZerosIn(step.size(), [&](size_t i) { return is_idle(first + i); });
  if (found.longest > kMostIdleSteps) {
    return ReportZeros(run, idle.says, found, step, findings);
  }
  // A loss scale or masked batches explain a smaller share of zeros; a log of
  // micro-batches has a larger one.
  if (4 * found.zeros < found.count) return;
  Report(findings, Severity::kUnverified,
         "{}: {} in {} of {} steps, so no weight moved there. Log one value of "
         "each optimizer step, or look at what stopped the updates.",
         Label(run), idle.says, found.zeros, found.count);
}

void ReportNorms(const Run& run, Findings& findings) {
  const runlog::RunLog& log = run.log;
  ReportIdle(run,
             {.says = "the gradient norm is 0",
              .step = log.steps.step,
              .value = log.steps.grad_norm,
              .half_unit = log.told.grad_norm_half_unit},
             findings);
}

/// Reports parameters of isoloss' own runs that did not move.
void ReportUpdates(const Run& run, Findings& findings) {
  const auto& parameters = run.log.parameters;
  const auto& rates = run.log.steps.lr;
  const auto width = static_cast<size_t>(parameters.count);
  if (width == 0 || parameters.update_ratio.empty()) return;
  const Zeros found = ZerosIn(parameters.step.size(), [&](size_t row) {
    const auto of_step =
        std::span(parameters.update_ratio).subspan(row * width, width);
    return (row >= rates.size() || rates[row] > 0) &&
           std::ranges::all_of(of_step, [](double x) { return x == 0; });
  });
  if (found.longest <= kMostIdleSteps) return;
  Report(findings, Severity::kBad,
         "{}: no parameter moved in {} steps in a row, up to step {}, but "
         "their learning rates are above 0. Look at the optimizer.",
         Label(run), found.longest, parameters.step[found.end]);
}

void ReportWeights(const Run& run, Findings& findings) {
  const auto& provenance = run.log.provenance;
  const std::string& digest = provenance.initial_weights_digest;
  if (run.log.steps.step.size() <= kMostIdleSteps || digest.empty() ||
      digest != provenance.final_weights_digest) {
    return;
  }
  Report(findings, Severity::kBad,
         "{}: its weights have the digest {} before step 1 and after step {}, "
         "so no weight moved, and runs that do nothing are equal. Look at the "
         "optimizer.",
         Label(run), digest, run.log.steps.step.back());
}

/// Reports one loss again and again: no batch differs from another, and nothing
/// moves. If a log repeats each value until the next one, no row of equal
/// losses has half of the repeats.
void ReportOneLoss(const Run& run, Findings& findings) {
  const auto& loss = run.log.steps.loss_nats;
  const double unit = run.log.provenance.origin.loss_half_unit;
  constexpr size_t kFewest = 20;
  constexpr double kFine = 1e-4;  // of the loss: batches differ by more
  if (loss.size() < kFewest) return;
  const Zeros found = ZerosIn(loss.size() - 1,
                              [&](size_t i) { return loss[i + 1] == loss[i]; });
  const double stuck = loss[found.end];
  if (found.longest + 1 < kFewest || 2 * found.longest < found.zeros ||
      !(unit <= kFine * std::fabs(stuck))) {
    return;
  }
  const auto& step = run.log.steps.step;
  Report(findings, Severity::kBad,
         "{}: each of the {} losses of steps {} to {} is {}, so nothing was "
         "trained, or one value was logged again and again. Log the loss of "
         "each step.",
         Label(run), found.longest + 1, step[found.end + 1 - found.longest],
         step[found.end + 1], stuck);
}

/// Reports runs that train on one batch. isoloss draws the sequences of each
/// step anew, but other programs may be told to use one batch.
void ReportOneBatch(const Run& run, Findings& findings) {
  const auto& batches = run.log.steps.batch_digest;
  if (!run.log.provenance.Knows(runlog::Fact::kBatches) ||
      batches.size() <= kMostIdleSteps ||
      std::ranges::adjacent_find(batches, std::not_equal_to<>()) !=
          batches.end()) {
    return;
  }
  Report(findings, Severity::kUnverified,
         "{}: the batches of all {} steps have one digest, but each step draws "
         "its own. Give the run more text, or run it again if the log was "
         "edited.",
         Label(run), batches.size());
}

}  // namespace

Findings CheckTraining(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    ReportRates(*run, findings);
    ReportNorms(*run, findings);
    for (const auto& idle : run->log.told.idle) {
      ReportIdle(*run, idle, findings);
    }
    ReportUpdates(*run, findings);
    ReportWeights(*run, findings);
    ReportOneLoss(*run, findings);
    ReportOneBatch(*run, findings);
  }
  return findings;
}

namespace {

/// Returns the fall of the loss in another program's run that is long enough;
/// NaN for any other run.
LossFall FallOfForeign(const Run& run) {
  constexpr size_t kFewest = 20;
  const runlog::RunLog& log = run.log;
  if (log.provenance.Knows(runlog::Fact::kBatches) ||
      log.steps.loss_nats.size() < kFewest) {
    return {std::nan(""), 0};
  }
  return FallOf(log);
}

}  // namespace

std::vector<std::string> NoTrainingWarnings(const Pairing& pairing) {
  std::vector<std::string> warnings;
  for (const auto* arm : {&pairing.baseline, &pairing.candidate}) {
    for (const Run* run : *arm) {
      const LossFall fall = FallOfForeign(*run);
      if (fall.is_clear() || fall.is_rise() || std::isnan(fall.nats)) continue;
      warnings.push_back(fmt::format(
          "{}: the mean loss of its last fifth is {:.3g} nats {} that of its "
          "first fifth, and noise alone gives {:.2g}: this log shows no "
          "training.",
          Label(*run), std::fabs(fall.nats), fall.nats > 0 ? "below" : "above",
          fall.error));
      break;  // one run of an arm is enough
    }
  }
  return warnings;
}

std::string RisingLoss(const Pairing& pairing) {
  for (const Run* run : pairing.All()) {
    const LossFall fall = FallOfForeign(*run);
    if (!fall.is_rise()) continue;
    return fmt::format(
        "The loss of {} rises during training: the mean of its last fifth is "
        "{:.3g} nats above that of its first fifth.",
        Label(*run), -fall.nats);
  }
  return "";
}

}  // namespace isoloss::compare
