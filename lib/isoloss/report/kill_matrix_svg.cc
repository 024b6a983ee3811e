#include <fmt/format.h>

#include <string>
#include <string_view>

#include "isoloss/document/svg.h"
#include "isoloss/report/kill_matrix.h"

namespace isoloss::report {
namespace {

using document::SvgPicture;
using document::SvgText;

constexpr int kCell = 18;
constexpr int kNames = 300;
constexpr int kTableTop = 180;
constexpr int kMargin = 16;
constexpr int kFindings = 560;
constexpr int kFooter = 92;

/// Caught: strong where that is wanted, red where it is a false alarm.
std::string_view Fill(KillMark mark, gate::MutantClass mutant_class) {
  if (mark == KillMark::kNotJudged) return "#ffffff";
  if (mark == KillMark::kNone) return "#e8eaed";
  if (mutant_class == gate::MutantClass::kBenign ||
      mutant_class == gate::MutantClass::kEquivalent) {
    return "#d93025";
  }
  return mark == KillMark::kAll ? "#188038" : "#f2b632";
}

int ColumnX(const KillTable& table, size_t column) {
  // A gap on either side of the gate's own column.
  size_t gate_column = 0;
  while (table.columns[gate_column].title != "gate") ++gate_column;
  int x = kMargin + kNames + static_cast<int>(column) * kCell;
  if (column >= gate_column) x += kCell / 2;
  if (column > gate_column) x += kCell / 2;
  return x;
}

std::string Headings(const KillTable& table) {
  std::string svg;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const KillTable::Column& column = table.columns[i];
    const int x = ColumnX(table, i) + kCell - 5;
    svg += SvgText(
        x, kTableTop - 6, column.rule.empty() ? column.title : column.rule,
        fmt::format("transform=\"rotate(-60 {} {})\"", x, kTableTop - 6));
  }
  return svg;
}

std::string RowSvg(const KillTable& table, const KillTable::Row& row, int y) {
  std::string svg =
      SvgText(kMargin + kNames - 8, y + 13, row.name, "text-anchor=\"end\"");
  for (size_t i = 0; i < row.marks.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
        ColumnX(table, i), y, kCell - 2, kCell - 2,
        Fill(row.marks[i], row.mutant_class));
  }
  const int x = ColumnX(table, row.marks.size()) + 8;
  return svg +
         SvgText(x, y + 13, row.finding.substr(0, 90), "fill=\"#5f6368\"");
}

std::string Footer(const gate::KillMatrix& matrix, int y) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  std::string svg = SvgText(
      kMargin, y,
      fmt::format("Question {}: planted bugs caught by the gate in every "
                  "seed: {} of {} (95 % interval {:.1f} % to {:.1f} %)",
                  matrix.question, score.count, score.of, 100 * score.lower,
                  100 * score.upper),
      "font-weight=\"bold\"");
  svg += SvgText(
      kMargin, y + 20,
      fmt::format("False alarms: {} in {} benign runs (95 % upper "
                  "bound {:.2f} %)",
                  alarms.count, alarms.of, 100 * alarms.upper_one_sided),
      "font-weight=\"bold\"");
  return svg + SvgText(kMargin, y + 40,
                       "Green: caught in every seed; yellow: in some; grey: in "
                       "none; white: not judged; red: a false alarm.");
}

}  // namespace

std::string RenderKillMatrixSvg(const gate::KillMatrix& matrix) {
  const KillTable table = MakeKillTable(matrix);
  const int width = ColumnX(table, table.columns.size()) + kFindings + kMargin;
  std::string body = Headings(table);
  int y = kTableTop;
  std::string section;
  for (const KillTable::Row& row : table.rows) {
    const std::string of = fmt::format(
        "{}: {}", gate::MutantClassName(row.mutant_class), row.group);
    if (of != section) {
      body += SvgText(kMargin, y + 14, of, "font-weight=\"bold\"");
      y += kCell;
    }
    section = of;
    body += RowSvg(table, row, y);
    y += kCell;
  }
  const int height = y + kFooter;
  return SvgPicture(width, height, body + Footer(matrix, y + 28));
}

}  // namespace isoloss::report
