// Describes a picture as data, before it is drawn.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "isoloss/document/svg_axes.h"

namespace isoloss::document {

/// An axis shows all finite values that are drawn along it, and `holds`.
struct PictureAxis {
  SvgAxis::Scale scale = SvgAxis::Scale::kLinear;
  double unit = 1;                 ///< of SvgAxis::Scale::kAsinh
  std::vector<double> holds = {};  ///< values that must be in view
  bool fixed = false;              ///< shows no more than `holds`
  double widen = 0;                ///< share of the range at either end
  double spacing = 80;             ///< of ticks, pixels
  SvgAxis::Label label = SignedTick;
  std::string title = {};  ///< of a horizontal one
};

/// A mark is a sign at a point, with its interval along the vertical axis.
struct PictureMark {
  enum class Sign {
    kDot,
    kRing,
    kDash,  ///< a short horizontal line
    kFoot,  ///< a short vertical line on the lower edge
  };
  double x = 0;
  double y = 0;
  std::optional<std::pair<double, double>> interval = std::nullopt;
  std::string_view colour = colour::kInk;
  Sign sign = Sign::kDot;
  double radius = 3.5;
  double shift = 0;  ///< to the right, pixels
};

/// A line through points. It has a gap where a value is not a number.
struct PicturePath {
  std::vector<std::array<double, 2>> points;
  std::string_view colour;
  double opacity = 1;
};

/// A band covers an area. Each of its edges is [x, lower, upper].
struct PictureBand {
  std::vector<std::array<double, 3>> edges;
  std::string_view colour;
};

/// A rule is a line across the panel.
struct PictureRule {
  double at = 0;
  bool vertical = false;
  std::string_view colour = colour::kRed;
  std::string_view dashes = "5 4";
};

/// A label stands at the height of a value, or above the panel. It is covered
/// by no other label.
struct PictureLabel {
  double x = 0;
  std::optional<double> y = std::nullopt;
  std::string text;
  std::string_view colour = colour::kInk;
};

/// A panel has two axes and draws its parts over them in this order.
struct PicturePanel {
  std::string title = {};
  std::string caption = {};  ///< a second line
  PictureAxis x = {};
  PictureAxis y = {};
  std::vector<PictureRule> rules = {};
  std::vector<PictureBand> bands = {};
  std::vector<PicturePath> paths = {};
  std::vector<PictureMark> marks = {};
  std::vector<PictureLabel> labels = {};
  std::string instead = {};  ///< a text in place of all that
  int width = 860;
  int height = 270;
  bool beside = false;  ///< right of the panel before it
};

/// A forest shows intervals under each other on one axis.
struct PictureForest {
  std::vector<SvgForestRow> rows;
  bool zero = false;  ///< the axis holds 0
  SvgAxis::Label label = SignedTick;
  double left = 210;  ///< of the axis, pixels
};

/// A strip shows an interval on an axis of its own, with bounds between its
/// two sides.
struct PictureStrip {
  std::string title;
  std::string text;
  std::string_view colour;
  double estimate = 0;
  double lower = 0;
  double upper = 0;
  std::vector<double> bounds = {};  ///< ascending
  bool green_first = false;         ///< left of the first bound, else red
};

/// A grid has rows and columns of coloured cells.
struct PictureGrid {
  struct Cell {
    std::string_view fill;
    std::string text;
    std::string note = {};  ///< smaller, below
  };
  std::vector<std::string> columns;
  std::vector<std::pair<std::string, std::vector<Cell>>> rows;
};

struct PictureText {
  std::string text;
  std::string attributes = {};  ///< of SVG
};

struct PictureKeys {
  std::vector<SvgKey> keys;
};

using PicturePart = std::variant<PictureText, PictureKeys, PicturePanel,
                                 PictureForest, PictureStrip, PictureGrid>;

/// A picture shows its parts under each other.
struct Picture {
  std::string title;
  std::string_view colour = "#000000";  ///< of the title
  std::vector<PicturePart> parts = {};
  int width = 860;  ///< at least
};

/// Returns the label of a tick of a logarithmic axis, such as "10^24".
std::string DecadeTick(double value);

/// Returns a text in small grey letters.
PictureText SmallPrint(std::string text);

/// Renders the picture as SVG, which holds no value that is not finite.
std::string RenderSvg(const Picture& picture);

}  // namespace isoloss::document
