#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "isoloss/report/indicators.h"
#include "isoloss/report/svg.h"

namespace isoloss::report {
namespace {

using indicators::Alarm;
using indicators::IndicatorRun;
using indicators::IndicatorStatement;
using indicators::KindOf;
using indicators::RuleStatement;
using indicators::RunAlarm;

constexpr int kAlarmPanelWidth = 430;
constexpr int kAlarmPanelHeight = 210;
constexpr int kAlarmLeft = 46;
constexpr int kAlarmTop = 46;
constexpr int kAlarmPlotWidth = kAlarmPanelWidth - kAlarmLeft - 20;
constexpr int kAlarmPlotHeight = kAlarmPanelHeight - kAlarmTop - 40;
/// Doublings from the level that a panel shows; what is further away is drawn
/// at its edge.
constexpr double kAlarmReach = 6;
constexpr std::string_view kHealthyColour = "#1a73e8";
constexpr std::string_view kDivergedColour = "#d93025";

double AlarmX(int64_t step, int64_t last) {
  return kAlarmLeft + static_cast<double>(step) / static_cast<double>(last) *
                          kAlarmPlotWidth;
}
double AlarmY(double distance) {
  const double share =
      std::clamp(distance, -kAlarmReach, kAlarmReach) / kAlarmReach;
  return kAlarmTop + (1 - share) / 2 * kAlarmPlotHeight;
}

/// One run's distance from its level; a gap where nothing was measured.
std::string AlarmCurve(const IndicatorRun& run, const RuleStatement& rule,
                       double level, int64_t last) {
  const auto& kind = KindOf(rule.rule.indicator);
  std::string path;
  bool drawing = false;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const double distance =
        Alarm(kind, run.values[i][static_cast<size_t>(rule.rule.indicator)]) -
        level;
    if (std::isnan(distance)) {
      drawing = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", drawing ? "L" : "M",
                        AlarmX(run.steps[i], last), AlarmY(distance));
    drawing = true;
  }
  if (path.empty()) return "";
  return fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"0.45\" "
      "stroke-width=\"1.2\"/>\n",
      path, run.diverged_at ? kDivergedColour : kHealthyColour);
}

/// At the step at which the run diverged, below the plot.
std::string DivergenceMark(const IndicatorRun& run, int64_t last) {
  if (!run.diverged_at) return "";
  return fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
      "stroke=\"{3}\" stroke-width=\"1.5\"/>\n",
      AlarmX(*run.diverged_at, last), kAlarmTop + kAlarmPlotHeight - 9,
      kAlarmTop + kAlarmPlotHeight, kDivergedColour);
}

std::string AlarmAxes(int64_t last) {
  std::string svg;
  for (double doublings = -kAlarmReach; doublings <= kAlarmReach;
       doublings += 2) {
    const double y = AlarmY(doublings);
    const bool level = doublings == 0;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "{}/>\n",
        kAlarmLeft, kAlarmLeft + kAlarmPlotWidth, y, y,
        level ? "#202124" : "#e8eaed", level ? "stroke-dasharray=\"5 4\"" : "");
    svg += SvgText(kAlarmLeft - 6, y + 4,
                   level ? "alarm" : fmt::format("{:+g}", doublings),
                   "text-anchor=\"end\" font-size=\"10\" fill=\"#5f6368\"");
  }
  for (const int64_t step : {int64_t{0}, last / 2, last}) {
    svg += SvgText(AlarmX(step, last), kAlarmTop + kAlarmPlotHeight + 16,
                   fmt::format("{}", step),
                   "text-anchor=\"middle\" font-size=\"10\" "
                   "fill=\"#5f6368\"");
  }
  return svg;
}

std::string AlarmPanel(const IndicatorStatement& statement,
                       const RuleStatement& rule, int64_t last, int x, int y) {
  std::string svg = fmt::format("<g transform=\"translate({} {})\">\n", x, y);
  svg += SvgText(kAlarmLeft, 20, rule.rule.Name(), "font-weight=\"bold\"");
  svg += SvgText(kAlarmLeft, 36,
                 fmt::format("announced {} of {}, false alarms {} of {}",
                             rule.announced.count, rule.announced.of,
                             rule.false_alarms.count, rule.false_alarms.of),
                 "font-size=\"11\" fill=\"#5f6368\"");
  std::string curves;
  // Those that diverged above the others.
  for (const bool diverged : {false, true}) {
    for (const RunAlarm& alarm : rule.runs) {
      const IndicatorRun& run = statement.runs[alarm.run];
      if (!IsJudged(run) || !alarm.level ||
          run.diverged_at.has_value() != diverged ||
          !std::isfinite(*alarm.level)) {
        continue;
      }
      curves += AlarmCurve(run, rule, *alarm.level, last);
      curves += DivergenceMark(run, last);
    }
  }
  svg += AlarmAxes(last) + curves;
  if (curves.empty()) {
    svg += SvgText(kAlarmLeft + kAlarmPlotWidth / 2,
                   kAlarmTop + kAlarmPlotHeight / 2 - 8,
                   "nothing to draw: no finite level",
                   "text-anchor=\"middle\" fill=\"#5f6368\"");
  }
  return svg + "</g>\n";
}

}  // namespace

std::string RenderIndicatorsSvg(const IndicatorStatement& statement) {
  constexpr int kHead = 64;
  constexpr int kColumns = 2;
  int64_t last = 1;
  for (const IndicatorRun& run : statement.runs) {
    if (!run.steps.empty()) last = std::max(last, run.steps.back());
    if (run.diverged_at) last = std::max(last, *run.diverged_at);
  }
  std::string body = SvgText(
      16, 24,
      "Indicators of the judged runs over steps, in doublings from the level "
      "that alarms",
      "font-weight=\"bold\" font-size=\"14\"");
  body += SvgText(16, 46, "stayed healthy",
                  fmt::format("fill=\"{}\"", kHealthyColour));
  body += SvgText(120, 46, "diverged, at the step of the mark",
                  fmt::format("fill=\"{}\"", kDivergedColour));
  int place = 0;
  for (const RuleStatement& rule : statement.rules) {
    body +=
        AlarmPanel(statement, rule, last, place % kColumns * kAlarmPanelWidth,
                   kHead + place / kColumns * kAlarmPanelHeight);
    ++place;
  }
  const int rows = (place + kColumns - 1) / kColumns;
  return SvgPicture(kColumns * kAlarmPanelWidth,
                    kHead + rows * kAlarmPanelHeight, body);
}

}  // namespace isoloss::report
