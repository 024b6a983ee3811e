#include "isoloss/report/kill_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace isoloss::report {
namespace {

using document::kBold;
using document::kDim;
using document::kGreen;
using document::kRed;
using document::kYellow;
using document::Paint;
using document::TextStyle;

using gate::KillCell;
using gate::KillMatrix;
using gate::KillRow;

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
  KillTable::Row row{from.name, from.group, from.mutant_class, {}, ""};
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

const char* Glyph(KillMark mark, bool ascii) {
  switch (mark) {
    case KillMark::kAll:
      return ascii ? "#" : "●";
    case KillMark::kSome:
      return ascii ? "+" : "◐";
    case KillMark::kNone:
      return ascii ? "." : "·";
    case KillMark::kNotJudged:
      break;
  }
  return " ";
}

/// Green where the class of the mutant asks to be caught, else red.
const char* ColorOf(KillMark mark, gate::MutantClass mutant_class) {
  if (mark == KillMark::kNone || mark == KillMark::kNotJudged) return kDim;
  if (mutant_class == gate::MutantClass::kBenign ||
      mutant_class == gate::MutantClass::kEquivalent) {
    return kRed;
  }
  return mark == KillMark::kAll ? kGreen : kYellow;
}

constexpr size_t kColumnWidth = 5;

std::string Pad(const std::string& text, size_t shown, size_t width) {
  return text + std::string(width > shown ? width - shown : 0, ' ');
}

std::string RowText(const KillTable::Row& row, size_t names,
                    const TextStyle& style) {
  std::string line = "  " + Pad(row.name, row.name.size(), names + 2);
  for (const KillMark mark : row.marks) {
    line += Pad(
        Paint(Glyph(mark, style.ascii), ColorOf(mark, row.mutant_class), style),
        1, kColumnWidth);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string CountsText(const KillTable& table, const std::string& title,
                       size_t names, gate::Rate KillTable::Column::*rate) {
  std::string line = "  " + Pad(title, title.size(), names + 2);
  for (const KillTable::Column& column : table.columns) {
    const gate::Rate& of = column.*rate;
    const std::string count =
        of.of == 0 || !column.judged ? "-" : fmt::format("{}", of.count);
    line += Pad(count, count.size(), kColumnWidth);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

std::string SummaryText(const KillMatrix& matrix) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  std::string text = fmt::format("question: {}\n", matrix.question);
  text += fmt::format("bugs caught: {} of {} (95 % interval {} to {})\n",
                      score.count, score.of, Percent(score.lower),
                      Percent(score.upper));
  text +=
      fmt::format("false alarms: {} in {} benign runs (95 % upper bound {})\n",
                  alarms.count, alarms.of, Percent(alarms.upper_one_sided));
  return text;
}

std::string LegendText(const KillTable& table, bool ascii) {
  std::string text = fmt::format(
      "{} caught in every seed  {} in some  {} in none  (blank: not judged)\n",
      Glyph(KillMark::kAll, ascii), Glyph(KillMark::kSome, ascii),
      Glyph(KillMark::kNone, ascii));
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
                     return std::tie(a.mutant_class, a.group) <
                            std::tie(b.mutant_class, b.group);
                   });
  return table;
}

std::string RenderKillMatrix(const KillMatrix& matrix, const TextStyle& style) {
  const KillTable table = MakeKillTable(matrix);
  size_t names = std::string("false alarms").size();
  for (const auto& row : table.rows) names = std::max(names, row.name.size());
  std::string heading = "  " + std::string(names + 2, ' ');
  for (const KillTable::Column& column : table.columns) {
    heading += Pad(column.title, column.title.size(), kColumnWidth);
  }
  heading.erase(heading.find_last_not_of(' ') + 1);
  std::string text = Paint(heading, kBold, style) + "\n";
  std::string section;
  for (const KillTable::Row& row : table.rows) {
    const std::string of = fmt::format(
        "{}: {}", gate::MutantClassName(row.mutant_class), row.group);
    if (of != section) text += Paint(of, kDim, style) + "\n";
    section = of;
    text += RowText(row, names, style);
  }
  text += CountsText(table, "bugs caught", names, &KillTable::Column::score);
  text += CountsText(table, "false alarms", names,
                     &KillTable::Column::false_alarms);
  return text + "\n" + SummaryText(matrix) + "\n" +
         LegendText(table, style.ascii);
}

}  // namespace isoloss::report
