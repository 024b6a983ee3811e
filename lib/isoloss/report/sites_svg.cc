#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/report/sites.h"
#include "isoloss/report/svg.h"

namespace isoloss::report {
namespace {

using sites::SetFinding;
using sites::Statement;

constexpr int kSitesWidth = 860;
constexpr int kSitesLeft = 76;
constexpr int kSitesRight = 40;
constexpr int kFrontierTop = 84;
constexpr int kFrontierBottom = 404;
constexpr int kRankingTop = 500;
constexpr int kRankingRow = 17;
constexpr int kRankingLeft = 210;
constexpr std::string_view kFrontierColour = "#1a73e8";
constexpr std::string_view kSetColour = "#e8710a";
constexpr std::string_view kRecipeColour = "#188038";
constexpr std::string_view kMarginLine = "#d93025";
constexpr std::string_view kGrey = "#5f6368";
/// Ticks of an axis, about.
constexpr double kTicks = 8;

std::string Dot(double x, double y, std::string_view colour,
                std::string_view fill) {
  return fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" stroke=\"{}\" "
      "fill=\"{}\"/>\n",
      x, y, colour, fill);
}

/// From one end of a drawing to the other.
class Axis {
 public:
  Axis(double from, double to) : from_(from), to_(to) {}

  void Hold(double value) {
    if (!std::isfinite(value)) return;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
  }
  void Widen(double share) {
    const double by = std::max(share * (most_ - least_), 1e-9);
    least_ -= by;
    most_ += by;
  }
  /// What lies beyond an end is drawn there.
  double At(double value) const {
    const double share = (value - least_) / (most_ - least_);
    return from_ + std::clamp(share, 0.0, 1.0) * (to_ - from_);
  }
  std::vector<double> Ticks() const {
    const double rough = (most_ - least_) / kTicks;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (factor * power >= rough) step = factor * power;
    }
    std::vector<double> ticks;
    for (double i = std::ceil(least_ / step); i * step <= most_; ++i) {
      ticks.push_back(i * step);
    }
    return ticks;
  }

 private:
  double from_;
  double to_;
  double least_ = 1e300;
  double most_ = -1e300;
};

/// The frontier's drawing.
class FrontierPanel {
 public:
  explicit FrontierPanel(const Statement& statement)
      : statement_(statement), findings_(statement.findings) {
    // Intervals of measured sets count; the frontier's grow wide at its end,
    // and are cut where its own means and these end.
    const auto hold = [&](const stats::MeanInterval& interval) {
      y_.Hold(statement.Percent(interval.lower));
      y_.Hold(statement.Percent(interval.upper));
    };
    for (const SetFinding& step : findings_.frontier) {
      x_.Hold(step.speed_up);
      hold(step.predicted);
    }
    for (const SetFinding& set : findings_.sets) {
      x_.Hold(set.speed_up);
      if (set.measured) hold(*set.measured);
    }
    y_.Hold(1.2 * statement.margin_percent);
    y_.Hold(0);
    x_.Widen(0.04);
    y_.Widen(0.05);
  }

  std::string Draw() {
    std::string svg = Axes() + Band() + Line();
    for (const SetFinding& set : findings_.sets) {
      svg += Set(set, set.set.name, kSetColour);
    }
    if (findings_.recipe) {
      svg += Set(*findings_.recipe, "recipe", kRecipeColour);
    }
    return svg;
  }

 private:
  double Y(double nats) const { return y_.At(statement_.Percent(nats)); }

  std::string Axes() const {
    std::string svg;
    for (const double tick : y_.Ticks()) {
      const double y = y_.At(tick);
      const bool zero = std::fabs(tick) < 1e-12;
      svg += SvgLine(kSitesLeft, y, kSitesWidth - kSitesRight, y,
                     zero ? "#80868b" : "#e8eaed");
      svg += SvgText(kSitesLeft - 8, y + 4,
                     zero ? "0" : fmt::format("{:+.2g}", tick),
                     "text-anchor=\"end\" fill=\"#5f6368\"");
    }
    for (const double tick : x_.Ticks()) {
      svg += SvgText(x_.At(tick), kFrontierBottom + 18,
                     fmt::format("{:.4g}", tick),
                     "text-anchor=\"middle\" fill=\"#5f6368\"");
    }
    const double y = y_.At(statement_.margin_percent);
    svg += SvgLine(kSitesLeft, y, kSitesWidth - kSitesRight, y, kMarginLine,
                   "stroke-dasharray=\"5 4\"");
    return svg +
           SvgText(kSitesWidth / 2, kFrontierBottom + 38,
                   fmt::format("times as fast as BF16 + DeepEP, {} on {}, "
                               "by the speed model",
                               statement_.speed.work().name,
                               statement_.speed.hardware().name),
                   "text-anchor=\"middle\"");
  }

  std::string Band() const {
    std::string points;
    const auto add = [&](double x, double nats) {
      points += fmt::format("{:.1f},{:.1f} ", x_.At(x), Y(nats));
    };
    for (const SetFinding& step : findings_.frontier) {
      add(step.speed_up, step.predicted.upper);
    }
    for (size_t i = findings_.frontier.size(); i-- > 0;) {
      add(findings_.frontier[i].speed_up,
          findings_.frontier[i].predicted.lower);
    }
    return fmt::format(
        "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.14\"/>\n", points,
        kFrontierColour);
  }

  std::string Line() const {
    std::string points;
    std::string dots;
    for (const SetFinding& step : findings_.frontier) {
      const double x = x_.At(step.speed_up);
      const double y = Y(step.predicted.mean);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\"/>\n", x, y,
          kFrontierColour);
    }
    return fmt::format(
               "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n",
               points, kFrontierColour) +
           dots;
  }

  /// Measured: filled, with its interval; predicted: a ring.
  std::string Set(const SetFinding& set, const std::string& name,
                  std::string_view colour) {
    const double x = x_.At(set.speed_up);
    std::string svg = Dot(x, Y(set.predicted.mean), colour, "none");
    double top = Y(set.predicted.mean);
    double anchor = top;
    if (set.measured) {
      svg += SvgLine(x, Y(set.measured->lower), x, Y(set.measured->upper),
                     colour, "stroke-width=\"2\"");
      svg += Dot(x, Y(set.measured->mean), colour, colour);
      anchor = Y(set.measured->upper);
      top = std::min(top, anchor);
    }
    const double width = 6.6 * static_cast<double>(name.size());
    const double left =
        std::clamp(x - width / 2, double{kSitesLeft}, kSitesWidth - width - 6);
    const double y = PlaceLabel(left, width, top - 8);
    // A label that had to move is joined to its point.
    if (y < top - 9)
      svg += SvgLine(x, top, x, y + 3, colour, "stroke-width=\"0.5\"");
    return svg + SvgText(left, y, name, fmt::format("fill=\"{}\"", colour));
  }

  /// The first place at or above `y` where the label covers no other.
  double PlaceLabel(double left, double width, double y) {
    constexpr double kLine = 14;
    const auto covered = [&](const std::array<double, 3>& other) {
      return left < other[0] + other[1] + 4 && other[0] < left + width + 4 &&
             std::fabs(y - other[2]) < kLine;
    };
    while (std::ranges::any_of(labels_, covered)) y -= kLine;
    labels_.push_back({left, width, y});
    return y;
  }

  const Statement& statement_;
  const sites::Findings& findings_;
  Axis x_{kSitesLeft, kSitesWidth - kSitesRight};
  Axis y_{kFrontierBottom, kFrontierTop};
  std::vector<std::array<double, 3>> labels_;  // left, width, y
};

std::string RankingPanel(const Statement& statement) {
  Axis x(kRankingLeft, kSitesWidth - kSitesRight);
  for (const sites::PieceFinding& finding : statement.findings.ranked) {
    x.Hold(statement.Percent(finding.harm.lower));
    x.Hold(statement.Percent(finding.harm.upper));
  }
  x.Hold(0);
  x.Widen(0.04);
  const auto rows = static_cast<int>(statement.findings.ranked.size());
  const int bottom = kRankingTop + rows * kRankingRow;
  std::string svg;
  for (const double tick : x.Ticks()) {
    const bool zero = std::fabs(tick) < 1e-12;
    svg += SvgLine(x.At(tick), kRankingTop - 8, x.At(tick), bottom - 8,
                   zero ? "#80868b" : "#e8eaed");
    svg += SvgText(x.At(tick), bottom + 8,
                   zero ? "0" : fmt::format("{:+.2g}", tick),
                   "text-anchor=\"middle\" fill=\"#5f6368\"");
  }
  int y = kRankingTop;
  for (const sites::PieceFinding& finding : statement.findings.ranked) {
    const bool harmful = finding.adjusted < sites::kHarmful;
    const std::string_view colour = harmful ? kMarginLine : kGrey;
    svg += SvgText(kRankingLeft - 10, y + 4,
                   statement.pieces[finding.piece].Name(),
                   fmt::format("text-anchor=\"end\" fill=\"{}\"", colour));
    if (finding.unstable) {
      svg += SvgText(kRankingLeft + 10, y + 4, "no finite loss",
                     fmt::format("fill=\"{}\"", colour));
    } else {
      svg += SvgLine(x.At(statement.Percent(finding.harm.lower)), y,
                     x.At(statement.Percent(finding.harm.upper)), y, colour,
                     "stroke-width=\"2\"");
      svg +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n",
                      x.At(statement.Percent(finding.harm.mean)), y, colour);
    }
    y += kRankingRow;
  }
  return svg;
}

}  // namespace

std::string RenderSitesSvg(const Statement& statement) {
  std::string body = SvgText(
      16, 24,
      fmt::format("{}: gap to {} in % of the loss against speed-up, 95 % "
                  "intervals",
                  statement.candidate, statement.baseline),
      "font-weight=\"bold\" font-size=\"14\"");
  body += SvgText(16, 46, "predicted frontier",
                  fmt::format("fill=\"{}\"", kFrontierColour));
  body += SvgText(140, 46, "sets: trained (filled), predicted (ring)",
                  fmt::format("fill=\"{}\"", kSetColour));
  body += SvgText(390, 46, "recipe", fmt::format("fill=\"{}\"", kRecipeColour));
  body +=
      SvgText(450, 46, fmt::format("margin {:g} %", statement.margin_percent),
              fmt::format("fill=\"{}\"", kMarginLine));
  body += FrontierPanel(statement).Draw();
  body += SvgText(
      16, kRankingTop - 32,
      fmt::format("Harm of each product, % of the loss, 95 % intervals; red: "
                  "above 0 with adjusted p < {:g}",
                  sites::kHarmful),
      "font-weight=\"bold\" font-size=\"14\"");
  body += RankingPanel(statement);
  const auto rows = static_cast<int>(statement.findings.ranked.size());
  return SvgPicture(kSitesWidth, kRankingTop + rows * kRankingRow + 24, body);
}

}  // namespace isoloss::report
