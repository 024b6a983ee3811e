// Checks rule `schedule` of level L0: each run follows the schedule of its
// experiment, and both runs of a pair follow the same one.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/compare/integrity_rules.h"
#include "isoloss/optim/schedule.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::compare {
namespace {

/// A rate takes a handful of FP64 operations on the configuration alone.
constexpr double kRateTolerance = 1e-12;

using Keys = std::map<std::string, std::string>;

template <typename T>
std::optional<T> NumberOf(const Keys& keys, const std::string& key) {
  const auto found = keys.find(key);
  if (found == keys.end()) return std::nullopt;
  const char* end = found->second.data() + found->second.size();
  T value{};
  const auto result = std::from_chars(found->second.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::optional<optim::DecayShape> ShapeOf(const Keys& keys) {
  const auto found = keys.find("train.decay_type");
  if (found == keys.end()) return std::nullopt;
  if (found->second == "\"linear\"") return optim::DecayShape::kLinear;
  if (found->second == "\"sqrt\"") return optim::DecayShape::kSqrt;
  if (found->second == "\"cosine\"") return optim::DecayShape::kCosine;
  return std::nullopt;
}

/// Empty if the text does not describe a schedule for the planned steps.
std::optional<optim::Schedule> ScheduleOf(
    const runlog::Provenance& provenance) {
  const Keys keys = runlog::KeysOf(provenance.experiment_text);
  const auto lr = NumberOf<double>(keys, "train.lr");
  const auto steps = NumberOf<int64_t>(keys, "train.steps");
  const auto warmup = NumberOf<int64_t>(keys, "train.warmup_steps");
  const auto floor = NumberOf<double>(keys, "train.min_lr_factor");
  const auto shape = ShapeOf(keys);
  if (!lr || !warmup || !floor || !shape || steps != provenance.steps_planned) {
    return std::nullopt;
  }
  try {
    return optim::Schedule(
        {.base_lr = *lr,
         .total_steps = *steps,
         .warmup_steps = *warmup,
         .decay_ratio = NumberOf<double>(keys, "train.decay_ratio"),
         .decay = *shape,
         .min_lr_factor = *floor});
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Compares the rates with those of the run of the same seed.
void ReportUnequalRates(const SeedPair& pair, Findings& findings) {
  const auto& baseline = pair.baseline->log.steps;
  const auto& candidate = pair.candidate->log.steps;
  const size_t common = std::min(baseline.lr.size(), candidate.lr.size());
  // A rate with only one digit, 1e-4, may have no more.
  constexpr double kCoarsest = 0.005;
  const double rounded = pair.baseline->log.provenance.origin.lr_half_unit +
                         pair.candidate->log.provenance.origin.lr_half_unit;
  // Other programs may have two schedules; isoloss has one by its text.
  const auto [severity, why] =
      pair.Knows(runlog::Fact::kExperiment)
          ? std::pair(Severity::kBad,
                      "it follows from the configuration, which is the same. "
                      "One of the programs computes the schedule wrongly.")
          : std::pair(Severity::kIncomparable,
                      "both runs of a seed must have one schedule. Train both "
                      "by one.");
  // Other programs may compute a rate in FP32, with some four operations on
  // numbers up to the largest rate. Or they store it in FP32.
  constexpr double kFp32 = 0x1p-22;
  const double computed = pair.Knows(runlog::Fact::kExperiment) || common == 0
                              ? 0
                              : kFp32 * std::abs(std::ranges::max(baseline.lr));
  for (size_t i = 0; i < common; ++i) {
    // The ends of two roundings are FP64 numbers themselves.
    const double rate = std::abs(baseline.lr[i]);
    const double allowed =
        kRateTolerance * rate + computed +
        std::min(rounded * (1 + kRateTolerance), kCoarsest * rate);
    if (std::abs(candidate.lr[i] - baseline.lr[i]) <= allowed) continue;
    Report(findings, severity,
           "{}: the learning rate of step {} is {:.9g}, but {} has {:.9g}, "
           "and {}",
           Label(*pair.candidate), candidate.step[i], candidate.lr[i],
           Label(*pair.baseline), baseline.lr[i], why);
    return;
  }
}

}  // namespace

std::optional<Finding> WrongRate(const runlog::Provenance& provenance,
                                 const runlog::StepColumns& steps) {
  const auto rates = static_cast<int64_t>(steps.lr.size());
  if (rates == 0) return std::nullopt;
  const auto schedule = ScheduleOf(provenance);
  if (!schedule || rates > provenance.steps_planned) {
    return Finding{
        Severity::kIncomparable,
        fmt::format("attribute experiment_text describes no schedule of {} "
                    "steps for {} learning rates. The file is damaged or was "
                    "edited: make it again.",
                    provenance.steps_planned, rates)};
  }
  for (size_t i = 0; i < steps.lr.size(); ++i) {
    const double expected = schedule->LearningRate(static_cast<int64_t>(i));
    if (std::abs(steps.lr[i] - expected) <= kRateTolerance * expected) continue;
    return Finding{
        Severity::kBad,
        fmt::format("the learning rate of step {} is {:.9g}, but the schedule "
                    "of its experiment gives {:.9g}. The program computed the "
                    "schedule wrongly, or the file was edited.",
                    steps.step[i], steps.lr[i], expected)};
  }
  return std::nullopt;
}

Findings CheckSchedule(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    if (!run->log.provenance.Knows(runlog::Fact::kExperiment)) continue;
    const auto wrong = WrongRate(run->log.provenance, run->log.steps);
    if (!wrong) continue;
    // Earlier versions of a program may have other names for the keys.
    const bool old = run->log.schema_version < runlog::kFullTextVersion;
    if (old && wrong->severity == Severity::kIncomparable) continue;
    Report(findings, wrong->severity, "{}: {}", Label(*run), wrong->message);
  }
  for (const SeedPair& pair : pairing.pairs) {
    ReportUnequalRates(pair, findings);
  }
  return findings;
}

}  // namespace isoloss::compare
