// How figures went over commits, as text, JSON and a picture.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "isoloss/compare/figure_history.h"
#include "isoloss/document/chart.h"

namespace isoloss::report {

struct History {
  std::string experiment;
  bool in_git_order = false;         ///< else in the order of the file
  std::vector<std::string> commits;  ///< in that order
  /// Place of each commit among those from the first one to HEAD, by first
  /// parents; only if in_git_order.
  std::map<std::string, size_t> places = {};
  std::map<std::string, std::string> subjects = {};  ///< of some commits
  compare::MoveOptions options = {};
  std::vector<compare::FigureSeries> series;  ///< none is empty
  std::vector<std::string> notes = {};        ///< sentences
};

/// A table of all series and what moved; with `details` also each series commit
/// by commit, and as a chart.
std::string RenderHistory(const History& history, bool details,
                          const document::TextStyle& style);

std::string RenderHistoryJson(const History& history);

/// How the picture begins.
inline constexpr const char* kHistorySvgFirstLine =
    "<!-- isoloss history -->\n";

/// Panels of one figure each, with a line for each arm.
std::string RenderHistorySvg(const History& history);

/// "+3.6 % [+3.2, +4.0]", or without what is not known.
std::string ChangeText(const compare::FigurePoint& point,
                       const compare::Figure& figure);

}  // namespace isoloss::report
