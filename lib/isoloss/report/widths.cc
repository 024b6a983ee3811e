#include "isoloss/report/widths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "isoloss/report/json_numbers.h"
#include "isoloss/report/svg.h"

namespace isoloss::report {
namespace {

using compare::OperandTransfer;
using compare::WidthTransfer;

constexpr int64_t kWidthsSchemaVersion = 1;
constexpr int kWidthsSide = 520;
constexpr int kWidthsEdge = 64;
constexpr size_t kNamedPoints = 6;

std::string WidthsSummary(const WidthTransfer& transfer) {
  return fmt::format(
      "{} of {} operands lie inside their 95 % prediction intervals at width "
      "{}. Root mean square distance: {:.2f} dB from the line, {:.2f} dB from "
      "width {}.",
      transfer.Inside(), transfer.operands.size(), transfer.width,
      transfer.PredictedRmsDb(), transfer.NearestRmsDb(),
      transfer.small_widths.back());
}

/// Both axes of the picture, dB.
class DecibelAxes {
 public:
  explicit DecibelAxes(const WidthTransfer& transfer) {
    for (const OperandTransfer& operand : transfer.operands) {
      for (const double value : {operand.measured, operand.predicted}) {
        least_ = std::min(least_, value);
        most_ = std::max(most_, value);
      }
    }
    least_ = std::floor(least_ - 1);
    most_ = std::ceil(most_ + 1);
  }

  double X(double decibels) const {
    return kWidthsEdge + Share(decibels) * kInside;
  }
  double Y(double decibels) const {
    return kWidthsEdge + (1 - Share(decibels)) * kInside;
  }
  double least() const { return least_; }
  double most() const { return most_; }

 private:
  static constexpr double kInside = kWidthsSide - 2 * kWidthsEdge;

  double Share(double decibels) const {
    return std::clamp((decibels - least_) / (most_ - least_), 0.0, 1.0);
  }

  double least_ = 1e300;
  double most_ = -1e300;
};

std::string WidthsGrid(const DecibelAxes& axes) {
  std::string svg =
      SvgLine(axes.X(axes.least()), axes.Y(axes.least()), axes.X(axes.most()),
              axes.Y(axes.most()), "#80868b");
  const double step =
      std::max(1.0, std::ceil((axes.most() - axes.least()) / 8));
  for (double at = axes.least(); at <= axes.most(); at += step) {
    svg += SvgText(axes.X(at), kWidthsSide - kWidthsEdge + 18,
                   fmt::format("{:g}", at),
                   "text-anchor=\"middle\" fill=\"#5f6368\"");
    svg += SvgText(kWidthsEdge - 8, axes.Y(at) + 4, fmt::format("{:g}", at),
                   "text-anchor=\"end\" fill=\"#5f6368\"");
  }
  return svg;
}

}  // namespace

std::string RenderWidths(const WidthTransfer& transfer) {
  size_t name = 8;
  for (const OperandTransfer& operand : transfer.operands) {
    name = std::max(name, operand.operand.size());
  }
  std::string text = fmt::format(
      "SQNR of arm {} in dB, mean over layers and steps {}\n"
      "{:<{}}  {:>9}  {:>9}  predicted from widths {}\n",
      transfer.arm, fmt::join(transfer.steps, ", "), "operand", name,
      fmt::format("at {}", transfer.width),
      fmt::format("at {}", transfer.small_widths.back()),
      fmt::join(transfer.small_widths, ", "));
  for (const OperandTransfer& operand : transfer.operands) {
    text +=
        fmt::format("{:<{}}  {:>9.2f}  {:>9.2f}  {:.2f} [{:.2f}, {:.2f}]{}\n",
                    operand.operand, name, operand.measured, operand.nearest,
                    operand.predicted, operand.lower, operand.upper,
                    operand.inside() ? "" : "  OUTSIDE");
  }
  return text + WidthsSummary(transfer) + "\n";
}

std::string RenderWidthsJson(const WidthTransfer& transfer) {
  Json json{{"schema_version", kWidthsSchemaVersion},
            {"arm", transfer.arm},
            {"width", transfer.width},
            {"small_widths", transfer.small_widths},
            {"steps", transfer.steps},
            {"inside", transfer.Inside()},
            {"rms_from_line_db", transfer.PredictedRmsDb()},
            {"rms_from_nearest_db", transfer.NearestRmsDb()},
            {"operands", Json::array()}};
  for (const OperandTransfer& operand : transfer.operands) {
    json["operands"].push_back({{"name", operand.operand},
                                {"measured_db", operand.measured},
                                {"nearest_db", operand.nearest},
                                {"predicted_db", operand.predicted},
                                {"lower_95_db", operand.lower},
                                {"upper_95_db", operand.upper},
                                {"inside", operand.inside()}});
  }
  return json.dump(2) + "\n";
}

std::string RenderWidthsSvg(const WidthTransfer& transfer) {
  const DecibelAxes axes(transfer);
  std::string body =
      SvgText(16, 24,
              fmt::format("SQNR of arm {} at width {} over its prediction, dB",
                          transfer.arm, transfer.width),
              "font-weight=\"bold\" font-size=\"14\"");
  body += SvgText(16, 44,
                  fmt::format("predicted from widths {}; bars: 95 % intervals; "
                              "red: outside",
                              fmt::join(transfer.small_widths, ", ")),
                  "fill=\"#5f6368\"");
  body += WidthsGrid(axes);
  for (const OperandTransfer& operand : transfer.operands) {
    const std::string_view colour = operand.inside() ? "#1a73e8" : "#d93025";
    const double y = axes.Y(operand.measured);
    body += SvgLine(axes.X(operand.lower), y, axes.X(operand.upper), y, colour,
                    "stroke-opacity=\"0.35\"");
    body += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
        axes.X(operand.predicted), y, colour);
  }
  body += SvgText(kWidthsSide / 2.0, kWidthsSide - kWidthsEdge + 40,
                  "predicted SQNR, dB", "text-anchor=\"middle\"");
  body += SvgText(16, kWidthsEdge - 6, "measured SQNR, dB");
  int y = kWidthsSide + 6;
  body += SvgText(16, y, WidthsSummary(transfer));
  y += 22;
  for (size_t i = 0; i < std::min(kNamedPoints, transfer.operands.size());
       ++i) {
    const OperandTransfer& operand = transfer.operands[i];
    body +=
        SvgText(16, y,
                fmt::format("{}: {:.2f} dB, predicted {:.2f} [{:.2f}, "
                            "{:.2f}]",
                            operand.operand, operand.measured,
                            operand.predicted, operand.lower, operand.upper),
                "fill=\"#5f6368\"");
    y += 18;
  }
  return SvgPicture(980, y + 4, body);
}

}  // namespace isoloss::report
