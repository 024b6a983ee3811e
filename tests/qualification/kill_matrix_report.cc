#include "qualification/kill_matrix_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace isoloss::qualification {
namespace {

constexpr const char* kMlperf = "mlperf_rcp";

template <typename Predicate>
KillMark MarkOf(const KillRow& row, const Predicate& caught) {
  const auto count = std::count_if(row.cells.begin(), row.cells.end(), caught);
  if (row.cells.empty()) return KillMark::kNotJudged;
  if (count == 0) return KillMark::kNone;
  return count == static_cast<int64_t>(row.cells.size()) ? KillMark::kAll
                                                         : KillMark::kSome;
}

KillMark MarkOfLevel(const KillRow& row, size_t level) {
  const bool judged = std::any_of(
      row.cells.begin(), row.cells.end(), [&](const KillCell& cell) {
        return level < cell.levels.size() && cell.levels[level];
      });
  if (!judged) return KillMark::kNotJudged;
  return MarkOf(row, [&](const KillCell& c) { return c.CaughtBy(level); });
}

KillTable::Row MakeRow(const KillMatrix& matrix, const KillRow& from) {
  KillTable::Row row{from.name, from.group, from.kind, {}, ""};
  for (size_t level = 0; level < matrix.levels.size(); ++level) {
    row.marks.push_back(MarkOfLevel(from, level));
  }
  row.marks.push_back(
      MarkOf(from, [](const KillCell& cell) { return cell.Caught(); }));
  for (size_t peer = 0; peer < matrix.peers.size(); ++peer) {
    row.marks.push_back(MarkOf(from, [&](const KillCell& cell) {
      return !cell.peer_accepts.at(peer);
    }));
  }
  row.marks.push_back(from.mlperf_accepts ? KillMark::kNone : KillMark::kAll);
  for (const KillCell& cell : from.cells) {
    if (row.finding.empty()) row.finding = cell.finding;
  }
  return row;
}

std::vector<KillTable::Column> MakeColumns(const KillMatrix& matrix) {
  std::vector<KillTable::Column> columns;
  for (size_t i = 0; i < matrix.levels.size(); ++i) {
    const bool judged = std::any_of(
        matrix.rows.begin(), matrix.rows.end(), [&](const KillRow& row) {
          return MarkOfLevel(row, i) != KillMark::kNotJudged;
        });
    columns.push_back({matrix.levels[i], "", judged, matrix.ScoreOfLevel(i),
                       matrix.FalseAlarmsOfLevel(i)});
  }
  columns.push_back({"gate", "", true, matrix.Score(), matrix.FalseAlarms()});
  const auto letter = [&] {
    const size_t peer = columns.size() - matrix.levels.size() - 1;
    return std::string(1, static_cast<char>('a' + peer));
  };
  for (size_t i = 0; i < matrix.peers.size(); ++i) {
    columns.push_back({letter(), matrix.peers[i], true, matrix.ScoreOfPeer(i),
                       matrix.FalseAlarmsOfPeer(i)});
  }
  // It judges a set of runs, so no single benign one.
  columns.push_back({letter(), kMlperf, true, matrix.ScoreOfMlperf(), {}});
  return columns;
}

char MarkLetter(KillMark mark) {
  switch (mark) {
    case KillMark::kAll:
      return '#';
    case KillMark::kSome:
      return '+';
    case KillMark::kNone:
      return '.';
    case KillMark::kNotJudged:
      break;
  }
  return ' ';
}

constexpr size_t kColumnWidth = 5;

/// A name and the cells of its line, without the spaces at its end.
std::string Line(const std::string& name, size_t names,
                 const std::vector<std::string>& cells) {
  std::string line = fmt::format("  {:<{}}", name, names + 2);
  for (const std::string& cell : cells) {
    line += fmt::format("{:<{}}", cell, kColumnWidth);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string RowText(const KillTable::Row& row, size_t names) {
  std::vector<std::string> marks;
  for (const KillMark mark : row.marks) marks.emplace_back(1, MarkLetter(mark));
  return Line(row.name, names, marks);
}

std::string CountsText(const KillTable& table, const std::string& title,
                       size_t names, Rate KillTable::Column::*rate) {
  std::vector<std::string> counts;
  for (const KillTable::Column& column : table.columns) {
    const Rate& of = column.*rate;
    counts.push_back(
        of.of == 0 || !column.judged ? "-" : fmt::format("{}", of.count));
  }
  return Line(title, names, counts);
}

std::string Percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

std::string SummaryText(const KillMatrix& matrix) {
  const Rate score = matrix.Score();
  const Rate alarms = matrix.FalseAlarms();
  std::string text = fmt::format("question: {}\n", matrix.question);
  text += fmt::format("bugs caught: {} of {} (95 % interval {} to {})\n",
                      score.count, score.of, Percent(score.lower),
                      Percent(score.upper));
  text +=
      fmt::format("false alarms: {} in {} benign runs (95 % upper bound {})\n",
                  alarms.count, alarms.of, Percent(alarms.upper_one_sided));
  return text;
}

std::string LegendText(const KillTable& table) {
  std::string text =
      "# caught in every seed  + in some  . in none  (blank: not judged)\n";
  for (const KillTable::Column& column : table.columns) {
    if (column.rule.empty()) continue;
    text += fmt::format("{}  {}\n", column.title, column.rule);
  }
  return text;
}

}  // namespace

KillTable MakeKillTable(const KillMatrix& matrix) {
  KillTable table{MakeColumns(matrix), {}};
  for (const KillRow& row : matrix.rows) {
    table.rows.push_back(MakeRow(matrix, row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const KillTable::Row& a, const KillTable::Row& b) {
                     return std::tie(a.kind, a.group) <
                            std::tie(b.kind, b.group);
                   });
  return table;
}

std::string RenderKillMatrix(const KillMatrix& matrix) {
  const KillTable table = MakeKillTable(matrix);
  size_t names = std::string("false alarms").size();
  for (const auto& row : table.rows) names = std::max(names, row.name.size());
  std::vector<std::string> titles;
  for (const KillTable::Column& column : table.columns) {
    titles.push_back(column.title);
  }
  std::string text = Line("", names, titles);
  std::string section;
  for (const KillTable::Row& row : table.rows) {
    const std::string of =
        fmt::format("{}: {}", ClassName(row.kind), row.group);
    if (of != section) text += of + "\n";
    section = of;
    text += RowText(row, names);
  }
  text += CountsText(table, "bugs caught", names, &KillTable::Column::score);
  text += CountsText(table, "false alarms", names,
                     &KillTable::Column::false_alarms);
  return text + "\n" + SummaryText(matrix) + "\n" + LegendText(table);
}

}  // namespace isoloss::qualification
