#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"
#include "isoloss/report/ladder.h"
#include "isoloss/scaling/size_text.h"

namespace isoloss::report {
namespace {

using document::SignedTick;
using document::SvgAxis;
using document::SvgKey;
using document::SvgLabels;
using document::SvgLegend;
using document::SvgLine;
using document::SvgPicture;
using document::SvgText;
using document::SvgTitle;
namespace colour = document::colour;

using scaling::ArmStatement;
using scaling::GapInterval;
using scaling::LadderStatement;

constexpr int kPanelWidth = 860;
constexpr int kPanelHeight = 270;
constexpr int kLeft = 90;
constexpr int kRight = kPanelWidth - 40;
constexpr int kTop = 62;
constexpr int kBottom = kPanelHeight - 40;
constexpr double kShift = 7;         // between predictions of a size
constexpr double kFurthest = 300;    // margins
constexpr double kDecadeWidth = 32;  // of "10^24"

std::string_view ColourOf(scaling::Form form) {
  switch (form) {
    case scaling::Form::kPowerLaw:
      return colour::kBlue;
    case scaling::Form::kEffectiveSize:
      return colour::kOrange;
    case scaling::Form::kDataPenalty:
      break;
  }
  return colour::kGreen;
}

/// Gaps span orders of magnitude on both sides of 0: their axis is linear up to
/// the margin, and logarithmic beyond.
struct LadderAxes {
  SvgAxis x = SvgAxis::Horizontal(kLeft, kRight, SvgAxis::Scale::kLog);
  SvgAxis y;

  LadderAxes(const ArmStatement& arm, double margin, double confidence)
      : y(SvgAxis::Vertical(kBottom, kTop, SvgAxis::Scale::kAsinh, margin)) {
    const double most = kFurthest * margin;
    const auto hold = [&](const scaling::Size& size, const GapInterval& gap) {
      x.Hold(size.Flops());
      for (const double end : {gap.lower, gap.upper}) {
        if (!std::isfinite(end)) continue;
        y.Hold(std::min(std::fabs(end), most));
        y.Hold(-std::min(std::fabs(end), most));
      }
    };
    for (const scaling::GapCell& cell : arm.arm.cells) {
      hold(cell.size, scaling::MeasuredGap(cell, confidence));
    }
    for (const scaling::SizeStatement& size : arm.sizes) {
      for (const scaling::GapFit& fit : size.fits) {
        hold(size.size, fit.predicted);
      }
    }
    y.Hold(2 * margin);
    y.Hold(-2 * margin);
    x.Widen(0.03);
  }
};

std::string GridSvg(const LadderAxes& axes, double margin) {
  const auto decade = [](double flops) {
    return fmt::format("10^{:.0f}", std::log10(flops));
  };
  const double y = axes.y.At(margin);
  return axes.x.Grid(kTop, kBottom, decade, kDecadeWidth) +
         axes.y.Grid(kLeft, kRight, SignedTick, 14) +
         SvgLine(kLeft, y, kRight, y, colour::kRed, "stroke-dasharray=\"5 4\"");
}

std::string GapSvg(const LadderAxes& axes, double x, const GapInterval& gap,
                   std::string_view colour) {
  return axes.y.Whisker(x, gap.estimate, gap.lower, gap.upper, colour);
}

/// Of one size: its name, a line down, and all predictions.
std::string SizeSvg(const LadderAxes& axes, const scaling::SizeStatement& size,
                    SvgLabels& labels) {
  const double x = axes.x.At(size.size.Flops());
  std::string svg = SvgLine(x, kTop - 8, x, kBottom, colour::kZeroLine,
                            "stroke-dasharray=\"1 3\"");
  svg += labels.Place(x, kTop - 12, size.name, colour::kInk, kLeft,
                      kPanelWidth - 4);
  // Its own margin, which may be less than that of the dashed line.
  const double margin = axes.y.At(size.margin_nats);
  svg += SvgLine(x - 2 * kShift, margin, x + 2 * kShift, margin, colour::kRed);
  double shift = -kShift;
  for (const scaling::GapFit& fit : size.fits) {
    svg += GapSvg(axes, x + shift, fit.predicted, ColourOf(fit.form));
    shift += kShift;
  }
  return svg;
}

std::string PanelSvg(const ArmStatement& arm, const LadderStatement& statement,
                     int top) {
  const double confidence = statement.question.prediction.confidence;
  std::string title =
      arm.arm.name + " (" + scaling::ArmRoleName(arm.arm.role) + ")";
  for (const scaling::SizeStatement& size : arm.sizes) {
    title += (&size == &arm.sizes.front() ? ": " : ", ") + size.name + " " +
             scaling::ScaleVerdictName(size.verdict);
  }
  std::string svg = fmt::format("<g transform=\"translate(0 {})\">\n", top);
  svg += SvgText(16, 20, title, "font-weight=\"bold\"");
  if (arm.arm.cells.empty()) {
    return svg + SvgText(16, 44, "No size has two seeds.") + "</g>\n";
  }
  const LadderAxes axes(arm, statement.margin_nats, confidence);
  svg += GridSvg(axes, statement.margin_nats);
  for (const scaling::GapCell& cell : arm.arm.cells) {
    svg += GapSvg(axes, axes.x.At(cell.size.Flops()),
                  scaling::MeasuredGap(cell, confidence), colour::kInk);
  }
  SvgLabels labels;
  for (const scaling::SizeStatement& size : arm.sizes) {
    svg += SizeSvg(axes, size, labels);
  }
  return svg + "</g>\n";
}

}  // namespace

std::string RenderLadderSvg(const LadderStatement& statement) {
  constexpr int kHead = 84;
  std::string body = SvgTitle(
      16, 24,
      fmt::format("Gap to {} in nats over 6 N D operations, {:g} % intervals",
                  statement.baseline,
                  100 * statement.question.prediction.confidence));
  const std::array<SvgKey, 5> keys = {
      {{colour::kInk, "measured"},
       {colour::kBlue, "predicted by a power law"},
       {colour::kOrange, "by effective size"},
       {colour::kGreen, "by a data penalty"},
       {colour::kRed,
        fmt::format("margin, at the largest trained size {:.4f} nats",
                    statement.margin_nats),
        "--"}}};
  body += SvgLegend(16, 46, keys);
  body +=
      SvgText(16, 66,
              "The axis is logarithmic beyond the margin. Intervals with an "
              "arrow go on; without a dot, their estimate lies beyond, "
              "too.",
              fmt::format("fill=\"{}\"", colour::kGrey));
  int top = kHead;
  for (const ArmStatement& arm : statement.arms) {
    body += PanelSvg(arm, statement, top);
    top += kPanelHeight;
  }
  return SvgPicture(kPanelWidth, top + 8, body);
}

}  // namespace isoloss::report
