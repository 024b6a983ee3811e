// A claim's contrasts as a forest plot.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/document/result.h"
#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/claim.h"

namespace isoloss::report {
namespace {

using document::Shortened;
using document::SvgAxis;
using document::SvgLine;
using document::SvgPicture;
using document::SvgText;
namespace colour = document::colour;

constexpr int kClaimWidth = 860;
constexpr int kClaimHead = 88;
constexpr int kNoteHeight = 22;
constexpr int kRowHeight = 92;
constexpr int kStripLeft = 24;
constexpr int kStripRight = 24;
constexpr int kStripTop = 46;  // of a row
constexpr int kStripHeight = 24;
constexpr size_t kClaimTextWidth = 118;  // letters
constexpr double kClaimTickSpacing = 80;

std::string_view SideColour(claims::Side side) {
  if (side == claims::Side::kClaimed) return colour::kGreen;
  return side == claims::Side::kOther ? colour::kRed : colour::kInk;
}

std::string_view VerdictColour(claims::Verdict verdict) {
  if (verdict == claims::Verdict::kReproduced) return colour::kGreen;
  return verdict == claims::Verdict::kContradicted ? colour::kRed
                                                   : colour::kOrange;
}

/// The claim's side is green, the other one red, both pale.
std::string SideBox(double x1, double x2, double y, double height,
                    bool claimed) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill=\"{}\" fill-opacity=\"0.2\"/>\n",
      x1, y, x2 - x1, height, claimed ? colour::kGreen : colour::kRed);
}

/// One, or both of `within`, in ascending order.
std::vector<double> BoundsOf(const claims::Contrast& contrast) {
  if (contrast.relation != claims::Relation::kWithin) return {contrast.bound};
  return {-contrast.bound, contrast.bound};
}

/// It holds 0, the bounds and what is finite of the interval.
SvgAxis ContrastAxis(const claims::ContrastResult& result) {
  SvgAxis axis = SvgAxis::Horizontal(kStripLeft, kClaimWidth - kStripRight);
  for (const double bound : BoundsOf(result.contrast)) axis.Hold(bound);
  for (const double value :
       {0.0, result.estimate, result.lower, result.upper}) {
    axis.Hold(value);
  }
  axis.Widen(0.12);
  return axis;
}

std::string SidesSvg(const SvgAxis& axis, const claims::Contrast& contrast,
                     double y) {
  bool claimed = contrast.relation == claims::Relation::kBelow;
  double left = kStripLeft;
  std::string svg;
  for (const double bound : BoundsOf(contrast)) {
    svg += SideBox(left, axis.At(bound), y, kStripHeight, claimed);
    left = axis.At(bound);
    claimed = !claimed;
  }
  return svg +
         SideBox(left, kClaimWidth - kStripRight, y, kStripHeight, claimed);
}

std::string ClaimRow(const claims::ContrastResult& result, double top) {
  const claims::Contrast& contrast = result.contrast;
  const SvgAxis axis = ContrastAxis(result);
  std::string svg = SvgText(
      kStripLeft, top + 18,
      Shortened((contrast.role == claims::Role::kControl ? "Control: " : "") +
                    Printable(contrast.says),
                kClaimTextWidth),
      "font-weight=\"bold\"");
  svg += SvgText(
      kStripLeft, top + 36,
      fmt::format("{}, {} {}: {}", ContrastText(result), ExpectedWord(contrast),
                  claims::ClaimedText(contrast), SideText(result)),
      fmt::format("fill=\"{}\"", SideColour(result.side)));
  const double y = top + kStripTop;
  svg += SidesSvg(axis, contrast, y);
  svg += axis.Grid(
      y, y + kStripHeight,
      [](double tick) { return fmt::format("{:g}", tick + 0.0); },  // no -0
      kClaimTickSpacing);
  for (const double bound : BoundsOf(contrast)) {
    svg += SvgLine(axis.At(bound), y - 3, axis.At(bound), y + kStripHeight + 3,
                   colour::kInk, "stroke-dasharray=\"4 3\"");
  }
  return svg + axis.Whisker(y + kStripHeight / 2.0, result.estimate,
                            result.lower, result.upper,
                            SideColour(result.side));
}

}  // namespace

std::string RenderClaimSvg(const claims::ClaimResult& result) {
  std::string body =
      SvgText(kStripLeft, 28,
              fmt::format("{}: {}",
                          Shortened(Printable(result.claim.title), size_t{70}),
                          claims::WordOf(claims::kVerdicts, result.verdict)),
              fmt::format("font-weight=\"bold\" font-size=\"16\" fill=\"{}\"",
                          VerdictColour(result.verdict)));
  const std::string grey = fmt::format("fill=\"{}\"", colour::kGrey);
  body += SvgText(kStripLeft, 50, ConfidenceText(result), grey);
  body +=
      SvgText(kStripLeft, 70, "Intervals over seeds; dashed: the bound", grey);
  body += SideBox(300, 312, 60, 12, true);
  body += SvgText(318, 70, "the claim's or control's side", "");
  body += SideBox(520, 532, 60, 12, false);
  body += SvgText(538, 70, "the other side", "");
  double top = kClaimHead;
  if (!result.note.empty()) {
    body +=
        SvgText(kStripLeft, 90, Shortened(result.note + ".", kClaimTextWidth),
                fmt::format("fill=\"{}\"", VerdictColour(result.verdict)));
    top += kNoteHeight;
  }
  for (const claims::ContrastResult& contrast : result.contrasts) {
    body += ClaimRow(contrast, top);
    top += kRowHeight;
  }
  return SvgPicture(kClaimWidth, static_cast<int>(top) + 12, body);
}

}  // namespace isoloss::report
