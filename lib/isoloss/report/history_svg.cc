#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/markup.h"
#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"
#include "isoloss/report/history.h"

namespace isoloss::report {
namespace {

using document::EscapedMarkup;
using document::SvgAxis;
using document::SvgPicture;
using document::SvgText;
using document::SvgTitle;
namespace colour = document::colour;

using compare::Figure;
using compare::FigurePoint;
using compare::FigureSeries;
using compare::Movement;

constexpr int kWidth = 960;
constexpr int kLeft = 90;
constexpr int kRight = 24;
constexpr int kTop = 64;
constexpr int kPanel = 150;
constexpr int kPanelGap = 44;
constexpr int kHashes = 110;
constexpr double kPlot = kWidth - kLeft - kRight;

/// Okabe and Ito's colours, which most colour-blind people tell apart.
constexpr std::array<std::string_view, 6> kColours = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

std::string Number(double value) { return fmt::format("{:.1f}", value); }

class Picture {
 public:
  explicit Picture(const History& history) : history_(history) {
    for (size_t i = 0; i < history.commits.size(); ++i) {
      columns_[history.commits[i]] = i;
    }
    for (const FigureSeries& series : history.series) {
      if (std::ranges::count(arms_, series.arm) == 0) {
        arms_.push_back(series.arm);
      }
      for (const FigurePoint& point : series.points) {
        if (point.movement == Movement::kMoved) moved_.insert(point.commit);
      }
    }
  }

  std::string Draw() {
    std::string body = Legend();
    int top = kTop;
    for (size_t figure = 0; figure < compare::kFigureCount; ++figure) {
      const auto shown = SeriesOf(figure);
      if (shown.empty()) continue;
      body += Panel(figure, shown, top);
      top += kPanel + kPanelGap;
    }
    const int bottom = top - kPanelGap;
    return kHistorySvgFirstLine +
           SvgPicture(kWidth, bottom + kHashes,
                      Marks(bottom) + body + Hashes(bottom));
  }

 private:
  std::vector<const FigureSeries*> SeriesOf(size_t figure) const {
    std::vector<const FigureSeries*> found;
    for (const FigureSeries& series : history_.series) {
      if (series.figure == figure) found.push_back(&series);
    }
    return found;
  }

  double X(const std::string& commit) const {
    const size_t count = history_.commits.size();
    if (count < 2) return kLeft + kPlot / 2;
    return kLeft + kPlot * static_cast<double>(columns_.at(commit)) /
                       static_cast<double>(count - 1);
  }

  std::string_view Colour(const std::string& arm) const {
    const auto place = std::ranges::find(arms_, arm) - arms_.begin();
    return kColours[static_cast<size_t>(place) % kColours.size()];
  }

  bool MovedAt(const std::string& commit) const {
    return moved_.contains(commit);
  }

  std::string Legend() const {
    std::string svg =
        SvgTitle(kLeft, 20, fmt::format("History of {}", history_.experiment));
    double x = kLeft;
    for (const std::string& arm : arms_) {
      svg += fmt::format(
          "<rect x=\"{}\" y=\"34\" width=\"14\" height=\"4\" fill=\"{}\"/>\n",
          Number(x), Colour(arm));
      svg += SvgText(x + 20, 40, arm);
      x += 40 + 8 * static_cast<double>(arm.size());
    }
    return svg +
           SvgText(kWidth - kRight, 40,
                   "hollow: same bits; filled: other bits; diamond: moved",
                   "text-anchor=\"end\" fill=\"#5f6368\"");
  }

  std::string Panel(size_t index, const std::vector<const FigureSeries*>& shown,
                    int top) const {
    const Figure& figure = compare::kFigures[index];
    SvgAxis axis = SvgAxis::Vertical(top + kPanel, top);
    for (const FigureSeries* series : shown) {
      for (const FigurePoint& point : series->points) axis.Hold(point.mean);
    }
    axis.Widen(0.1);
    const std::string title =
        *figure.unit == '\0' ? figure.name
                             : fmt::format("{} ({})", figure.name, figure.unit);
    std::string svg = SvgText(kLeft, top - 6, title, "font-weight=\"bold\"") +
                      fmt::format(
                          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
                          "fill=\"none\" stroke=\"#bdc1c6\"/>\n",
                          kLeft, top, kPlot, kPanel);
    const auto number = [](double tick) {
      return fmt::format("{:.11g}", tick + 0.0);
    };
    svg += axis.Grid(kLeft, kLeft + kPlot, number, 30);
    for (const FigureSeries* series : shown) svg += Line(*series, axis, top);
    return svg;
  }

  std::string Line(const FigureSeries& series, const SvgAxis& axis,
                   int top) const {
    std::string path;
    std::string marks;
    bool pen_down = false;
    for (const FigurePoint& point : series.points) {
      const bool finite = std::isfinite(point.mean);
      const double x = X(point.commit);
      const double y = finite ? axis.At(point.mean) : top + 8;
      if (finite) {
        path +=
            fmt::format("{}{} {} ", pen_down ? 'L' : 'M', Number(x), Number(y));
      }
      pen_down = finite;
      marks += finite ? Mark(series, point, x, y)
                      : SvgText(x, y + 4, "not finite",
                                "text-anchor=\"middle\" fill=\"#d93025\"");
    }
    return fmt::format(
               "<path d=\"{}\" fill=\"none\" stroke=\"{}\" "
               "stroke-width=\"1.5\"/>\n",
               path, Colour(series.arm)) +
           marks;
  }

  std::string Mark(const FigureSeries& series, const FigurePoint& point,
                   double x, double y) const {
    const std::string_view colour = Colour(series.arm);
    const std::string title = EscapedMarkup(fmt::format(
        "{} {}: {:.6g}, {} {}", point.commit.substr(0, 12), series.arm,
        point.mean, compare::MovementName(point.movement),
        ChangeText(point, compare::kFigures[series.figure])));
    if (point.movement == Movement::kMoved) {
      return fmt::format(
          "<path d=\"M{0} {1}l7 7l-7 7l-7 -7z\" fill=\"{2}\" "
          "stroke=\"#202124\" stroke-width=\"1.5\"><title>{3}</title></path>\n",
          Number(x), Number(y - 7), colour, title);
    }
    const bool same = point.movement == Movement::kSameBits;
    return fmt::format(
        "<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\" stroke=\"{}\">"
        "<title>{}</title></circle>\n",
        Number(x), Number(y), same ? "#ffffff" : colour, colour, title);
  }

  /// A line through all panels where something moved.
  std::string Marks(int bottom) const {
    std::string svg;
    for (const std::string& commit : history_.commits) {
      if (!MovedAt(commit)) continue;
      svg += fmt::format(
          "<line x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\" "
          "stroke=\"#d93025\" stroke-dasharray=\"4 3\"/>\n",
          Number(X(commit)), kTop, bottom + 6);
    }
    return svg;
  }

  /// Of the first, the last and those that moved something, as far as they fit;
  /// the moved ones come first.
  std::string Hashes(int bottom) const {
    constexpr double kRoom = 15;
    std::vector<double> taken;
    std::string svg;
    const auto write = [&](const std::string& commit, bool moved) {
      const double x = X(commit);
      if (std::ranges::any_of(taken, [&](double other) {
            return std::fabs(other - x) < kRoom;
          })) {
        return;
      }
      taken.push_back(x);
      svg += SvgText(
          x + 4, bottom + 12, commit.substr(0, 12),
          fmt::format("text-anchor=\"end\" font-family=\"monospace\" "
                      "font-size=\"11\" transform=\"rotate(-90 {} {})\"{}",
                      Number(x + 4), bottom + 12,
                      moved ? " font-weight=\"bold\" fill=\"#d93025\"" : ""));
    };
    for (const std::string& commit : history_.commits) {
      if (MovedAt(commit)) write(commit, true);
    }
    write(history_.commits.front(), false);
    write(history_.commits.back(), false);
    return svg;
  }

  const History& history_;
  std::map<std::string, size_t> columns_;
  std::vector<std::string> arms_;
  std::set<std::string> moved_;
};

}  // namespace

std::string RenderHistorySvg(const History& history) {
  return Picture(history).Draw();
}

}  // namespace isoloss::report
