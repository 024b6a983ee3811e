// Judges which indicators announced divergences, how early, and how often they
// gave false alarms.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/growth.h"
#include "isoloss/estimators/indicator.h"

namespace isoloss::estimators {

/// A calibrated level lies 1.25 times beyond the most alarming value of
/// healthy runs. For decibels the distance is 20 log10(1.25).
inline constexpr double kAlarmMargin = 1.25;
inline constexpr double kIndicatorConfidence = 0.95;  ///< of all intervals

struct IndicatorRun {
  std::string mode;
  std::string arm;
  int64_t seed = 0;
  std::vector<int64_t> steps;  ///< ascending
  std::vector<IndicatorValues> values;
  std::optional<int64_t> diverged_at = std::nullopt;
};

/// Levels come from runs of odd seeds, and runs of even seeds are judged.
bool IsJudged(const IndicatorRun& run);

/// A rule is an indicator and the level that it is compared with.
struct AlarmRule {
  Indicator indicator = {};
  /// If empty, the level of an arm lies kAlarmMargin times beyond the most
  /// alarming value of its runs that calibrate and did not diverge.
  std::optional<double> fixed_level = std::nullopt;

  std::string Name() const;  ///< "sqnr", "gradient_to_noise below 1"
};
/// Returns one rule for each indicator, and gradient_to_noise below 1. Below 1
/// the norm of the gradient is less than sqrt(3) times the norm of its
/// quantisation noise. Source: arXiv 2505.19115.
std::span<const AlarmRule> AllAlarmRules();

/// States what one rule says about one run.
struct RunAlarm {
  size_t run = 0;  ///< among those given
  /// Alarm() of the level. If empty, the arm has no level or nothing was
  /// measured, and the run is not judged.
  std::optional<double> level = std::nullopt;
  /// The first step whose value lies beyond the level.
  std::optional<int64_t> first_alarm = std::nullopt;
  /// Says how the indicator grew before the run diverged.
  std::optional<Growth> growth = std::nullopt;
};

/// Counts successes, with Clopper and Pearson's 95 % interval. The interval
/// assumes independent runs, which arms of one seed are not quite.
struct RunShare {
  int64_t count = 0;
  int64_t of = 0;
  double lower = 0;
  double upper = 1;
};

struct RuleStatement {
  AlarmRule rule;
  std::optional<Growth> diverged_growth;  ///< of all runs, whatever the seed
  std::optional<Growth> healthy_growth;
  /// Counts the judged runs that diverged, and how many of them had an alarm
  /// before.
  RunShare announced;
  std::optional<double> median_lead_steps;  ///< of those that were announced
  /// Counts the judged runs that did not diverge, and how many of them had any
  /// alarm.
  RunShare false_alarms;
  int64_t not_judged = 0;  ///< their arm has no level, or nothing was measured
  std::vector<RunAlarm> runs;  ///< as they were given
};

struct IndicatorStatement {
  std::string experiment = {};
  std::vector<IndicatorRun> runs;
  std::vector<RuleStatement> rules;
  std::vector<std::string> notes = {};

  int64_t Diverged(bool judged) const;
  int64_t Count(bool judged) const;
  /// Returns whether some mode has judged runs that diverged and some that did
  /// not. If none has, any indicator that distinguishes the modes looks as if
  /// it announced divergences.
  bool ComparesWithinAMode() const;
};

/// Errors   ConfigError if there is no run.
IndicatorStatement JudgeIndicators(std::vector<IndicatorRun> runs);

}  // namespace isoloss::estimators
