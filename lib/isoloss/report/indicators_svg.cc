#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"
#include "isoloss/report/indicators.h"

namespace isoloss::report {
namespace {

using document::SignedTick;
using document::SvgAxis;
using document::SvgKey;
using document::SvgLegend;
using document::SvgLine;
using document::SvgPicture;
using document::SvgText;
using document::SvgTitle;
namespace colour = document::colour;

using indicators::Alarm;
using indicators::IndicatorRun;
using indicators::IndicatorStatement;
using indicators::KindOf;
using indicators::RuleStatement;
using indicators::RunAlarm;

constexpr int kAlarmPanelWidth = 430;
constexpr int kAlarmPanelHeight = 210;
constexpr int kAlarmLeft = 46;
constexpr int kAlarmRight = kAlarmPanelWidth - 20;
constexpr int kAlarmTop = 46;
constexpr int kAlarmBottom = kAlarmPanelHeight - 40;
/// Doublings from the level that a panel shows; what is further away is drawn
/// at its edge.
constexpr double kAlarmReach = 6;

struct AlarmAxes {
  SvgAxis steps = SvgAxis::Horizontal(kAlarmLeft, kAlarmRight);
  SvgAxis doublings = SvgAxis::Vertical(kAlarmBottom, kAlarmTop);

  explicit AlarmAxes(int64_t last) {
    steps.Hold(0);
    steps.Hold(static_cast<double>(last));
    doublings.Hold(-kAlarmReach);
    doublings.Hold(kAlarmReach);
  }
  double X(int64_t step) const { return steps.At(static_cast<double>(step)); }

  std::string Grid() const {
    const auto step = [](double tick) { return fmt::format("{:g}", tick); };
    const auto level = [](double tick) {
      return tick == 0 ? "alarm" : SignedTick(tick);
    };
    const double y = doublings.At(0);
    return doublings.Grid(kAlarmLeft, kAlarmRight, level, 20) +
           steps.Grid(kAlarmTop, kAlarmBottom, step, 80) +
           SvgLine(kAlarmLeft, y, kAlarmRight, y, colour::kInk,
                   "stroke-dasharray=\"5 4\"");
  }
};

/// One run's distance from its level; a gap where nothing was measured. At the
/// bottom a mark for the step at which it diverged.
std::string AlarmCurve(const AlarmAxes& axes, const IndicatorRun& run,
                       const RuleStatement& rule, double level) {
  const auto& kind = KindOf(rule.rule.indicator);
  const std::string_view ink = run.diverged_at ? colour::kRed : colour::kBlue;
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
                        axes.X(run.steps[i]), axes.doublings.At(distance));
    drawing = true;
  }
  std::string svg;
  if (!path.empty()) {
    svg = fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"0.45\" "
        "stroke-width=\"1.2\"/>\n",
        path, ink);
  }
  if (!run.diverged_at) return svg;
  const double x = axes.X(*run.diverged_at);
  return svg + SvgLine(x, kAlarmBottom - 9, x, kAlarmBottom, ink,
                       "stroke-width=\"1.5\"");
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
  const AlarmAxes axes(last);
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
      curves += AlarmCurve(axes, run, rule, *alarm.level);
    }
  }
  svg += axes.Grid() + curves;
  if (curves.empty()) {
    svg += SvgText((kAlarmLeft + kAlarmRight) / 2.0,
                   (kAlarmTop + kAlarmBottom) / 2.0 - 8,
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
  std::string body = SvgTitle(
      16, 24,
      "Indicators of the judged runs over steps, in doublings from the level "
      "that alarms");
  const std::array<SvgKey, 2> keys = {
      {{colour::kBlue, "stayed healthy"},
       {colour::kRed, "diverged, at the step of the mark"}}};
  body += SvgLegend(16, 46, keys);
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
