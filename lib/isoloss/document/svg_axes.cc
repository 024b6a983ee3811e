#include "isoloss/document/svg_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/document/svg.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

constexpr double kLabelHeight = 14;
/// A sans-serif letter of 12 pixels takes about this width.
constexpr double kLetterWidth = 6.6;
constexpr double kForestSpacing = 80;  // of ticks
constexpr int kMostTicks = 200;

bool IsZero(double tick) { return std::fabs(tick) < 1e-12; }

/// Returns the smallest of 1, 2 or 5 times a power of ten that is at least
/// `least`.
double RoundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

}  // namespace

double SvgTextWidth(std::string_view text) {
  return kLetterWidth * static_cast<double>(text.size());
}

std::string SvgParagraph(double x, double& y, double width,
                         const std::string& text, std::string_view attributes) {
  constexpr double kLine = 18;
  constexpr size_t kMostLines = 20;
  std::string svg;
  for (const std::string& line :
       WrappedLines(text, 0, 0, kMostLines,
                    {.width = static_cast<int>(width / kLetterWidth)})) {
    svg += SvgText(x, y, line, attributes);
    y += kLine;
  }
  return svg;
}

std::string SvgDot(double x, double y, double radius, std::string_view colour,
                   std::string_view fill) {
  return fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" stroke=\"{}\" "
      "fill=\"{}\"/>\n",
      x, y, radius, colour, fill.empty() ? colour : fill);
}

std::string SignedTick(double value) {
  return IsZero(value) ? "0" : fmt::format("{:+.2g}", value);
}

SvgAxis SvgAxis::Horizontal(double left, double right, Scale scale) {
  return {true, left, right, scale, 1};
}

SvgAxis SvgAxis::Vertical(double bottom, double top, Scale scale, double unit) {
  return {false, bottom, top, scale, unit};
}

double SvgAxis::Place(double value) const {
  switch (scale_) {
    case Scale::kLog:
      return std::log10(value);
    case Scale::kAsinh:
      return std::asinh(value / unit_);
    case Scale::kLinear:
      break;
  }
  return value;
}

void SvgAxis::Hold(double value) {
  const double place = Place(value);
  if (!(std::fabs(place) <= kFurthestPlace)) return;
  least_ = std::min(least_, place);
  most_ = std::max(most_, place);
}

void SvgAxis::Widen(double share) {
  if (least_ > most_) least_ = most_ = 0;
  double by = std::max(std::fabs(least_) / 100, 1e-6);
  if (most_ > least_) {
    // No ticks fit between values that are a few roundings apart.
    constexpr double kLeastShare = 1e-9;
    constexpr double kTiny = 1e-300;
    const double furthest = std::max(std::fabs(least_), std::fabs(most_));
    by = std::max({share * (most_ - least_), kLeastShare * furthest, kTiny});
  }
  least_ -= by;
  most_ += by;
}

double SvgAxis::At(double value) const {
  const double share = (Place(value) - least_) / (most_ - least_);
  return from_ + std::clamp(share, 0.0, 1.0) * (to_ - from_);
}

bool SvgAxis::Holds(double value) const {
  const double place = Place(value);
  return least_ <= place && place <= most_;
}

std::vector<double> SvgAxis::TicksOfUnit(double spacing) const {
  std::vector<double> ticks = {0};
  double last = 0;
  for (double tick = unit_; Holds(tick) || Holds(-tick); tick *= 10) {
    if (std::fabs(At(tick) - At(last)) < spacing) continue;
    last = tick;
    for (const double value : {tick, -tick}) {
      if (Holds(value)) ticks.push_back(value);
    }
  }
  return ticks;
}

std::vector<double> SvgAxis::Ticks(double spacing) const {
  if (scale_ == Scale::kAsinh) return TicksOfUnit(spacing);
  const double least = (most_ - least_) * spacing / std::fabs(to_ - from_);
  const bool log = scale_ == Scale::kLog;
  // Ticks are at every power of ten, or at every second, third, ...
  const double step = log ? std::max(1.0, std::ceil(least)) : RoundStep(least);
  std::vector<double> ticks;
  const double first = std::ceil(least_ / step);
  double last = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < kMostTicks; ++i) {
    const double place = (first + i) * step;
    // A step that rounding swallows makes no further tick.
    if (!(last < place && place <= most_)) break;
    ticks.push_back(log ? std::pow(10, place) : place);
    last = place;
  }
  return ticks;
}

std::string SvgAxis::Grid(double begin, double end, const Label& label,
                          double spacing) const {
  const std::string text =
      fmt::format("font-size=\"11\" fill=\"{}\"", colour::kGrey);
  std::string svg;
  for (const double tick : Ticks(spacing)) {
    const double at = At(tick);
    const std::string_view line =
        IsZero(tick) ? colour::kZeroLine : colour::kGrid;
    if (horizontal_) {
      svg += SvgLine(at, begin, at, end, line);
      svg += SvgText(at, end + kLabelHeight, label(tick),
                     "text-anchor=\"middle\" " + text);
    } else {
      svg += SvgLine(begin, at, end, at, line);
      svg += SvgText(begin - 8, at + 4, label(tick),
                     "text-anchor=\"end\" " + text);
    }
  }
  return svg;
}

std::string SvgAxis::Arrow(double across, double end,
                           std::string_view colour) const {
  const double back = end == from_ ? 7 : -7;
  const double base = to_ > from_ ? end + back : end - back;
  const std::string points =
      horizontal_
          ? fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", end,
                        across, base, across - 4, base, across + 4)
          : fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", across,
                        end, across - 4, base, across + 4, base);
  return fmt::format("<polygon points=\"{}\" fill=\"{}\"/>\n", points, colour);
}

std::string SvgAxis::Bar(double across, double lower, double upper,
                         std::string_view colour) const {
  if (std::isnan(lower) || std::isnan(upper)) return "";
  const double from = At(lower);
  const double to = At(upper);
  std::string svg =
      horizontal_
          ? SvgLine(from, across, to, across, colour, "stroke-width=\"2\"")
          : SvgLine(across, from, across, to, colour, "stroke-width=\"2\"");
  if (!Holds(lower)) svg += Arrow(across, from, colour);
  if (!Holds(upper)) svg += Arrow(across, to, colour);
  return svg;
}

std::string SvgAxis::Whisker(double across, double estimate, double lower,
                             double upper, std::string_view colour) const {
  std::string bar = Bar(across, lower, upper, colour);
  if (!Holds(estimate)) return bar;
  const double at = At(estimate);
  return bar + SvgDot(horizontal_ ? at : across, horizontal_ ? across : at, 3.5,
                      colour);
}

std::string SvgLabels::Place(double x, double y, std::string_view text,
                             std::string_view colour, double left,
                             double right) {
  const double width = SvgTextWidth(text);
  const double begin = std::max(left, std::min(x - width / 2, right - width));
  const double wanted = y;
  const auto covered = [&](const std::array<double, 3>& other) {
    return begin < other[0] + other[1] + 4 && other[0] < begin + width + 4 &&
           std::fabs(y - other[2]) < kLabelHeight;
  };
  while (std::ranges::any_of(placed_, covered)) y -= kLabelHeight;
  placed_.push_back({begin, width, y});
  std::string svg;
  if (y < wanted) {
    svg = SvgLine(x, wanted, x, y + 3, colour, "stroke-width=\"0.5\"");
  }
  return svg + SvgText(begin, y, text, fmt::format("fill=\"{}\"", colour));
}

std::string SvgLegend(double x, double y, std::span<const SvgKey> keys) {
  std::string svg;
  for (const SvgKey& key : keys) {
    const std::string attributes = fmt::format("fill=\"{}\"", key.colour);
    svg += key.sign.empty() ? SvgDot(x + 4, y - 4, 3.5, key.colour)
                            : SvgText(x, y, key.sign, attributes);
    svg += SvgText(x + 13, y, key.label, attributes);
    x += 13 + SvgTextWidth(key.label) + 24;
  }
  return svg;
}

std::string SvgForest(double left, double right, double top,
                      std::span<const SvgForestRow> rows, bool zero,
                      const SvgAxis::Label& label) {
  SvgAxis axis = SvgAxis::Horizontal(left, right);
  for (const SvgForestRow& row : rows) {
    if (!row.instead.empty()) continue;
    for (const double value : {row.lower, row.upper, row.dot}) axis.Hold(value);
  }
  if (zero) axis.Hold(0);
  axis.Widen(0.04);
  const double bottom = top + kSvgForestRow * static_cast<double>(rows.size());
  std::string svg = axis.Grid(top - 8, bottom - 8, label, kForestSpacing);
  double y = top;
  for (const SvgForestRow& row : rows) {
    const std::string fill = fmt::format("fill=\"{}\"", row.colour);
    svg += SvgText(left - 10, y + 4, row.label, "text-anchor=\"end\" " + fill);
    if (!row.instead.empty()) {
      svg += SvgText(left + 10, y + 4, row.instead, fill);
    } else {
      svg += axis.Bar(y, row.lower, row.upper, row.colour);
      if (row.ring) {
        svg += SvgDot(axis.At(*row.ring), y, 3.5, row.colour, "#ffffff");
      }
      svg += SvgDot(axis.At(row.dot), y, 3, row.colour);
    }
    y += kSvgForestRow;
  }
  return svg;
}

}  // namespace isoloss::document
