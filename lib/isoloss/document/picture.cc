#include "isoloss/document/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/document/svg.h"

namespace isoloss::document {
namespace {

constexpr int kMargin = 16;
constexpr double kTextLine = 18;

/// A panel draws on this area, whose edges are in the panel's own pixels.
struct PanelArea {
  double left = 80;
  double right;
  double top;
  double bottom;
};

/// Leaves room for the title, and for a caption or for labels above the panel.
double TopOf(const PicturePanel& panel) {
  if (panel.title.empty()) return 24;
  return panel.caption.empty() ? 62 : 52;
}

/// Draws one panel, whose axes show all finite values.
class PanelDrawing {
 public:
  explicit PanelDrawing(const PicturePanel& panel)
      : panel_(panel),
        area_{.right = panel.width - 30.0,
              .top = TopOf(panel),
              .bottom = panel.height - (panel.x.title.empty() ? 40.0 : 58.0)},
        x_(SvgAxis::Horizontal(area_.left, area_.right, panel.x.scale)),
        y_(SvgAxis::Vertical(area_.bottom, area_.top, panel.y.scale,
                             panel.y.unit)) {
    for (const PictureBand& band : panel.bands) {
      for (const auto& [x, lower, upper] : band.edges) Hold(x, {lower, upper});
    }
    for (const PicturePath& path : panel.paths) {
      for (const auto& [x, y] : path.points) Hold(x, {y});
    }
    for (const PictureMark& mark : panel.marks) {
      if (mark.sign == PictureMark::Sign::kFoot) {
        Hold(mark.x, {});
      } else {
        Hold(mark.x, {mark.y});
      }
      if (mark.interval) {
        Hold(mark.x, {mark.interval->first, mark.interval->second});
      }
    }
    Finish(panel.x, x_);
    Finish(panel.y, y_);
  }

  std::string Draw() {
    std::string svg = Grid();
    for (const PictureBand& band : panel_.bands) svg += Band(band);
    for (const PicturePath& path : panel_.paths) svg += Path(path);
    for (const PictureMark& mark : panel_.marks) svg += Mark(mark);
    SvgLabels labels;
    for (const PictureLabel& label : panel_.labels) {
      const double y = label.y ? y_.At(*label.y) - 8 : area_.top - 12;
      svg += labels.Place(x_.At(label.x), y, label.text, label.colour,
                          area_.left, panel_.width - 4);
    }
    return svg;
  }

 private:
  void Hold(double x, std::initializer_list<double> values) {
    if (!panel_.x.fixed) x_.Hold(x);
    if (panel_.y.fixed) return;
    for (const double value : values) y_.Hold(value);
  }

  static void Finish(const PictureAxis& data, SvgAxis& axis) {
    for (const double value : data.holds) axis.Hold(value);
    axis.Widen(data.widen);
  }

  std::string Grid() const {
    std::string svg =
        x_.Grid(area_.top, area_.bottom, panel_.x.label, panel_.x.spacing) +
        y_.Grid(area_.left, area_.right, panel_.y.label, panel_.y.spacing);
    for (const PictureRule& rule : panel_.rules) {
      const std::string dashes =
          fmt::format("stroke-dasharray=\"{}\"", rule.dashes);
      const double at = rule.vertical ? x_.At(rule.at) : y_.At(rule.at);
      svg += rule.vertical ? SvgLine(at, area_.top - 8, at, area_.bottom,
                                     rule.colour, dashes)
                           : SvgLine(area_.left, at, area_.right, at,
                                     rule.colour, dashes);
    }
    return svg + SvgText((area_.left + area_.right) / 2, area_.bottom + 34,
                         panel_.x.title, "text-anchor=\"middle\"");
  }

  std::string Point(double x, double y) const {
    return fmt::format("{:.1f},{:.1f} ", x_.At(x), y_.At(y));
  }

  std::string Band(const PictureBand& band) const {
    std::string points;
    for (const auto& [x, lower, upper] : band.edges) points += Point(x, upper);
    for (size_t i = band.edges.size(); i-- > 0;) {
      points += Point(band.edges[i][0], band.edges[i][1]);
    }
    return fmt::format(
        "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.14\"/>\n", points,
        band.colour);
  }

  std::string Path(const PicturePath& path) const {
    std::string steps;
    bool drawing = false;
    for (const auto& [x, y] : path.points) {
      if (!std::isnan(y)) steps += (drawing ? "L" : "M") + Point(x, y);
      drawing = !std::isnan(y);
    }
    if (steps.empty()) return "";
    return fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"{}\" "
        "stroke-width=\"1.2\"/>\n",
        steps, path.colour, path.opacity);
  }

  std::string Mark(const PictureMark& mark) const {
    const double x = x_.At(mark.x) + mark.shift;
    std::string svg;
    if (mark.interval) {
      svg = y_.Bar(x, mark.interval->first, mark.interval->second, mark.colour);
    }
    if (mark.sign == PictureMark::Sign::kFoot) {
      return svg + SvgLine(x, area_.bottom - 9, x, area_.bottom, mark.colour,
                           "stroke-width=\"1.5\"");
    }
    if (!y_.Holds(mark.y)) return svg;
    const double y = y_.At(mark.y);
    if (mark.sign == PictureMark::Sign::kDash) {
      return svg + SvgLine(x - 14, y, x + 14, y, mark.colour);
    }
    return svg + SvgDot(x, y, mark.radius, mark.colour,
                        mark.sign == PictureMark::Sign::kRing ? "none" : "");
  }

  const PicturePanel& panel_;
  const PanelArea area_;
  SvgAxis x_;
  SvgAxis y_;
};

/// Draws parts from the top down.
class PictureDrawing {
 public:
  explicit PictureDrawing(const Picture& picture) : width_(picture.width) {
    body_ = SvgText(kMargin, 24, picture.title,
                    fmt::format("font-weight=\"bold\" font-size=\"14\" "
                                "fill=\"{}\"",
                                picture.colour));
    for (const PicturePart& part : picture.parts) {
      std::visit([this](const auto& of) { Put(of); }, part);
    }
  }

  std::string Take() && {
    return SvgPicture(width_, static_cast<int>(y_) + 4, body_);
  }

 private:
  void Put(const PictureText& text) {
    body_ += SvgParagraph(kMargin, y_, width_ - 2 * kMargin, text.text,
                          text.attributes);
  }

  void Put(const PictureKeys& keys) {
    body_ += SvgLegend(kMargin, y_, keys.keys);
    y_ += kTextLine + 2;
  }

  void Put(const PicturePanel& panel) {
    const double x = panel.beside ? last_right_ : 0;
    const double y = panel.beside ? last_top_ : y_;
    body_ += fmt::format("<g transform=\"translate({} {})\">\n", x, y);
    body_ += SvgText(kMargin, 20, panel.title, "font-weight=\"bold\"");
    body_ +=
        SvgText(kMargin, 36, panel.caption,
                fmt::format("font-size=\"11\" fill=\"{}\"", colour::kGrey));
    body_ += panel.instead.empty() ? PanelDrawing(panel).Draw()
                                   : SvgText(kMargin, 60, panel.instead);
    body_ += "</g>\n";
    last_right_ = x + panel.width;
    last_top_ = y;
    width_ = std::max(width_, static_cast<int>(last_right_));
    y_ = std::max(y_, y + panel.height);
  }

  void Put(const PictureForest& forest) {
    y_ += 8;
    body_ += SvgForest(forest.left, width_ - 40, y_, forest.rows, forest.zero,
                       forest.label);
    y_ += kSvgForestRow * static_cast<double>(forest.rows.size()) + 40;
  }

  /// Draws one side of a strip in a pale colour.
  void PutSide(double left, double right, double y, bool green) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"24\" "
        "fill=\"{}\" fill-opacity=\"0.2\"/>\n",
        left, y, right - left, green ? colour::kGreen : colour::kRed);
  }

  void Put(const PictureStrip& strip) {
    const double right = width_ - kMargin;
    SvgAxis axis = SvgAxis::Horizontal(kMargin, right);
    for (const double bound : strip.bounds) axis.Hold(bound);
    for (const double value : {0.0, strip.estimate, strip.lower, strip.upper}) {
      axis.Hold(value);
    }
    axis.Widen(0.12);
    y_ += 8;
    body_ += SvgText(kMargin, y_, strip.title, "font-weight=\"bold\"");
    body_ += SvgText(kMargin, y_ + kTextLine, strip.text,
                     fmt::format("fill=\"{}\"", strip.colour));
    const double y = y_ + kTextLine + 10;
    double left = kMargin;
    bool green = strip.green_first;
    for (const double bound : strip.bounds) {
      PutSide(left, axis.At(bound), y, green);
      left = axis.At(bound);
      green = !green;
    }
    PutSide(left, right, y, green);
    body_ += axis.Grid(
        y, y + 24,
        [](double tick) { return fmt::format("{:g}", tick + 0.0); },  // no -0
        80);
    for (const double bound : strip.bounds) {
      body_ += SvgLine(axis.At(bound), y - 3, axis.At(bound), y + 27,
                       colour::kInk, "stroke-dasharray=\"4 3\"");
    }
    body_ += axis.Whisker(y + 12, strip.estimate, strip.lower, strip.upper,
                          strip.colour);
    y_ = y + 58;
  }

  void Put(const PictureGrid& grid) {
    constexpr int kNames = 170;
    constexpr int kWide = 124;
    constexpr int kHigh = 40;
    y_ += 14;
    double x = kNames + kWide / 2.0;
    for (const std::string& name : grid.columns) {
      PutColumnName(x, name);
      x += kWide;
    }
    y_ += 10;
    for (const auto& [name, cells] : grid.rows) {
      body_ += SvgText(kNames - 10, y_ + kHigh / 2.0 + 4, name,
                       "text-anchor=\"end\"");
      x = kNames;
      for (const PictureGrid::Cell& cell : cells) {
        body_ += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
            "fill=\"{}\"/>\n",
            x, y_, kWide - 3, kHigh - 3, cell.fill);
        body_ += SvgText(x + kWide / 2.0, y_ + 16, cell.text,
                         "text-anchor=\"middle\"");
        body_ += SvgText(x + kWide / 2.0, y_ + 30, cell.note,
                         fmt::format("text-anchor=\"middle\" font-size=\"10\" "
                                     "fill=\"{}\"",
                                     colour::kGrey));
        x += kWide;
      }
      width_ = std::max(width_, static_cast<int>(x) + kMargin);
      y_ += kHigh;
    }
    y_ += 24;
  }

  /// A long name takes two lines, and is cut at the last '_' that fits.
  void PutColumnName(double x, const std::string& name) {
    constexpr size_t kLetters = 15;
    constexpr const char* kBold = "text-anchor=\"middle\" font-weight=\"bold\"";
    const size_t cut =
        name.size() > kLetters ? name.rfind('_', kLetters) : name.npos;
    body_ += SvgText(x, y_ - 14, name.substr(0, cut), kBold);
    if (cut != name.npos) body_ += SvgText(x, y_, name.substr(cut), kBold);
  }

  int width_;
  double y_ = 46;
  double last_right_ = 0;
  double last_top_ = 0;
  std::string body_;
};

}  // namespace

std::string DecadeTick(double value) {
  return fmt::format("10^{:.0f}", std::log10(value));
}

PictureText SmallPrint(std::string text) {
  return {std::move(text), fmt::format("fill=\"{}\"", colour::kGrey)};
}

std::string RenderSvg(const Picture& picture) {
  return PictureDrawing(picture).Take();
}

}  // namespace isoloss::document
