// Draws line charts made of characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isoloss::document {

/// A style says how text is put on a terminal.
struct TextStyle {
  int width = 80;      ///< columns
  bool color = false;  ///< ANSI colours
  bool ascii = false;  ///< 7-bit characters only
};

/// A curve has a gap where its values are not finite.
struct Curve {
  std::vector<double> y;  ///< one value per step
  bool dotted = false;    ///< else a line
  std::string name = {};  ///< in the legend, which a chart with a title has
};

/// A chart has up to two curves over common steps. In colour the line is blue
/// and the dotted curve yellow.
struct Chart {
  std::string title = {};  ///< "": it has neither title nor legend
  std::vector<int64_t> step;
  std::vector<Curve> curves;
  std::vector<double> guides;  ///< horizontal lines that must be in view
  int64_t marked_step = 0;     ///< gets a tick of its own; 0: none
  int rows = 10;               ///< of characters
  bool signed_labels = false;
};

/// Returns lines without line ends or trailing spaces, style.width wide (at
/// least 30): the plot, then the step axis and its labels. A column stands for
/// the mean of the steps that fall into it. Without a finite value there are
/// no lines.
std::vector<std::string> DrawChart(const Chart& chart, const TextStyle& style);

/// Returns "⠒⠒ bf16   ⠂⠂ mxfp8": the curves that have a name, in their colours.
std::string LegendOf(const Chart& chart, const TextStyle& style);

/// Puts `text` between the codes of an ANSI colour, if style.color.
std::string Paint(const std::string& text, const char* code,
                  const TextStyle& style);

inline constexpr const char* kBlue = "34";
inline constexpr const char* kYellow = "33";
inline constexpr const char* kRed = "31";
inline constexpr const char* kGreen = "32";
inline constexpr const char* kBold = "1";
inline constexpr const char* kDim = "2";

}  // namespace isoloss::document
