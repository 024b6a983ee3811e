// isoloss study widths: decides whether the quantisation errors of narrow
// models foretell the errors of a wide model.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/compare/width_transfer.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

using compare::OperandTransfer;
using compare::WidthTransfer;
using document::Document;

class Widths : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "logs",
             .value = &logs_,
             .help = "Run logs of one arm at several widths, or folders of "
                     "them; the widest is predicted from the others",
             .required = true},
            {.name = "--arm",
             .value = &arm_,
             .help = "Take the logs of this arm (default: all)"},
            {.name = "--out",
             .value = &out_,
             .help = "Folder for widths.json and widths.svg (default: none is "
                     "written)",
             .type_name = "FOLDER"}};
  }

  Plan MakePlan(const Request& /*request*/) override {
    return {.kind = "widths", .folder = out_, .cells = {}, .text = {}};
  }

  std::optional<Answer> Judge(const Plan& /*plan*/,
                              bool /*may_train*/) override {
    std::vector<compare::Run> runs = logs::ReadRuns(logs_);
    if (!arm_.empty()) {
      std::erase_if(runs, [&](const compare::Run& run) {
        return run.log.provenance.arm != arm_;
      });
      if (runs.empty()) {
        ThrowError(ErrorKind::kConfig,
                   "--arm {}: no log is of that arm. Give one that the logs "
                   "have.",
                   document::Shortened(arm_, 60));
      }
    }
    const WidthTransfer transfer = compare::CompareWidths(runs);
    return Answer{.document = WidthsDocument(transfer),
                  .picture = WidthsPicture(transfer)};
  }

 private:
  std::vector<std::filesystem::path> logs_;
  std::string arm_;
  std::string out_;  ///< "": nothing is written
};

std::string LogsText(size_t logs) {
  return fmt::format("{} log{}", logs, logs == 1 ? "" : "s");
}

/// Returns "a is missing in 1 log, b is not finite in 2 logs"; lists only the
/// first of many.
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

Document OperandDocument(const OperandTransfer& operand, size_t name_width) {
  Document document;
  document.Put("name", operand.operand);
  document.Put("measured_db", operand.measured);
  document.Put("nearest_db", operand.nearest);
  document.PutInterval("predicted_db", operand.predicted, operand.lower,
                       operand.upper);
  document.Put("inside", operand.inside());
  document.Say(fmt::format(
      "{:<{}}  {:>9.2f}  {:>9.2f}  {:.2f} [{:.2f}, {:.2f}]{}", operand.operand,
      name_width, operand.measured, operand.nearest, operand.predicted,
      operand.lower, operand.upper, operand.inside() ? "" : "  OUTSIDE"));
  return document;
}

Document LeftOutDocument(const compare::OperandLeftOut& operand) {
  Document document;
  document.Put("name", operand.operand);
  document.Put("missing_logs", operand.missing);
  document.Put("infinite_logs", operand.infinite);
  return document;
}

}  // namespace

Document WidthsDocument(const WidthTransfer& transfer) {
  size_t name = 8;
  for (const OperandTransfer& operand : transfer.operands) {
    name = std::max(name, operand.operand.size());
  }
  Document document;
  document.Put("schema_version", 1);
  document.Put("arm", transfer.arm);
  document.Put("confidence", WidthTransfer::kConfidence);
  document.Put("width", transfer.width);
  document.Put("logs", transfer.logs);
  document.Put("wide_logs", transfer.wide_logs);
  document.Put("small_widths", transfer.small_widths);
  document.Put("steps", transfer.steps);
  document.Put("inside", transfer.Inside());
  document.Put("rms_from_line_db", transfer.PredictedRmsDb());
  document.Put("rms_from_nearest_db", transfer.NearestRmsDb());
  document.Say(
      fmt::format("SQNR of arm {} in dB, mean over layers and steps {}",
                  transfer.arm, fmt::join(transfer.steps, ", ")));
  document.Say(fmt::format("{:<{}}  {:>9}  {:>9}  predicted from widths {}",
                           "operand", name,
                           fmt::format("at {}", transfer.width),
                           fmt::format("at {}", transfer.small_widths.back()),
                           fmt::join(transfer.small_widths, ", ")));
  document.PutEach("operands", transfer.operands,
                   [&](const OperandTransfer& operand) {
                     return OperandDocument(operand, name);
                   });
  document.PutEach("left_out", transfer.left_out, LeftOutDocument);
  document.Say(WidthsSummary(transfer));
  return document;
}

document::Picture WidthsPicture(const WidthTransfer& transfer) {
  namespace colour = document::colour;
  document::PictureForest forest{
      .rows = {},
      .label = [](double tick) { return fmt::format("{:.11g}", tick); },
      .left = 330};
  for (const OperandTransfer& operand : transfer.operands) {
    forest.rows.push_back(
        {.label = operand.operand,
         .colour = operand.inside() ? colour::kBlue : colour::kRed,
         .lower = operand.lower,
         .upper = operand.upper,
         .dot = operand.measured,
         .ring = operand.predicted});
  }
  return {
      .title = fmt::format(
          "SQNR of arm {} at width {}, dB, predicted from widths {}",
          transfer.arm, transfer.width, fmt::join(transfer.small_widths, ", ")),
      .parts = {document::PictureKeys{
                    {{colour::kBlue,
                      fmt::format(
                          "measured (dot), predicted (ring, {:g} % interval)",
                          100 * WidthTransfer::kConfidence)},
                     {colour::kRed, "outside"}}},
                std::move(forest),
                document::PictureText{WidthsSummary(transfer)}},
      .width = 900};
}

extern constinit const StudyKind kStudy_widths = {
    "widths", "Predict the errors of wide models from narrow ones",
    "isoloss study widths runs/width_128 runs/width_256 runs/width_512 "
    "runs/layer_of_16b --arm mxfp8",
    nullptr,
    []() -> std::unique_ptr<Study> { return std::make_unique<Widths>(); }};

}  // namespace isoloss::studies
