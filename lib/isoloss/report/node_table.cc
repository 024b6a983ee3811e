#include "isoloss/report/node_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "isoloss/document/text_layout.h"
#include "isoloss/report/terminal_width.h"

namespace isoloss::report {
namespace {

using document::kDim;
using document::kGreen;
using document::kRed;
using document::kYellow;
using document::Paint;
using document::Shortened;
using document::TextStyle;

constexpr size_t kNodeColumns = 9;
using NodeCells = std::array<std::string, kNodeColumns>;

std::string MeasuredCell(double value) {
  return value > 0 ? fmt::format("{:.3g}", value) : "-";
}

NodeCells CellsOf(const NodeRow& row) {
  constexpr size_t kLongestHost = 20;
  return {fmt::format("{}", row.process),
          Shortened(row.host, kLongestHost),
          MeasuredCell(row.memory_bytes_per_second / 1e9),
          MeasuredCell(row.write_bytes_per_second / 1e6),
          MeasuredCell(row.read_bytes_per_second / 1e6),
          MeasuredCell(row.link_bytes_per_second / 1e6),
          MeasuredCell(row.link_seconds * 1e6),
          row.write_bytes_per_second > 0
              ? fmt::format("{:+.3f}", row.clock_seconds_ahead)
              : "-",
          row.sick    ? "sick"
          : row.noted ? "note"
                      : "healthy"};
}

}  // namespace

std::string DrawNodeTable(const std::vector<NodeRow>& rows,
                          const TextStyle& style) {
  std::vector<NodeCells> lines = {{"process", "node", "memory GB/s",
                                   "write MB/s", "read MB/s", "link MB/s",
                                   "link us", "clock s", "verdict"}};
  for (const NodeRow& row : rows) lines.push_back(CellsOf(row));
  std::array<size_t, kNodeColumns> widths{};
  for (const NodeCells& cells : lines) {
    for (size_t i = 0; i < kNodeColumns; ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  std::string text;
  for (size_t line = 0; line < lines.size(); ++line) {
    for (size_t i = 0; i + 1 < kNodeColumns; ++i) {
      // Names are aligned left, and numbers right.
      text += i == 1 ? fmt::format("{:<{}}  ", lines[line][i], widths[i])
                     : fmt::format("{:>{}}  ", lines[line][i], widths[i]);
    }
    const std::string& verdict = lines[line].back();
    const char* color = line == 0              ? kDim
                        : rows[line - 1].sick  ? kRed
                        : rows[line - 1].noted ? kYellow
                                               : kGreen;
    text += Paint(verdict, color, style) + "\n";
  }
  return text;
}

}  // namespace isoloss::report
