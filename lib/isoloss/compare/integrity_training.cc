// Rule `training` of level L0: did the weights of each run move? Two runs that
// do nothing are equal, whatever their recipes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

/// Fewer steps without an update in a row are masked batches, a warm-up from 0,
/// or steps that a loss scale skipped.
constexpr size_t kMostIdleSteps = 3;

/// By how much the mean loss of the last fifth is below that of the first, and
/// the standard error that the noise of batches gives it. That noise is told by
/// second differences, which a trend hardly moves: their variance is 6 times
/// that of independent values.
struct LossFall {
  double nats = 0;
  double error = 0;

  /// Chance gives 4 standard errors once in 30 000 runs.
  bool is_clear() const { return nats > 4 * error && nats > 0; }
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

/// `zeros` of all `count` values of a column are 0, and the rest is not.
struct Zeros {
  size_t zeros = 0;
  size_t longest = 0;  ///< in a row
  size_t end = 0;      ///< row of the last one of these
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

/// What a column of zeros says if the loss falls all the same.
void ReportZeros(const Run& run, std::string_view what, const Zeros& found,
                 Findings& findings) {
  const auto& step = run.log.steps.step;
  if (found.zeros < found.count) {
    return Report(findings, Severity::kBad,
                  "{}: the {} is 0 in {} steps in a row, {} to {}, but the "
                  "weights must move. Look at what stopped the updates.",
                  Label(run), what, found.longest,
                  step[found.end + 1 - found.longest], step[found.end]);
  }
  const LossFall fall = FallOf(run.log);
  if (fall.is_clear()) {
    return Report(findings, Severity::kUnverified,
                  "{}: the {} is 0 in {} of {} steps, but the loss falls by "
                  "{:.3g} nats, and both can't be true. Log the {} as it is, "
                  "or leave it out.",
                  Label(run), what, found.zeros, found.count, fall.nats, what);
  }
  Report(findings, Severity::kBad,
         "{}: the {} is 0 in {} of {} steps, so no weight moved, and runs that "
         "do nothing are equal. Train the run.",
         Label(run), what, found.zeros, found.count);
}

void ReportRates(const Run& run, Findings& findings) {
  const auto& rates = run.log.steps.lr;
  const Zeros found =
      ZerosIn(rates.size(), [&](size_t i) { return rates[i] == 0; });
  if (found.zeros < found.count || found.count <= kMostIdleSteps) return;
  // 0.0000 may stand for any rate up to half a unit; 0.0 is 0 as programs
  // write it.
  const double unit = run.log.provenance.origin.lr_half_unit;
  constexpr double kSmallestRate = 1e-6;
  constexpr double kOneDecimal = 0.05;
  const bool is_rounded = unit >= kSmallestRate && unit < 0.99 * kOneDecimal;
  if (!is_rounded) return ReportZeros(run, "learning rate", found, findings);
  if (FallOf(run.log).is_clear()) return;
  Report(findings, Severity::kUnverified,
         "{}: the learning rate is 0 in {} of {} steps as far as its digits "
         "go, and the loss does not fall. Log the rate with more digits.",
         Label(run), found.zeros, found.count);
}

/// Norms that a log writes as 0.00 are 0 only if others are far above a unit.
bool HidesSmallNorms(const runlog::RunLog& log) {
  std::vector<double> norms = log.steps.grad_norm;
  std::erase(norms, 0);
  if (norms.empty()) return false;
  const auto middle =
      norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2);
  std::ranges::nth_element(norms, middle);
  constexpr double kTimes = 20;  // what is written as 0
  return *middle <= kTimes * log.told.grad_norm_half_unit;
}

void ReportNorms(const Run& run, Findings& findings) {
  const auto& norms = run.log.steps.grad_norm;
  const auto& rates = run.log.steps.lr;
  const Zeros found = ZerosIn(norms.size(), [&](size_t i) {
    return norms[i] == 0 && (rates.empty() || rates[i] > 0);
  });
  if (found.longest <= kMostIdleSteps || HidesSmallNorms(run.log)) return;
  ReportZeros(run, "gradient norm", found, findings);
}

/// Of isoloss' own runs, which say how far each parameter moved.
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

/// One loss again and again: no batch differs from another, and nothing moves.
void ReportOneLoss(const Run& run, Findings& findings) {
  const auto& loss = run.log.steps.loss_nats;
  const double unit = run.log.provenance.origin.loss_half_unit;
  constexpr size_t kFewest = 20;
  constexpr double kFine = 1e-4;  // of the loss: batches differ by more
  if (loss.size() < kFewest || !(unit <= kFine * std::fabs(loss.front())) ||
      std::ranges::any_of(loss, [&](double x) { return x != loss.front(); })) {
    return;
  }
  Report(
      findings, Severity::kBad,
      "{}: each of its {} losses is {}, so nothing was trained, or one value "
      "was logged again and again. Log the loss of each step.",
      Label(run), loss.size(), loss.front());
}

}  // namespace

Findings CheckTraining(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    ReportRates(*run, findings);
    ReportNorms(*run, findings);
    ReportUpdates(*run, findings);
    ReportWeights(*run, findings);
    ReportOneLoss(*run, findings);
  }
  return findings;
}

std::vector<std::string> NoTrainingWarnings(const Pairing& pairing) {
  constexpr size_t kFewest = 20;
  std::vector<std::string> warnings;
  for (const auto* arm : {&pairing.baseline, &pairing.candidate}) {
    for (const Run* run : *arm) {
      const runlog::RunLog& log = run->log;
      if (!log.provenance.IsForeign() || log.steps.loss_nats.size() < kFewest) {
        continue;
      }
      const LossFall fall = FallOf(log);
      if (fall.is_clear() || std::isnan(fall.nats)) continue;
      warnings.push_back(fmt::format(
          "{}: the loss of its last fifth is {:.3g} nats below that of its "
          "first fifth, and noise alone gives {:.2g}: this log shows no "
          "training.",
          Label(*run), fall.nats, fall.error));
      break;  // one of an arm is enough
    }
  }
  return warnings;
}

}  // namespace isoloss::compare
