#include "isoloss/report/indicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "isoloss/document/json.h"

namespace isoloss::report {
namespace {

using document::IntervalJson;
using document::Json;
using document::PutInteger;
using document::PutNumber;

using indicators::Growth;
using indicators::IndicatorRun;
using indicators::IndicatorStatement;
using indicators::KindOf;
using indicators::RuleStatement;
using indicators::RunAlarm;
using indicators::Share;

constexpr int64_t kIndicatorsSchemaVersion = 1;

/// "31 [22, 50]"; negative: towards what is harmless.
std::string DoublingText(const std::optional<Growth>& growth) {
  if (!growth) return "-";
  if (!growth->IsSettled()) return "none";
  return fmt::format("{:.3g} [{:.3g}, {:.3g}]", 1 / growth->rate,
                     1 / growth->upper, 1 / growth->lower);
}

std::string ShareText(const Share& share) {
  if (share.of == 0) return "-";
  return fmt::format("{} of {} [{:.0f}, {:.0f}] %", share.count, share.of,
                     100 * share.lower, 100 * share.upper);
}

std::string RuleLine(const RuleStatement& rule) {
  const std::string lead = rule.median_lead_steps
                               ? fmt::format("{:g}", *rule.median_lead_steps)
                               : "-";
  return fmt::format(
      "{:<26} {:<22} {:<22} {:<20} {:>5}  {}\n", rule.rule.Name(),
      DoublingText(rule.diverged_growth), DoublingText(rule.healthy_growth),
      ShareText(rule.announced), lead, ShareText(rule.false_alarms));
}

/// What the figures can't say.
std::string Caution(const IndicatorStatement& statement) {
  std::string text;
  if (statement.Diverged(/*judged=*/true) == 0) {
    text +=
        "No run with an even seed diverged here, so that nothing can be said "
        "of announcements.\n";
  } else if (!statement.ComparesWithinAMode()) {
    text +=
        "No mode has judged runs that diverged and judged runs that did not: "
        "an indicator that only tells the modes apart looks here as if it "
        "announced divergences.\n";
  }
  std::string none;
  for (const RuleStatement& rule : statement.rules) {
    if (rule.not_judged == 0) continue;
    none += fmt::format("{}{} of {}", none.empty() ? "" : ", ", rule.not_judged,
                        rule.rule.Name());
  }
  if (!none.empty()) {
    text += fmt::format(
        "Runs that were not judged, since nothing was measured or no run of "
        "their arm with an odd seed stayed healthy: {}.\n",
        none);
  }
  return text;
}

/// Doublings per step, towards what is alarming.
Json GrowthJson(const std::optional<Growth>& growth) {
  if (!growth) return nullptr;
  Json json{{"count", growth->count},
            {"doublings_per_step",
             IntervalJson(growth->rate, growth->lower, growth->upper)}};
  PutNumber(
      json, "doubling_steps",
      growth->IsSettled() ? std::optional(1 / growth->rate) : std::nullopt);
  return json;
}

Json ShareJson(const Share& share) {
  const double estimate =
      static_cast<double>(share.count) / static_cast<double>(share.of);
  return {{"count", share.count},
          {"of", share.of},
          {"share", share.of == 0
                        ? Json(nullptr)
                        : IntervalJson(estimate, share.lower, share.upper)}};
}

Json RunAlarmJson(const RunAlarm& alarm) {
  Json json{{"run", alarm.run}, {"growth", GrowthJson(alarm.growth)}};
  PutNumber(json, "level_doublings", alarm.level);
  PutInteger(json, "first_alarm_step", alarm.first_alarm);
  return json;
}

Json RuleJson(const RuleStatement& rule) {
  const auto& kind = KindOf(rule.rule.indicator);
  Json json{{"rule", rule.rule.Name()},
            {"indicator", kind.name},
            {"unit", kind.unit},
            {"what", kind.what},
            {"falls", kind.falls}};
  PutNumber(json, "fixed_level", rule.rule.fixed_level);
  json["growth_diverged"] = GrowthJson(rule.diverged_growth);
  json["growth_healthy"] = GrowthJson(rule.healthy_growth);
  json["announced"] = ShareJson(rule.announced);
  PutNumber(json, "median_lead_steps", rule.median_lead_steps);
  json["false_alarms"] = ShareJson(rule.false_alarms);
  json["not_judged"] = rule.not_judged;
  json["runs"] = Json::array();
  for (const RunAlarm& alarm : rule.runs) {
    json["runs"].push_back(RunAlarmJson(alarm));
  }
  return json;
}

Json IndicatorRunJson(const IndicatorRun& run) {
  Json json{{"mode", run.mode},
            {"arm", run.arm},
            {"seed", run.seed},
            {"judged", IsJudged(run)},
            {"recorded_steps", run.steps.size()}};
  PutInteger(json, "diverged_at_step", run.diverged_at);
  return json;
}

}  // namespace

std::string RenderIndicators(const IndicatorStatement& statement) {
  std::string text = fmt::format(
      "Levels come from {} runs with odd seeds, of which {} diverged; {} with "
      "even seeds are judged, of which {} diverged.\n",
      statement.Count(false), statement.Diverged(false), statement.Count(true),
      statement.Diverged(true));
  text +=
      "Doubling times in steps with 95 % intervals over runs: how long an "
      "indicator takes to become twice as alarming; negative: half as "
      "alarming; none: the interval of its slope holds 0.\n\n";
  text += fmt::format("{:<26} {:<22} {:<22} {:<20} {:>5}  {}\n", "indicator",
                      "doubling, diverged", "doubling, healthy", "announced",
                      "lead", "false alarms");
  for (const RuleStatement& rule : statement.rules) text += RuleLine(rule);
  text += "\n" + Caution(statement);
  for (const std::string& note : statement.notes) text += note + "\n";
  return text;
}

std::string RenderIndicatorsJson(const IndicatorStatement& statement) {
  Json json{{"schema_version", kIndicatorsSchemaVersion},
            {"experiment", statement.experiment},
            {"confidence", indicators::kConfidence},
            {"margin", indicators::kMargin},
            {"compares_within_a_mode", statement.ComparesWithinAMode()},
            {"runs", Json::array()},
            {"rules", Json::array()},
            {"notes", statement.notes}};
  for (const IndicatorRun& run : statement.runs) {
    json["runs"].push_back(IndicatorRunJson(run));
  }
  for (const RuleStatement& rule : statement.rules) {
    json["rules"].push_back(RuleJson(rule));
  }
  return json.dump(2) + "\n";
}

}  // namespace isoloss::report
