// A claim's contrasts as a forest plot.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/report/ci_result.h"
#include "isoloss/report/claim.h"
#include "isoloss/report/svg.h"

namespace isoloss::report {
namespace {

constexpr int kClaimWidth = 860;
constexpr int kClaimHead = 88;
constexpr int kNoteHeight = 22;
constexpr int kRowHeight = 92;
constexpr int kStripLeft = 24;
constexpr int kStripRight = 24;
constexpr int kStripTop = 46;  // of a row
constexpr int kStripHeight = 24;
constexpr size_t kClaimTextWidth = 118;  // letters

constexpr std::string_view kClaimedColour = "#ceead6";
constexpr std::string_view kOtherColour = "#fad2cf";
constexpr std::string_view kGrey = "#5f6368";

std::string_view SideColour(claims::Side side) {
  if (side == claims::Side::kClaimed) return "#188038";
  return side == claims::Side::kOther ? "#c5221f" : "#3c4043";
}

std::string_view VerdictColour(claims::Verdict verdict) {
  if (verdict == claims::Verdict::kReproduced) return "#188038";
  return verdict == claims::Verdict::kContradicted ? "#c5221f" : "#b06000";
}

std::string ClaimBox(double x1, double x2, double y, double height,
                     std::string_view colour) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill=\"{}\"/>\n",
      std::min(x1, x2), y, std::fabs(x2 - x1), height, colour);
}

/// 1, 2 or 5 times a power of ten, about a sixth of `span`.
double TickStep(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 6)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= 7) return factor * power;
  }
  return 10 * power;
}

/// The axis of one contrast: it holds 0, the bounds and what is finite of the
/// interval.
class ContrastAxis {
 public:
  explicit ContrastAxis(const claims::ContrastResult& result) {
    const claims::Contrast& contrast = result.contrast;
    bounds_ = {contrast.bound};
    if (contrast.relation == claims::Relation::kWithin) {
      bounds_.insert(bounds_.begin(), -contrast.bound);
    }
    std::vector<double> values = bounds_;
    values.push_back(0);
    for (const double value : {result.estimate, result.lower, result.upper}) {
      if (std::isfinite(value)) values.push_back(value);
    }
    const auto [least, most] = std::ranges::minmax(values);
    const double room = most > least ? 0.12 * (most - least) : 1;
    least_ = least - room;
    most_ = most + room;
  }

  /// Infinite ends are drawn at the axis's end.
  double X(double value) const {
    const double share =
        (std::clamp(value, least_, most_) - least_) / (most_ - least_);
    return kStripLeft + share * (kClaimWidth - kStripLeft - kStripRight);
  }
  double least() const { return least_; }
  double most() const { return most_; }
  const std::vector<double>& bounds() const { return bounds_; }

 private:
  std::vector<double> bounds_;
  double least_ = -1;
  double most_ = 1;
};

/// Green where the claim puts the value, red elsewhere.
std::string SidesSvg(const ContrastAxis& axis, claims::Relation relation,
                     double y) {
  const double left = axis.X(axis.least());
  const double right = axis.X(axis.most());
  const double first = axis.X(axis.bounds().front());
  const double last = axis.X(axis.bounds().back());
  if (relation == claims::Relation::kWithin) {
    return ClaimBox(left, right, y, kStripHeight, kOtherColour) +
           ClaimBox(first, last, y, kStripHeight, kClaimedColour);
  }
  const bool above = relation == claims::Relation::kAbove;
  return ClaimBox(left, first, y, kStripHeight,
                  above ? kOtherColour : kClaimedColour) +
         ClaimBox(first, right, y, kStripHeight,
                  above ? kClaimedColour : kOtherColour);
}

std::string TicksSvg(const ContrastAxis& axis, double y) {
  std::string svg;
  const double step = TickStep(axis.most() - axis.least());
  const auto first = static_cast<int64_t>(std::ceil(axis.least() / step));
  const auto last = static_cast<int64_t>(std::floor(axis.most() / step));
  for (int64_t tick = first; tick <= last; ++tick) {
    const double value = static_cast<double>(tick) * step;
    const double x = axis.X(value);
    svg += SvgLine(x, y, x, y + 4, kGrey, "");
    svg += SvgText(x, y + 16, fmt::format("{:g}", value),
                   fmt::format("text-anchor=\"middle\" font-size=\"10\" "
                               "fill=\"{}\"",
                               kGrey));
  }
  return svg;
}

std::string ClaimRow(const claims::ContrastResult& result, double top) {
  const claims::Contrast& contrast = result.contrast;
  const ContrastAxis axis(result);
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
  const double middle = y + kStripHeight / 2.0;
  svg += SidesSvg(axis, contrast.relation, y);
  for (const double bound : axis.bounds()) {
    svg += SvgLine(axis.X(bound), y - 3, axis.X(bound), y + kStripHeight + 3,
                   "#202124", "stroke-dasharray=\"4 3\"");
  }
  if (std::isfinite(result.estimate)) {
    svg += SvgLine(axis.X(result.lower), middle, axis.X(result.upper), middle,
                   SideColour(result.side), "stroke-width=\"3\"");
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n",
        axis.X(result.estimate), middle, SideColour(result.side));
  }
  return svg + TicksSvg(axis, y + kStripHeight);
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
  const std::string grey = fmt::format("fill=\"{}\"", kGrey);
  body += SvgText(kStripLeft, 50, ConfidenceText(result), grey);
  body +=
      SvgText(kStripLeft, 70, "Intervals over seeds; dashed: the bound", grey);
  body += ClaimBox(300, 312, 60, 12, kClaimedColour);
  body += SvgText(318, 70, "the claim's or control's side", "");
  body += ClaimBox(520, 532, 60, 12, kOtherColour);
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
