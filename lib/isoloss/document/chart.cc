#include "isoloss/document/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace isoloss::document {
namespace {

constexpr int kLabelWidth = 10;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Each bit says which part of the chart put a dot into a cell.
enum Layer : unsigned { kGuide = 1, kLine = 2, kDotted = 4 };

/// A grid of character cells; a cell has 2 x 4 dots (Braille) or one (ASCII).
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : columns_(columns),
        rows_(rows),
        ascii_(ascii),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  int width() const { return ascii_ ? columns_ : 2 * columns_; }
  int height() const { return ascii_ ? rows_ : 4 * rows_; }

  void Dot(int x, int y, Layer layer) {
    const int dots_x = ascii_ ? 1 : 2;
    const int dots_y = ascii_ ? 1 : 4;
    Cell& cell = cells_[CellIndex(y / dots_y, x / dots_x)];
    cell.layers |= layer;
    // Unicode numbers the dots of a Braille cell down the left column, then the
    // right one; its fourth row was added later (bits 6 and 7).
    static constexpr unsigned kBits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell.dots |= kBits[y % dots_y][x % dots_x];
  }

  std::string Row(int row, const TextStyle& style) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[CellIndex(row, column)];
      text += Paint(Glyph(cell), Color(cell), style);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  struct Cell {
    unsigned dots = 0;
    unsigned layers = 0;
  };

  size_t CellIndex(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) +
           static_cast<size_t>(column);
  }

  std::string Glyph(const Cell& cell) const {
    const bool line = (cell.layers & kLine) != 0;
    const bool dotted = (cell.layers & kDotted) != 0;
    if (cell.layers == 0) return " ";
    if (ascii_) return line && dotted ? "#" : line ? "o" : dotted ? "x" : "-";
    // The character is U+2800 + dots, in UTF-8.
    const unsigned code = 0x2800 + cell.dots;
    return {static_cast<char>(0xE0 | code >> 12),
            static_cast<char>(0x80 | (code >> 6 & 0x3F)),
            static_cast<char>(0x80 | (code & 0x3F))};
  }

  static const char* Color(const Cell& cell) {
    const bool line = (cell.layers & kLine) != 0;
    const bool dotted = (cell.layers & kDotted) != 0;
    if (line == dotted) return line ? kBold : cell.layers != 0 ? kDim : nullptr;
    return line ? kBlue : kYellow;
  }

  int columns_;
  int rows_;
  bool ascii_;
  std::vector<Cell> cells_;
};

/// A column's value is the mean of the finite steps that fall into it. With
/// fewer steps than columns it is the nearest step's value.
std::vector<double> Resample(const std::vector<double>& y, int width) {
  std::vector<double> columns(static_cast<size_t>(width), kNan);
  const double per_column =
      static_cast<double>(y.size()) / static_cast<double>(width);
  for (size_t x = 0; x < columns.size(); ++x) {
    const double begin = static_cast<double>(x) * per_column;
    const size_t first = static_cast<size_t>(begin);
    const size_t last =
        std::max(first + 1, static_cast<size_t>(begin + per_column));
    double sum = 0;
    int finite = 0;
    for (size_t i = first; i < std::min(last, y.size()); ++i) {
      if (!std::isfinite(y[i])) continue;
      sum += y[i];
      ++finite;
    }
    if (finite > 0) columns[x] = sum / finite;
  }
  return columns;
}

struct ValueRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  /// Returns the row of a value's dots, counted from the top.
  int Place(double value, int height) const {
    return static_cast<int>(
        std::lround((high - value) / (high - low) * (height - 1)));
  }
};

void DrawLine(const std::vector<double>& columns, const ValueRange& range,
              Canvas& canvas) {
  int previous = -1;  // none
  for (int x = 0; x < canvas.width(); ++x) {
    const double value = columns[static_cast<size_t>(x)];
    if (!std::isfinite(value)) {
      previous = -1;
      continue;
    }
    const int y = range.Place(value, canvas.height());
    const int from = previous < 0 ? y : previous;
    // Join steps of the curve, leaving the previous column's own dot alone.
    for (int dot = y; dot != from; dot += from > y ? 1 : -1) {
      canvas.Dot(x, dot, kLine);
    }
    canvas.Dot(x, y, kLine);
    previous = y;
  }
}

void DrawDots(const std::vector<double>& columns, const ValueRange& range,
              bool ascii, Canvas& canvas) {
  for (int x = 0; x < canvas.width(); x += ascii ? 1 : 2) {
    const double value = columns[static_cast<size_t>(x)];
    if (!std::isfinite(value)) continue;
    canvas.Dot(x, range.Place(value, canvas.height()), kDotted);
  }
}

void DrawGuide(double value, const ValueRange& range, bool ascii,
               Canvas& canvas) {
  for (int x = 0; x < canvas.width(); x += ascii ? 2 : 4) {
    canvas.Dot(x, range.Place(value, canvas.height()), kGuide);
  }
}

std::string AxisLabel(double value, bool with_sign) {
  return with_sign && value != 0 ? fmt::format("{:+.3g}", value)
                                 : fmt::format("{:.4g}", value);
}

/// Returns the value that labels each row, or none. The highest and the lowest
/// value have a label, and so do the guides. Without guides the middle has
/// one.
std::vector<std::optional<double>> Ticks(const Chart& chart,
                                         const ValueRange& range) {
  const int last = chart.rows - 1;
  std::vector<std::optional<double>> ticks(static_cast<size_t>(chart.rows));
  const auto put = [&](double value, int row) {
    ticks[static_cast<size_t>(row)] = value;
  };
  if (chart.guides.empty()) put((range.high + range.low) / 2, chart.rows / 2);
  put(range.high, 0);
  put(range.low, last);
  for (const double guide : chart.guides) {
    const int row = range.Place(guide, chart.rows);
    if (row > 0 && row < last) put(guide, row);
  }
  // With guides the row of zero is labelled 0, also if guides share it.
  const int zero =
      range.low < 0 && range.high > 0 ? range.Place(0, chart.rows) : 0;
  if (!chart.guides.empty() && zero > 0 && zero < last) put(0, zero);
  return ticks;
}

/// Puts `label` into `line`, centred on `column` as far as it fits.
void PlaceLabel(const std::string& label, int column, std::string& line) {
  const int length = static_cast<int>(label.size());
  const int first = std::clamp(column - length / 2, 0,
                               static_cast<int>(line.size()) - length);
  line.replace(static_cast<size_t>(first), label.size(), label);
}

/// Adds the axis line and the labels of the first, the last and the marked
/// step.
void AppendStepAxis(const Chart& chart, int columns, const TextStyle& style,
                    std::vector<std::string>& lines) {
  const int64_t first = chart.step.front();
  const int64_t last = chart.step.back();
  std::vector<bool> tick(static_cast<size_t>(columns), false);
  std::string labels(static_cast<size_t>(columns), ' ');
  tick.front() = tick.back() = true;
  if (chart.marked_step > first && chart.marked_step < last) {
    const int column = static_cast<int>((chart.marked_step - first) *
                                        (columns - 1) / (last - first));
    tick[static_cast<size_t>(column)] = true;
    PlaceLabel(fmt::format("{}", chart.marked_step), column, labels);
  }
  PlaceLabel(fmt::format("step {}", first), 0, labels);
  PlaceLabel(fmt::format("{}", last), columns - 1, labels);

  std::string axis = std::string(kLabelWidth - 1, ' ');
  axis += style.ascii ? "+" : "└";
  for (const bool here : tick) {
    axis += here ? (style.ascii ? "+" : "┴") : (style.ascii ? "-" : "─");
  }
  lines.push_back(axis);
  lines.push_back(std::string(kLabelWidth, ' ') + labels);
}

/// Widens a range of one value.
void LeaveRoom(ValueRange& range) {
  if (range.low != range.high) return;
  const double room = range.low == 0 ? 1 : std::fabs(range.low) / 100;
  range = {range.low - room, range.high + room};
}

}  // namespace

std::string Paint(const std::string& text, const char* code,
                  const TextStyle& style) {
  if (!style.color || code == nullptr) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string LegendOf(const Chart& chart, const TextStyle& style) {
  std::string legend;
  for (const Curve& curve : chart.curves) {
    if (curve.name.empty()) continue;
    const char* mark = style.ascii    ? (curve.dotted ? "x" : "o")
                       : curve.dotted ? "\u2802\u2802"
                                      : "\u2812\u2812";
    legend += fmt::format("{}{}", legend.empty() ? "" : "   ",
                          Paint(fmt::format("{} {}", mark, curve.name),
                                curve.dotted ? kYellow : kBlue, style));
  }
  if (style.ascii && !legend.empty()) legend += "   # both";
  return legend;
}

std::vector<std::string> DrawChart(const Chart& chart, const TextStyle& style) {
  const int columns = std::max(style.width - kLabelWidth, 20);
  Canvas canvas(columns, chart.rows, style.ascii);
  std::vector<std::vector<double>> resampled;
  ValueRange range;
  for (const Curve& curve : chart.curves) {
    resampled.push_back(Resample(curve.y, canvas.width()));
    for (const double value : resampled.back()) range.Include(value);
  }
  if (range.empty()) return {};
  for (const double guide : chart.guides) range.Include(guide);
  LeaveRoom(range);
  for (const double guide : chart.guides) {
    DrawGuide(guide, range, style.ascii, canvas);
  }
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    if (chart.curves[i].dotted) {
      DrawDots(resampled[i], range, style.ascii, canvas);
    } else {
      DrawLine(resampled[i], range, canvas);
    }
  }

  std::vector<std::string> lines;
  const std::vector<std::optional<double>> ticks = Ticks(chart, range);
  for (int row = 0; row < chart.rows; ++row) {
    const std::optional<double> tick = ticks[static_cast<size_t>(row)];
    const bool labelled = tick.has_value();
    lines.push_back(
        fmt::format("{:>{}} ",
                    labelled ? AxisLabel(*tick, chart.signed_labels) : "",
                    kLabelWidth - 2) +
        (style.ascii ? "|"
         : labelled  ? "┤"
                     : "│") +
        canvas.Row(row, style));
  }
  AppendStepAxis(chart, columns, style, lines);
  return lines;
}

}  // namespace isoloss::document
