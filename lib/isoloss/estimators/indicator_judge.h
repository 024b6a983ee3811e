// Which indicators announced divergences, how early, and how often they cried
// wolf.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/growth.h"
#include "isoloss/estimators/indicator.h"

namespace isoloss::estimators {

/// A level that calibration gives lies 1.25 times beyond what healthy runs
/// reached; in decibels 20 log10 of that.
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

/// An indicator and what it is held against.
struct AlarmRule {
  Indicator indicator = {};
  /// Empty: the level of an arm is kMargin times beyond the most alarming value
  /// of its runs that calibrate and did not diverge.
  std::optional<double> fixed_level = std::nullopt;

  std::string Name() const;  ///< "sqnr", "gradient_to_noise below 1"
};
/// One for each indicator, and gradient_to_noise below 1: there the norm of the
/// gradient falls below sqrt(3) times that of its quantisation noise. Source:
/// arXiv 2505.19115.
std::span<const AlarmRule> AllAlarmRules();

/// One rule, one run.
struct RunAlarm {
  size_t run = 0;  ///< among those given
  /// Alarm() of the level; empty: the arm has none, and is not judged.
  std::optional<double> level = std::nullopt;
  /// First step whose value lies beyond it.
  std::optional<int64_t> first_alarm = std::nullopt;
  /// The growth of the indicator before the run diverged.
  std::optional<Growth> growth = std::nullopt;
};

/// A count of successes, with Clopper and Pearson's 95 % interval, which takes
/// runs for independent. Arms of one seed are not quite.
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
  /// The judged runs that diverged, and those of them with an alarm before.
  RunShare announced;
  std::optional<double> median_lead_steps;  ///< of those that were announced
  /// The judged runs that did not diverge, and those of them with any alarm.
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
  /// Whether some mode has judged runs of both fates. If none has, what tells
  /// the modes apart looks as if it announced divergences.
  bool ComparesWithinAMode() const;
};

/// Errors   ConfigError for no run.
IndicatorStatement JudgeIndicators(std::vector<IndicatorRun> runs);

}  // namespace isoloss::estimators
