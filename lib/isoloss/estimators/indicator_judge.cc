#include "isoloss/estimators/indicator_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "isoloss/base/error.h"
#include "isoloss/stats/binomial_interval.h"

namespace isoloss::estimators {
namespace {

constexpr auto kRules = [] {
  std::array<AlarmRule, kIndicators + 1> rules{};
  for (size_t i = 0; i < kIndicators; ++i) {
    rules[i].indicator = static_cast<Indicator>(i);
  }
  rules[kIndicators] = {Indicator::kGradientToNoise, 1.0};
  return rules;
}();

/// Returns Alarm() of an indicator at each step of a run.
std::vector<double> AlarmsOf(const IndicatorRun& run, Indicator indicator) {
  std::vector<double> alarms;
  for (const IndicatorValues& values : run.values) {
    alarms.push_back(Alarm(IndicatorKindOf(indicator),
                           values[static_cast<size_t>(indicator)]));
  }
  return alarms;
}

/// Returns the level of each arm that has one.
std::map<std::string, double> CalibratedLevels(
    std::span<const IndicatorRun> runs, Indicator indicator) {
  std::map<std::string, double> levels;
  for (const IndicatorRun& run : runs) {
    if (IsJudged(run) || run.diverged_at) continue;
    for (const double alarm : AlarmsOf(run, indicator)) {
      if (std::isnan(alarm)) continue;
      const double level = alarm + std::log2(kAlarmMargin);
      const auto [found, added] = levels.try_emplace(run.arm, level);
      if (!added) found->second = std::max(found->second, level);
    }
  }
  return levels;
}

RunAlarm AlarmOfRun(const IndicatorRun& run, const AlarmRule& rule,
                    const std::map<std::string, double>& levels) {
  RunAlarm result;
  const std::vector<double> alarms = AlarmsOf(run, rule.indicator);
  const bool measured = std::ranges::any_of(
      alarms, [](double alarm) { return !std::isnan(alarm); });
  if (rule.fixed_level && measured) {
    result.level = Alarm(IndicatorKindOf(rule.indicator), *rule.fixed_level);
  } else if (const auto found = levels.find(run.arm);
             measured && found != levels.end()) {
    result.level = found->second;
  }
  size_t before = run.steps.size();
  for (size_t i = run.steps.size(); i-- > 0;) {
    // NaN is beyond nothing.
    if (result.level && alarms[i] > *result.level) {
      result.first_alarm = run.steps[i];
    }
    if (run.diverged_at && run.steps[i] >= *run.diverged_at) before = i;
  }
  result.growth = FitGrowth(std::span(run.steps).first(before),
                            std::span(alarms).first(before));
  return result;
}

RunShare ShareOfRuns(int64_t count, int64_t of) {
  const stats::BinomialInterval interval =
      stats::ClopperPearson(count, of, kIndicatorConfidence);
  return {count, of, interval.lower, interval.upper};
}

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return values[half];
  return (values[half - 1] + values[half]) / 2;
}

RuleStatement JudgeRule(std::span<const IndicatorRun> runs,
                        const AlarmRule& rule) {
  RuleStatement result{.rule = rule,
                       .diverged_growth = {},
                       .healthy_growth = {},
                       .announced = {},
                       .median_lead_steps = {},
                       .false_alarms = {},
                       .runs = {}};
  std::map<std::string, double> levels;
  if (!rule.fixed_level) levels = CalibratedLevels(runs, rule.indicator);
  std::array<std::vector<double>, 2> rates;  // healthy, diverged
  std::vector<double> leads;
  int64_t diverged = 0;
  int64_t healthy = 0;
  int64_t false_alarms = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const IndicatorRun& run = runs[i];
    RunAlarm& alarm = result.runs.emplace_back(AlarmOfRun(run, rule, levels));
    alarm.run = i;
    if (alarm.growth) {
      rates[run.diverged_at ? 1 : 0].push_back(alarm.growth->rate);
    }
    if (!IsJudged(run)) continue;
    if (!alarm.level) {
      ++result.not_judged;
    } else if (!run.diverged_at) {
      ++healthy;
      if (alarm.first_alarm) ++false_alarms;
    } else {
      ++diverged;
      if (alarm.first_alarm && *alarm.first_alarm < *run.diverged_at) {
        leads.push_back(
            static_cast<double>(*run.diverged_at - *alarm.first_alarm));
      }
    }
  }
  result.healthy_growth = MeanGrowth(rates[0]);
  result.diverged_growth = MeanGrowth(rates[1]);
  result.announced = ShareOfRuns(static_cast<int64_t>(leads.size()), diverged);
  result.false_alarms = ShareOfRuns(false_alarms, healthy);
  result.median_lead_steps = Median(leads);
  return result;
}

}  // namespace

bool IsJudged(const IndicatorRun& run) { return run.seed % 2 == 0; }

std::string AlarmRule::Name() const {
  const IndicatorKind& kind = IndicatorKindOf(indicator);
  if (!fixed_level) return std::string(kind.name);
  return fmt::format("{} {} {}", kind.name, kind.falls ? "below" : "above",
                     *fixed_level);
}

std::span<const AlarmRule> AllAlarmRules() { return kRules; }

int64_t IndicatorStatement::Diverged(bool judged) const {
  return std::ranges::count_if(runs, [&](const IndicatorRun& run) {
    return IsJudged(run) == judged && run.diverged_at.has_value();
  });
}

int64_t IndicatorStatement::Count(bool judged) const {
  return std::ranges::count(runs, judged, IsJudged);
}

bool IndicatorStatement::ComparesWithinAMode() const {
  std::array<std::set<std::string>, 2> modes;  // healthy, diverged
  for (const IndicatorRun& run : runs) {
    if (IsJudged(run)) modes[run.diverged_at ? 1 : 0].insert(run.mode);
  }
  return std::ranges::any_of(modes[0], [&](const std::string& mode) {
    return modes[1].contains(mode);
  });
}

IndicatorStatement JudgeIndicators(std::vector<IndicatorRun> runs) {
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "indicators: no run has recorded any. Train some with "
               "`isoloss study stress EXPERIMENT --indicators 5`.");
  }
  IndicatorStatement statement{.runs = std::move(runs), .rules = {}};
  for (const AlarmRule& rule : AllAlarmRules()) {
    statement.rules.push_back(JudgeRule(statement.runs, rule));
  }
  return statement;
}

}  // namespace isoloss::estimators
