#include "isoloss/report/widths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"

namespace isoloss::report {
namespace {

using document::IntervalJson;
using document::Json;
using document::SvgForest;
using document::SvgForestRow;
using document::SvgKey;
using document::SvgLegend;
using document::SvgParagraph;
using document::SvgPicture;
using document::SvgTitle;
namespace colour = document::colour;
using document::kSvgForestRow;

using compare::OperandTransfer;
using compare::WidthTransfer;

constexpr int64_t kWidthsSchemaVersion = 1;
constexpr int kWidthsPicture = 900;
constexpr int kWidthsLeft = 330;
constexpr int kWidthsTop = 84;

std::string LogsText(size_t logs) {
  return fmt::format("{} log{}", logs, logs == 1 ? "" : "s");
}

/// "a is missing in 1 log, b is not finite in 2 logs"; of many the first.
std::string LeftOutText(const WidthTransfer& transfer) {
  constexpr size_t kMostNamed = 20;
  std::vector<std::string> reasons;
  for (const compare::OperandLeftOut& operand : transfer.left_out) {
    if (reasons.size() == kMostNamed) {
      reasons.push_back(
          fmt::format("and {} more", transfer.left_out.size() - kMostNamed));
      break;
    }
    const std::string missing =
        operand.missing == 0
            ? ""
            : fmt::format("missing in {}", LogsText(operand.missing));
    const std::string infinite =
        operand.infinite == 0
            ? ""
            : fmt::format("not finite in {}", LogsText(operand.infinite));
    reasons.push_back(fmt::format(
        "{} is {}{}{}", operand.operand, missing,
        missing.empty() || infinite.empty() ? "" : " and ", infinite));
  }
  return fmt::format("{} operands are left out of {} in all: {}.",
                     transfer.left_out.size(), LogsText(transfer.logs),
                     fmt::join(reasons, ", "));
}

std::string WidthsSummary(const WidthTransfer& transfer) {
  std::string text = fmt::format(
      "{} of {} operands lie inside their {:g} % prediction intervals at width "
      "{}. Root mean square distance: {:.2f} dB from the line, {:.2f} dB from "
      "width {}.",
      transfer.Inside(), transfer.operands.size(),
      100 * WidthTransfer::kConfidence, transfer.width,
      transfer.PredictedRmsDb(), transfer.NearestRmsDb(),
      transfer.small_widths.back());
  if (transfer.wide_logs > 1) {
    text += fmt::format(
        " What is measured, and what is predicted, is the mean of {} at width "
        "{}.",
        LogsText(transfer.wide_logs), transfer.width);
  }
  if (!transfer.left_out.empty()) text += " " + LeftOutText(transfer);
  return text;
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
            {"confidence", WidthTransfer::kConfidence},
            {"width", transfer.width},
            {"logs", transfer.logs},
            {"wide_logs", transfer.wide_logs},
            {"small_widths", transfer.small_widths},
            {"steps", transfer.steps},
            {"inside", transfer.Inside()},
            {"rms_from_line_db", transfer.PredictedRmsDb()},
            {"rms_from_nearest_db", transfer.NearestRmsDb()},
            {"operands", Json::array()},
            {"left_out", Json::array()}};
  for (const OperandTransfer& operand : transfer.operands) {
    json["operands"].push_back(
        {{"name", operand.operand},
         {"measured_db", operand.measured},
         {"nearest_db", operand.nearest},
         {"predicted_db",
          IntervalJson(operand.predicted, operand.lower, operand.upper)},
         {"inside", operand.inside()}});
  }
  for (const compare::OperandLeftOut& operand : transfer.left_out) {
    json["left_out"].push_back({{"name", operand.operand},
                                {"missing_logs", operand.missing},
                                {"infinite_logs", operand.infinite}});
  }
  return json.dump(2) + "\n";
}

std::string RenderWidthsSvg(const WidthTransfer& transfer) {
  std::string body = SvgTitle(
      16, 24,
      fmt::format("SQNR of arm {} at width {}, dB, predicted from widths {}",
                  transfer.arm, transfer.width,
                  fmt::join(transfer.small_widths, ", ")));
  const std::array<SvgKey, 2> keys = {
      {{colour::kBlue,
        fmt::format("measured (dot), predicted (ring, {:g} % interval)",
                    100 * WidthTransfer::kConfidence)},
       {colour::kRed, "outside"}}};
  body += SvgLegend(16, 48, keys);
  std::vector<SvgForestRow> rows;
  for (const OperandTransfer& operand : transfer.operands) {
    rows.push_back({.label = operand.operand,
                    .colour = operand.inside() ? colour::kBlue : colour::kRed,
                    .lower = operand.lower,
                    .upper = operand.upper,
                    .dot = operand.measured,
                    .ring = operand.predicted});
  }
  const auto decibels = [](double tick) {
    return fmt::format("{:.11g}", tick);
  };
  body += SvgForest(kWidthsLeft, kWidthsPicture - 40, kWidthsTop, rows,
                    /*zero=*/false, decibels);
  double y = kWidthsTop + kSvgForestRow * static_cast<double>(rows.size()) + 40;
  body += SvgParagraph(16, y, kWidthsPicture - 32, WidthsSummary(transfer));
  return SvgPicture(kWidthsPicture, static_cast<int>(y), body);
}

}  // namespace isoloss::report
