#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"
#include "isoloss/report/sites.h"

namespace isoloss::report {
namespace {

using document::SignedTick;
using document::SvgAxis;
using document::SvgDot;
using document::SvgForest;
using document::SvgForestRow;
using document::SvgKey;
using document::SvgLabels;
using document::SvgLegend;
using document::SvgLine;
using document::SvgPicture;
using document::SvgText;
using document::SvgTitle;
namespace colour = document::colour;
using document::kSvgForestRow;

using sites::SetFinding;
using sites::Statement;

constexpr int kSitesWidth = 860;
constexpr int kSitesLeft = 76;
constexpr int kSitesRight = kSitesWidth - 40;
constexpr int kFrontierTop = 84;
constexpr int kFrontierBottom = 404;
constexpr int kRankingTop = 520;
constexpr int kRankingLeft = 210;

/// Sets are numbered in the picture, in the order of the findings.
std::string NumberOf(const Statement& statement, const SetFinding& set) {
  return fmt::format("{}", &set - statement.findings.sets.data() + 1);
}

/// The frontier's drawing.
class FrontierPanel {
 public:
  explicit FrontierPanel(const Statement& statement)
      : statement_(statement), findings_(statement.findings) {
    // The axes hold every finite prediction and interval that is drawn.
    const auto hold = [&](const stats::MeanInterval& interval) {
      y_.Hold(statement.Percent(interval.lower));
      y_.Hold(statement.Percent(interval.upper));
    };
    const auto hold_set = [&](const SetFinding& set) {
      x_.Hold(set.speed_up);
      y_.Hold(statement.Percent(set.predicted.mean));
      if (set.measured) hold(*set.measured);
    };
    for (const SetFinding& step : findings_.frontier) {
      x_.Hold(step.speed_up);
      hold(step.predicted);
    }
    for (const SetFinding& set : findings_.sets) hold_set(set);
    if (findings_.recipe) hold_set(*findings_.recipe);
    y_.Hold(1.2 * statement.margin_percent);
    y_.Hold(0);
    x_.Widen(0.04);
    y_.Widen(0.05);
  }

  std::string Draw() {
    std::string svg = Grid() + Band() + Line();
    for (const SetFinding& set : findings_.sets) {
      svg += Set(set, NumberOf(statement_, set), colour::kOrange);
    }
    if (findings_.recipe) {
      svg += Set(*findings_.recipe, "R", colour::kGreen);
    }
    return svg;
  }

 private:
  double Y(double nats) const { return y_.At(statement_.Percent(nats)); }

  std::string Grid() const {
    const auto plain = [](double tick) { return fmt::format("{:.4g}", tick); };
    const double y = y_.At(statement_.margin_percent);
    return x_.Grid(kFrontierTop, kFrontierBottom, plain, 80) +
           y_.Grid(kSitesLeft, kSitesRight, SignedTick, 32) +
           SvgLine(kSitesLeft, y, kSitesRight, y, colour::kRed,
                   "stroke-dasharray=\"5 4\"") +
           SvgText(kSitesWidth / 2.0, kFrontierBottom + 34,
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
        colour::kBlue);
  }

  std::string Line() const {
    std::string points;
    std::string dots;
    for (const SetFinding& step : findings_.frontier) {
      const double x = x_.At(step.speed_up);
      const double y = Y(step.predicted.mean);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += SvgDot(x, y, 2, colour::kBlue);
    }
    return fmt::format(
               "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n",
               points, colour::kBlue) +
           dots;
  }

  /// Measured: a dot with its interval; predicted: a ring, unless it is
  /// infinite. The name stands above both.
  std::string Set(const SetFinding& set, const std::string& name,
                  std::string_view colour) {
    const double x = x_.At(set.speed_up);
    const double predicted = statement_.Percent(set.predicted.mean);
    double top = kFrontierBottom;
    std::string svg;
    if (y_.Holds(predicted)) {
      top = y_.At(predicted);
      svg += SvgDot(x, top, 4, colour, "none");
    }
    if (set.measured) {
      svg += y_.Whisker(x, statement_.Percent(set.measured->mean),
                        statement_.Percent(set.measured->lower),
                        statement_.Percent(set.measured->upper), colour);
      top = std::min(top, Y(set.measured->upper));
    }
    return svg +
           labels_.Place(x, top - 8, name, colour, kSitesLeft, kSitesWidth - 6);
  }

  const Statement& statement_;
  const sites::Findings& findings_;
  SvgAxis x_ = SvgAxis::Horizontal(kSitesLeft, kSitesRight);
  SvgAxis y_ = SvgAxis::Vertical(kFrontierBottom, kFrontierTop);
  SvgLabels labels_;
};

std::string RankingPanel(const Statement& statement) {
  std::vector<SvgForestRow> rows;
  for (const sites::ProductFinding& finding : statement.findings.ranked) {
    const bool harmful = finding.adjusted < sites::kHarmful;
    rows.push_back({.label = statement.products[finding.product].Name(),
                    .colour = harmful ? colour::kRed : colour::kGrey,
                    .lower = statement.Percent(finding.harm.lower),
                    .upper = statement.Percent(finding.harm.upper),
                    .dot = statement.Percent(finding.harm.mean),
                    .instead = finding.unstable ? "no finite loss" : ""});
  }
  return SvgForest(kRankingLeft, kSitesRight, kRankingTop, rows, /*zero=*/true,
                   SignedTick);
}

}  // namespace

std::string RenderSitesSvg(const Statement& statement) {
  std::string body = SvgTitle(
      16, 24,
      fmt::format("{}: gap to {} in % of the loss against speed-up, 95 % "
                  "intervals",
                  statement.candidate, statement.baseline));
  const std::array<SvgKey, 4> keys = {
      {{colour::kBlue, "predicted frontier"},
       {colour::kOrange, "sets: trained (dot), predicted (ring, if finite)"},
       {colour::kGreen, "recipe", "R"},
       {colour::kRed, fmt::format("margin {:g} %", statement.margin_percent),
        "--"}}};
  body += SvgLegend(16, 46, keys);
  body += FrontierPanel(statement).Draw();
  std::vector<SvgKey> sets;
  for (const SetFinding& set : statement.findings.sets) {
    sets.push_back({colour::kOrange, set.set.name, NumberOf(statement, set)});
  }
  body += SvgLegend(kSitesLeft, kFrontierBottom + 58, sets);
  body += SvgTitle(
      16, kRankingTop - 24,
      fmt::format("Harm of each product, % of the loss, 95 % intervals; red: "
                  "above 0 with adjusted p < {:g}",
                  sites::kHarmful));
  body += RankingPanel(statement);
  const double rows =
      kSvgForestRow * static_cast<double>(statement.findings.ranked.size());
  return SvgPicture(kSitesWidth, kRankingTop + static_cast<int>(rows) + 24,
                    body);
}

}  // namespace isoloss::report
