#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/document/text_layout.h"
#include "isoloss/report/history.h"

namespace isoloss::report {
namespace {

using document::Chart;
using document::Curve;
using document::DrawChart;
using document::Heading;
using document::kBold;
using document::kDim;
using document::kRed;
using document::Paint;
using document::Shortened;
using document::TextStyle;
using document::Wrap;

using compare::Figure;
using compare::FigurePoint;
using compare::FigureSeries;
using compare::Movement;

constexpr size_t kHash = 12;
constexpr size_t kDay = 10;
constexpr size_t kMostArm = 20;

std::string Short(const std::string& commit) { return commit.substr(0, kHash); }

std::string Day(const std::string& date) { return date.substr(0, kDay); }

/// "loss (nats)".
std::string FigureTitle(const Figure& figure) {
  if (*figure.unit == '\0') return figure.name;
  return fmt::format("{} ({})", figure.name, figure.unit);
}

std::string Head(const History& history, const TextStyle& style) {
  const size_t count = history.commits.size();
  std::string text =
      fmt::format("history of {}: {} commit{}, in {}\n", history.experiment,
                  count, count == 1 ? "" : "s",
                  history.in_git_order ? "git's order of first parents"
                                       : "the order of the file");
  for (const std::string& note : history.notes) {
    text += Wrap(note, 0, 0, style) + "\n";
  }
  return text;
}

std::string SummaryTable(const History& history, const TextStyle& style) {
  std::string text = "\n";
  text += Paint(fmt::format("{:<{}} {:<20} {:>13} {:>7} {:>9} {:>5}", "arm",
                            kMostArm, "figure", "latest", "commits", "new bits",
                            "moved"),
                kBold, style) +
          "\n";
  for (const FigureSeries& series : history.series) {
    const auto count = [&](auto... movements) {
      return std::ranges::count_if(
          series.points, [&](const FigurePoint& point) {
            return ((point.movement == movements) || ...);
          });
    };
    const auto moved = count(Movement::kMoved);
    const std::string line =
        fmt::format("{:<{}} {:<20} {:>13.6g} {:>7} {:>9} {:>5}",
                    Shortened(series.arm, kMostArm), kMostArm,
                    FigureTitle(compare::kFigures[series.figure]),
                    series.points.back().mean, series.points.size(),
                    count(Movement::kMoved, Movement::kNotShown), moved);
    text += Paint(line, moved > 0 ? kRed : nullptr, style) + "\n";
  }
  return text;
}

/// What is said of one move.
std::string MoveLine(const FigureSeries& series, const FigurePoint& point) {
  const Figure& figure = compare::kFigures[series.figure];
  std::string text =
      fmt::format("{} {}: {} to {:.6g} since {}, {} seed{}", series.arm,
                  figure.name, ChangeText(point, figure), point.mean,
                  Short(series.points[point.reference].commit),
                  point.shared_seeds, point.shared_seeds == 1 ? "" : "s");
  if (point.gradual) {
    text +=
        "; the step from the commit before does not show it alone: any commit "
        "since then that changed bits may have part in it";
  }
  return text;
}

/// The command that looks into commits between two that were recorded; "" if
/// there are none, or nobody knows.
std::string BisectHint(const History& history, const FigureSeries& series,
                       size_t place) {
  const FigurePoint& point = series.points[place];
  const FigurePoint& before =
      series.points[point.gradual ? point.reference : place - 1];
  const auto from = history.places.find(before.commit);
  const auto to = history.places.find(point.commit);
  if (from == history.places.end() || to == history.places.end()) return "";
  const size_t between = to->second - from->second - 1;
  if (between == 0) return "";
  return fmt::format(
      "next: {} commit{} lie{} between {} and it: isoloss lab history bisect "
      "--good {} --bad {} -- COMMAND",
      between, between == 1 ? "" : "s", between == 1 ? "s" : "",
      Short(before.commit), Short(before.commit), Short(point.commit));
}

/// What moved at a commit, by series and place in it.
using Moves = std::vector<std::pair<const FigureSeries*, size_t>>;

/// All that moved at one commit, and the first hint.
std::string MovesAt(const History& history, const std::string& commit,
                    const Moves& moves, const TextStyle& style) {
  std::string lines;
  std::string hint;
  for (const auto& [series, place] : moves) {
    lines += "  " +
             Wrap(MoveLine(*series, series->points[place]), 2, 4, style) + "\n";
    if (hint.empty()) hint = BisectHint(history, *series, place);
  }
  if (!hint.empty()) lines += "  " + Wrap(hint, 2, 4, style) + "\n";
  const auto subject = history.subjects.find(commit);
  const auto& [series, place] = moves.front();
  const std::string head = fmt::format(
      "MOVED  {}  {}  {}", Short(commit), Day(series->points[place].date),
      subject == history.subjects.end() ? "" : subject->second);
  return "\n" +
         Paint(Shortened(head, static_cast<size_t>(style.width)), kBold,
               style) +
         "\n" + lines;
}

/// In the order of the commits.
std::string AllMoves(const History& history, const TextStyle& style) {
  std::map<std::string, Moves> moves;
  for (const FigureSeries& series : history.series) {
    for (size_t i = 0; i < series.points.size(); ++i) {
      if (series.points[i].movement == Movement::kMoved) {
        moves[series.points[i].commit].emplace_back(&series, i);
      }
    }
  }
  std::string text;
  for (const std::string& commit : history.commits) {
    const auto found = moves.find(commit);
    if (found == moves.end()) continue;
    text += MovesAt(history, commit, found->second, style);
  }
  return text.empty() ? "\nNo figure moved.\n" : text;
}

/// One row of a series; all rows fit into 80 columns.
std::string HistoryRow(std::string_view commit, std::string_view day,
                       std::string_view mean, std::string_view what,
                       std::string_view change) {
  std::string row = fmt::format("{:<{}} {:<{}} {:>11} {:<9} {}", commit, kHash,
                                day, kDay, mean, what, change);
  return row.substr(0, row.find_last_not_of(' ') + 1);
}

std::string PointRow(const FigurePoint& point, const Figure& figure) {
  std::string change = ChangeText(point, figure);
  if (const size_t unit = change.find(" %"); unit != change.npos) {
    change.erase(unit, 2);  // the head of the column has it
  }
  return HistoryRow(Short(point.commit), Day(point.date),
                    fmt::format("{:.6g}", point.mean),
                    compare::MovementName(point.movement), change);
}

std::string SeriesTable(const FigureSeries& series, const TextStyle& style) {
  const Figure& figure = compare::kFigures[series.figure];
  std::string text =
      Heading(fmt::format("{}, {}", series.arm, FigureTitle(figure)), style) +
      Paint(HistoryRow("commit", "date", "mean", "",
                       fmt::format("change since the last move{}",
                                   figure.relative ? ", %" : "")),
            kDim, style) +
      "\n";
  size_t equal = 0;
  const auto tell_equal = [&] {
    if (equal > 0) {
      text += Paint(fmt::format("{:<{}} {} commit{} with the same bits", "",
                                kHash, equal, equal == 1 ? "" : "s"),
                    kDim, style) +
              "\n";
    }
    equal = 0;
  };
  for (size_t i = 0; i < series.points.size(); ++i) {
    const FigurePoint& point = series.points[i];
    const bool last = i + 1 == series.points.size();
    if (point.movement == Movement::kSameBits && !last) {
      ++equal;
      continue;
    }
    tell_equal();
    text += Paint(PointRow(point, figure),
                  point.movement == Movement::kMoved ? kRed : nullptr, style) +
            "\n";
  }
  return text;
}

std::string SeriesChart(const FigureSeries& series, const TextStyle& style) {
  if (series.points.size() < 2) return "";
  Chart chart;
  Curve curve;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    chart.step.push_back(number);
    curve.y.push_back(series.points[i].mean);
    if (series.points[i].movement == Movement::kMoved) {
      chart.marked_step = number;
    }
  }
  chart.curves.push_back(std::move(curve));
  std::string text;
  std::vector<std::string> lines = DrawChart(chart, style);
  if (lines.empty()) return "";
  // Commits in the place of the numbers of steps.
  const std::string first = Short(series.points.front().commit);
  const std::string last = Short(series.points.back().commit);
  lines.back() =
      fmt::format("{:>{}}", last, std::max(style.width, 30) - 11 - kHash);
  lines.back() = fmt::format("{:11}{}{}", "", first, lines.back());
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string HowItIsJudged(const History& history, const TextStyle& style) {
  const compare::MoveOptions& options = history.options;
  const std::string text = fmt::format(
      "A commit has moved a figure if it changed bits and the {:g} % interval "
      "of the paired change since the last move (in square brackets) {}.",
      100 * (1 - options.alpha),
      options.tolerance > 0
          ? fmt::format("lies outside +-{:g}", options.tolerance)
          : "does not hold 0");
  return "\n" + Paint(Wrap(text, 0, 0, style), kDim, style) + "\n";
}

}  // namespace

std::string ChangeText(const FigurePoint& point, const Figure& figure) {
  if (point.shared_seeds == 0) return "";
  const char* unit = figure.relative ? "%" : figure.unit;
  std::string text = fmt::format("{:+.3g} {}", point.change.mean, unit);
  if (point.shared_seeds > 1) {
    text += fmt::format(" [{:+.3g}, {:+.3g}]", point.change.lower,
                        point.change.upper);
  }
  return text;
}

std::string RenderHistory(const History& history, bool details,
                          const TextStyle& style) {
  std::string text = Head(history, style) + SummaryTable(history, style) +
                     AllMoves(history, style);
  if (details) {
    for (const FigureSeries& series : history.series) {
      text += SeriesTable(series, style) + SeriesChart(series, style);
    }
  }
  return text + HowItIsJudged(history, style);
}

}  // namespace isoloss::report
