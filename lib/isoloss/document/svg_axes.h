// Axes, marks and legends of SVG pictures.
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

/// What a label of 12 pixels takes, about.
double SvgTextWidth(std::string_view text);

/// Lines of at most so many pixels, 18 apart; `y` is then that of the next.
std::string SvgParagraph(double x, double& y, double width,
                         const std::string& text,
                         std::string_view attributes = "");

/// `fill` "": that of the colour; "none": a ring.
std::string SvgDot(double x, double y, double radius, std::string_view colour,
                   std::string_view fill = "");

/// "0", "+0.25".
std::string SignedTick(double value);

/// Places values along one direction of a picture. The range is that of the
/// values that it was told to hold; what lies beyond it is placed at its ends.
class SvgAxis {
 public:
  enum class Scale {
    kLinear,
    kLog,    ///< values above 0
    kAsinh,  ///< linear up to `unit`, logarithmic beyond, on both sides of 0
  };
  using Label = std::function<std::string(double value)>;

  /// Pixels; a vertical axis begins at its bottom.
  static SvgAxis Horizontal(double left, double right,
                            Scale scale = Scale::kLinear);
  static SvgAxis Vertical(double bottom, double top,
                          Scale scale = Scale::kLinear, double unit = 1);

  /// Special  values that have no place in the scale, or one beyond 1e300, are
  ///          left out.
  void Hold(double value);
  /// Adds so much of the range at both ends, and enough for ticks if the values
  /// are equal or nearly so.
  void Widen(double share);

  double At(double value) const;
  bool Holds(double value) const;
  /// 1, 2 or 5 times a power of ten apart, powers of ten, or those of the unit
  /// with 0, at least `spacing` pixels from each other; at most 200 of the
  /// first two kinds.
  std::vector<double> Ticks(double spacing) const;

  /// A line for each tick, from `begin` to `end` of the other direction, with
  /// its label: left of a vertical axis, below a horizontal one.
  std::string Grid(double begin, double end, const Label& label,
                   double spacing) const;
  /// An interval as a bar, at `across` of the other direction. An end that lies
  /// beyond the axis is an arrow.
  std::string Bar(double across, double lower, double upper,
                  std::string_view colour) const;
  /// A bar with a dot on it, if the axis holds the estimate.
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

/// Labels that cover none of those placed before.
class SvgLabels {
 public:
  /// Centred on `x`, within [left, right], at `y` or as far above as it must
  /// be; then a thin line joins it to `y`.
  std::string Place(double x, double y, std::string_view text,
                    std::string_view colour, double left, double right);

 private:
  std::vector<std::array<double, 3>> placed_;  // left, width, y
};

/// One colour and what it stands for.
struct SvgKey {
  std::string_view colour;
  std::string label;
  /// A figure or letter in place of the dot.
  std::string sign = {};
};
/// A row of them.
std::string SvgLegend(double x, double y, std::span<const SvgKey> keys);

/// One row of a forest plot.
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
/// Intervals under each other on one axis, labels left of `left`; the axis's
/// own labels lie below, 24 pixels high. `zero`: the axis holds 0.
std::string SvgForest(double left, double right, double top,
                      std::span<const SvgForestRow> rows, bool zero,
                      const SvgAxis::Label& label);

}  // namespace isoloss::document
