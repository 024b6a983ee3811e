#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/report/ladder.h"
#include "isoloss/report/svg.h"
#include "isoloss/scaling/size_text.h"

namespace isoloss::report {
namespace {

using scaling::ArmStatement;
using scaling::GapInterval;
using scaling::LadderStatement;

constexpr int kPanelWidth = 760;
constexpr int kPanelHeight = 260;
constexpr int kLeft = 90;
constexpr int kRight = 30;
constexpr int kTop = 52;
constexpr int kBottom = 48;
constexpr double kLabelHeight = 14;
constexpr std::string_view kMeasured = "#202124";
constexpr std::string_view kPowerColour = "#1a73e8";
constexpr std::string_view kEffectiveColour = "#e8710a";
constexpr std::string_view kPenaltyColour = "#188038";
constexpr std::string_view kMarginColour = "#d93025";

std::string_view ColourOf(scaling::Form form) {
  switch (form) {
    case scaling::Form::kPowerLaw:
      return kPowerColour;
    case scaling::Form::kEffectiveSize:
      return kEffectiveColour;
    case scaling::Form::kDataPenalty:
      break;
  }
  return kPenaltyColour;
}

/// Gaps span orders of magnitude on both sides of 0, so that the axis is
/// asinh(gap / margin): linear up to the margin, logarithmic beyond.
class LadderAxes {
 public:
  LadderAxes(const ArmStatement& arm, double margin, double confidence)
      : margin_(margin) {
    const auto extend = [this](const scaling::Size& size,
                               const GapInterval& gap) {
      const double x = std::log10(size.Flops());
      least_x_ = std::min(least_x_, x);
      most_x_ = std::max(most_x_, x);
      for (const double end : {gap.lower, gap.upper}) {
        if (std::isfinite(end)) {
          reach_ = std::max(reach_, std::fabs(std::asinh(end / margin_)));
        }
      }
    };
    for (const scaling::GapCell& cell : arm.arm.cells) {
      extend(cell.size, scaling::MeasuredGap(cell, confidence));
    }
    for (const scaling::SizeStatement& size : arm.sizes) {
      for (const scaling::GapFit& fit : size.fits) {
        extend(size.size, fit.predicted);
      }
    }
    reach_ = std::min(reach_, std::asinh(kFurthest));
    least_x_ -= 0.5;
    most_x_ += 0.5;
  }

  double X(double flops) const {
    const double share = (std::log10(flops) - least_x_) / (most_x_ - least_x_);
    return kLeft + share * (kPanelWidth - kLeft - kRight);
  }
  /// What lies beyond the axis is drawn at its end.
  double Y(double gap) const {
    const double y =
        std::clamp(std::asinh(gap / margin_), -reach_, reach_) / reach_;
    const double middle = kTop + (kPanelHeight - kTop - kBottom) / 2.0;
    return middle - y * (kPanelHeight - kTop - kBottom) / 2.0;
  }
  bool Holds(double gap) const {
    return std::fabs(std::asinh(gap / margin_)) <= reach_;
  }
  double least_x() const { return least_x_; }
  double most_x() const { return most_x_; }
  double reach() const { return reach_; }
  double margin() const { return margin_; }

 private:
  static constexpr double kFurthest = 300;  // margins
  double margin_;
  double least_x_ = 1e300;
  double most_x_ = -1e300;
  double reach_ = 1.5;
};

/// A dot; at the end of the axis an arrow, if the gap lies beyond it.
std::string Mark(const LadderAxes& axes, double x, double gap,
                 std::string_view colour) {
  const double y = axes.Y(gap);
  if (!axes.Holds(gap)) {
    const double tip = gap > 0 ? y - 6 : y + 6;
    return fmt::format(
        "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\" "
        "fill=\"{}\"/>\n",
        x, tip, x - 4, y, x + 4, y, colour);
  }
  return fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y,
      colour);
}

/// A point with its interval.
std::string Whisker(const LadderAxes& axes, double x, const GapInterval& gap,
                    std::string_view colour) {
  return SvgLine(x, axes.Y(gap.lower), x, axes.Y(gap.upper), colour,
                 "stroke-width=\"2\" ") +
         Mark(axes, x, gap.estimate, colour);
}

std::string AxesSvg(const LadderAxes& axes) {
  std::string svg;
  constexpr double kEnd = kPanelWidth - kRight;
  // Ticks in margins: 0, 1, and powers of ten as far as the axis goes, where
  // a label has room.
  double last = axes.Y(0) + kLabelHeight;
  for (double margins = 0; std::asinh(margins) <= axes.reach();
       margins = margins == 0 ? 1 : 10 * margins) {
    if (last - axes.Y(margins * axes.margin()) < kLabelHeight) continue;
    last = axes.Y(margins * axes.margin());
    for (const double sign : {1.0, -1.0}) {
      if (margins == 0 && sign < 0) continue;
      const double gap = sign * margins * axes.margin();
      const double y = axes.Y(gap);
      svg += SvgLine(kLeft, y, kEnd, y, margins == 0 ? "#80868b" : "#e8eaed");
      svg += SvgText(kLeft - 8, y + 4, fmt::format("{:+.2g}", gap),
                     "text-anchor=\"end\" fill=\"#5f6368\"");
    }
  }
  const double y = axes.Y(axes.margin());
  svg += SvgLine(kLeft, y, kEnd, y, kMarginColour, "stroke-dasharray=\"5 4\"");
  for (double x = std::ceil(axes.least_x()); x <= axes.most_x(); x += 1) {
    const double place = axes.X(std::pow(10, x));
    if (std::fmod(x, 2) != 0) continue;
    svg +=
        SvgText(place, kPanelHeight - kBottom + 18, fmt::format("10^{:g}", x),
                "text-anchor=\"middle\" fill=\"#5f6368\"");
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
  svg += SvgText(kLeft, 24, title, "font-weight=\"bold\"");
  if (arm.arm.cells.empty()) {
    return svg + SvgText(kLeft, 48, "No size has two seeds.") + "</g>\n";
  }
  const LadderAxes axes(arm, statement.margin_nats, confidence);
  svg += AxesSvg(axes);
  for (const scaling::GapCell& cell : arm.arm.cells) {
    svg += Whisker(axes, axes.X(cell.size.Flops()),
                   scaling::MeasuredGap(cell, confidence), kMeasured);
  }
  for (const scaling::SizeStatement& size : arm.sizes) {
    double shift = -4;
    for (const scaling::GapFit& fit : size.fits) {
      svg += Whisker(axes, axes.X(size.size.Flops()) + shift, fit.predicted,
                     ColourOf(fit.form));
      shift = 4;
    }
    svg += SvgText(axes.X(size.size.Flops()), kTop - 14, size.name,
                   "text-anchor=\"middle\" fill=\"#5f6368\"");
  }
  return svg + "</g>\n";
}

}  // namespace

std::string RenderLadderSvg(const LadderStatement& statement) {
  constexpr int kHead = 64;
  std::string body =
      SvgText(16, 24,
              fmt::format("Gap to {} in nats over 6 N D operations, {:g} % "
                          "intervals",
                          statement.baseline,
                          100 * statement.question.prediction.confidence),
              "font-weight=\"bold\" font-size=\"14\"");
  body += SvgText(16, 46, "measured", fmt::format("fill=\"{}\"", kMeasured));
  body += SvgText(100, 46, "predicted by a power law",
                  fmt::format("fill=\"{}\"", kPowerColour));
  body += SvgText(270, 46, "predicted by effective size",
                  fmt::format("fill=\"{}\"", kEffectiveColour));
  body += SvgText(460, 46,
                  fmt::format("margin {:.4f} nats; beyond it the axis is "
                              "logarithmic",
                              statement.margin_nats),
                  fmt::format("fill=\"{}\"", kMarginColour));
  int top = kHead;
  for (const ArmStatement& arm : statement.arms) {
    body += PanelSvg(arm, statement, top);
    top += kPanelHeight;
  }
  return SvgPicture(kPanelWidth, top + 8, body);
}

}  // namespace isoloss::report
