// Draws axes, marks and legends of SVG pictures.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::document {

namespace colour {
inline constexpr std::string_view kInk = "#202124";
inline constexpr std::string_view kGrey = "#5f6368";
inline constexpr std::string_view kZeroLine = "#80868b";
inline constexpr std::string_view kGrid = "#e8eaed";
inline constexpr std::string_view kBlue = "#1a73e8";
inline constexpr std::string_view kOrange = "#e8710a";
inline constexpr std::string_view kGreen = "#188038";
inline constexpr std::string_view kRed = "#d93025";
}  // namespace colour

/// Returns about the width of a label of 12 pixels.
double SvgTextWidth(std::string_view text);

/// Draws lines of at most `width` pixels, 18 apart. `y` becomes that of the
/// line that would follow.
std::string SvgParagraph(double x, double& y, double width,
                         const std::string& text,
                         std::string_view attributes = "");

/// An empty `fill` takes the colour; "none" draws a ring.
std::string SvgDot(double x, double y, double radius, std::string_view colour,
                   std::string_view fill = "");

/// Returns a label such as "0" or "+0.25".
std::string SignedTick(double value);

/// Places values along one direction of a picture. The range is that of the
/// values that it was told to hold; a value beyond the range is placed at its
/// end.
class SvgAxis {
 public:
  enum class Scale {
    kLinear,
    kLog,    ///< values above 0
    kAsinh,  ///< linear up to `unit`, logarithmic beyond, on both sides of 0
  };
  using Label = std::function<std::string(double value)>;

  /// Ends are in pixels. A vertical axis begins at its bottom.
  static SvgAxis Horizontal(double left, double right,
                            Scale scale = Scale::kLinear);
  static SvgAxis Vertical(double bottom, double top,
                          Scale scale = Scale::kLinear, double unit = 1);

  /// Special  values that have no place in the scale, or one beyond 1e300, are
  ///          left out.
  void Hold(double value);
  /// Widens the range by `share` of it at both ends, and enough for ticks if
  /// the values are equal or nearly so.
  void Widen(double share);

  double At(double value) const;
  bool Holds(double value) const;
  /// Returns ticks that are 1, 2 or 5 times a power of ten apart, powers of
  /// ten, or those of the unit with 0. They are at least `spacing` pixels
  /// apart; the first two kinds have at most 200.
  std::vector<double> Ticks(double spacing) const;

  /// Draws a line for each tick, from `begin` to `end` of the other direction,
  /// with its label: left of a vertical axis, below a horizontal one.
  std::string Grid(double begin, double end, const Label& label,
                   double spacing) const;
  /// Draws an interval as a bar, at `across` of the other direction. An end
  /// that lies beyond the axis is an arrow.
  std::string Bar(double across, double lower, double upper,
                  std::string_view colour) const;
  /// Draws a bar, with a dot on it if the axis holds the estimate.
  std::string Whisker(double across, double estimate, double lower,
                      double upper, std::string_view colour) const;

 private:
  SvgAxis(bool horizontal, double from, double to, Scale scale, double unit)
      : horizontal_(horizontal),
        from_(from),
        to_(to),
        scale_(scale),
        unit_(unit) {}

  double Place(double value) const;  ///< in the scale
  std::vector<double> TicksOfUnit(double spacing) const;
  std::string Arrow(double across, double end, std::string_view colour) const;

  bool horizontal_;
  double from_;
  double to_;
  Scale scale_;
  double unit_;
  static constexpr double kFurthestPlace = 1e300;
  double least_ = kFurthestPlace;  // in the scale
  double most_ = -kFurthestPlace;
};

/// Places labels so that none covers an earlier one.
class SvgLabels {
 public:
  /// Centres the text on `x`, within [left, right], at `y` or as far above as
  /// it must be. If it is above, a thin line joins it to `y`.
  std::string Place(double x, double y, std::string_view text,
                    std::string_view colour, double left, double right);

 private:
  std::vector<std::array<double, 3>> placed_;  // left, width, y
};

/// A key says what a colour stands for.
struct SvgKey {
  std::string_view colour;
  std::string label;
  /// A figure or letter may take the place of the dot.
  std::string sign = {};
};
/// Draws the keys in a row.
std::string SvgLegend(double x, double y, std::span<const SvgKey> keys);

struct SvgForestRow {
  std::string label;
  std::string_view colour;
  double lower = 0;  ///< of the bar
  double upper = 0;
  double dot = 0;
  std::optional<double> ring = std::nullopt;
  std::string instead = {};  ///< a text in place of bar and dot
};
inline constexpr double kSvgForestRow = 17;  ///< pixels of a row
/// Draws intervals under each other on one axis, with labels left of `left`.
/// The axis's own labels lie below, 24 pixels high. With `zero` the axis holds
/// 0.
std::string SvgForest(double left, double right, double top,
                      std::span<const SvgForestRow> rows, bool zero,
                      const SvgAxis::Label& label);

}  // namespace isoloss::document
