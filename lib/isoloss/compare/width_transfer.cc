#include "isoloss/compare/width_transfer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

constexpr double kUpperTail = (1 + WidthTransfer::kConfidence) / 2;
constexpr size_t kLeastWidths = 3;
constexpr size_t kLeastRuns = 4;
constexpr const char* kWidthTensor = "norm_weight";

/// One run has these operands.
struct WidthRun {
  int64_t width = 0;
  std::map<std::string, double> sqnr_db;
};

/// Removes the layer: "layers.12.moe.w1_weight" becomes "moe.w1_weight".
std::string WithoutLayer(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (name.rfind(kLayers, 0) != 0) return name;
  const auto digit = [](char c) { return std::isdigit(c) != 0; };
  const auto end =
      std::find_if_not(name.begin() + kLayers.size(), name.end(), digit);
  if (end == name.end() || *end != '.') return name;
  return {end + 1, name.end()};
}

int64_t WidthOf(const Run& run) {
  const runlog::TensorColumns& tensors = run.log.tensors;
  const auto found = std::ranges::find(tensors.names, kWidthTensor);
  const std::vector<double>& counts = tensors.statistics[runlog::kStat_numel];
  const auto place = static_cast<size_t>(found - tensors.names.begin());
  if (found != tensors.names.end() && place < counts.size()) {
    const double count = counts[place];
    if (count >= 1 && count < 1e9) return static_cast<int64_t>(count);
  }
  ThrowError(ErrorKind::kConfig,
             "{}: it has no statistics of {}, which tell how wide the model "
             "is. Train with log.statistics_first = 1.",
             Label(run), kWidthTensor);
}

std::vector<int64_t> CommonSteps(std::span<const Run> runs) {
  std::vector<int64_t> common = runs.front().log.tensors.step;
  for (const Run& run : runs) {
    std::erase_if(common, [&](int64_t step) {
      return std::ranges::count(run.log.tensors.step, step) == 0;
    });
  }
  return common;
}

/// Adds means over the layers and steps that have a value.
void AddOperands(const runlog::TensorColumns& tensors,
                 const std::vector<int64_t>& steps, size_t statistic,
                 const char* suffix, std::map<std::string, double>& means) {
  const std::vector<double>& values = tensors.statistics[statistic];
  if (values.empty()) return;
  std::map<std::string, std::vector<double>> found;
  for (size_t row = 0; row < tensors.step.size(); ++row) {
    if (std::ranges::count(steps, tensors.step[row]) == 0) continue;
    for (size_t i = 0; i < tensors.names.size(); ++i) {
      const double value = values[row * tensors.names.size() + i];
      if (std::isnan(value)) continue;
      found[WithoutLayer(tensors.names[i]) + suffix].push_back(value);
    }
  }
  for (const auto& [operand, of_operand] : found) {
    means[operand] = stats::Mean(of_operand);
  }
}

WidthRun MakeWidthRun(const Run& run, const std::vector<int64_t>& steps) {
  WidthRun made{.width = WidthOf(run), .sqnr_db = {}};
  AddOperands(run.log.tensors, steps, runlog::kStat_sqnr, "", made.sqnr_db);
  AddOperands(run.log.tensors, steps, runlog::kStat_sqnr_columnwise,
              " (columns)", made.sqnr_db);
  return made;
}

/// Fits least squares over log2(width), and predicts the mean of `more` runs
/// with its interval.
void Predict(const std::vector<WidthRun>& narrow, int64_t width, size_t more,
             OperandTransfer& operand) {
  std::vector<double> x;
  std::vector<double> y;
  for (const WidthRun& run : narrow) {
    x.push_back(std::log2(static_cast<double>(run.width)));
    y.push_back(run.sqnr_db.at(operand.operand));
  }
  const double mean_x = stats::Mean(x);
  const double mean_y = stats::Mean(y);
  double xx = 0;
  double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  const double slope = xy / xx;
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double rest = y[i] - mean_y - slope * (x[i] - mean_x);
    squares += rest * rest;
  }
  const auto count = static_cast<double>(x.size());
  const double at = std::log2(static_cast<double>(width)) - mean_x;
  const double error =
      std::sqrt(squares / (count - 2) *
                (1 / static_cast<double>(more) + 1 / count + at * at / xx));
  operand.predicted = mean_y + slope * at;
  const double reach = error * stats::StudentTQuantile(kUpperTail, count - 2);
  operand.lower = operand.predicted - reach;
  operand.upper = operand.predicted + reach;
}

double MeanOf(const std::vector<WidthRun>& runs, int64_t width,
              const std::string& operand) {
  std::vector<double> values;
  for (const WidthRun& run : runs) {
    if (run.width == width) values.push_back(run.sqnr_db.at(operand));
  }
  return stats::Mean(values);
}

/// Returns whether both operands have the same SQNR in every run. Then both are
/// one tensor, such as that which w1 and w3 read, or the rounding does not
/// depend on the direction. With a power of two as the scale, no element moves
/// to another place between two codes.
bool AreOne(const std::string& a, const std::string& b,
            const std::vector<WidthRun>& runs) {
  constexpr double kEqualDb = 1e-6;
  return std::ranges::all_of(runs, [&](const WidthRun& run) {
    return std::fabs(run.sqnr_db.at(a) - run.sqnr_db.at(b)) < kEqualDb;
  });
}

/// Returns the operands that all runs have; of equal ones, the first by name.
/// The remaining operands are `left_out`.
std::vector<std::string> CommonOperands(const std::vector<WidthRun>& runs,
                                        std::vector<OperandLeftOut>& left_out) {
  std::set<std::string> all;
  for (const WidthRun& run : runs) {
    for (const auto& entry : run.sqnr_db) all.insert(entry.first);
  }
  std::vector<std::string> names;
  for (const std::string& operand : all) {
    OperandLeftOut lack{.operand = operand};
    for (const WidthRun& run : runs) {
      const auto found = run.sqnr_db.find(operand);
      if (found == run.sqnr_db.end()) {
        ++lack.missing;
      } else if (!std::isfinite(found->second)) {
        ++lack.infinite;
      }
    }
    if (lack.missing + lack.infinite > 0) {
      left_out.push_back(lack);
      continue;
    }
    const bool is_new = std::ranges::none_of(
        names,
        [&](const std::string& other) { return AreOne(operand, other, runs); });
    if (is_new) names.push_back(operand);
  }
  return names;
}

void CheckArms(std::span<const Run> runs) {
  for (const Run& run : runs) {
    if (run.log.provenance.arm == runs.front().log.provenance.arm) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: its arm is {}, but that of {} is {}, and widths are "
               "compared within one. Choose an arm with --arm.",
               Label(run), run.log.provenance.arm, Label(runs.front()),
               runs.front().log.provenance.arm);
  }
}

template <typename Distance>
double RootMeanSquare(const std::vector<OperandTransfer>& operands,
                      const Distance& distance) {
  double squares = 0;
  for (const OperandTransfer& operand : operands) {
    squares += distance(operand) * distance(operand);
  }
  return std::sqrt(squares / static_cast<double>(operands.size()));
}

}  // namespace

size_t WidthTransfer::Inside() const {
  return static_cast<size_t>(
      std::ranges::count_if(operands, &OperandTransfer::inside));
}

double WidthTransfer::NearestRmsDb() const {
  return RootMeanSquare(operands, [](const OperandTransfer& operand) {
    return operand.measured - operand.nearest;
  });
}

double WidthTransfer::PredictedRmsDb() const {
  return RootMeanSquare(operands, [](const OperandTransfer& operand) {
    return operand.measured - operand.predicted;
  });
}

WidthTransfer CompareWidths(std::span<const Run> runs) {
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig, "widths: no log was given. Give some.");
  }
  CheckArms(runs);
  WidthTransfer transfer;
  transfer.arm = runs.front().log.provenance.arm;
  transfer.steps = CommonSteps(runs);
  std::vector<WidthRun> made;
  std::set<int64_t> widths;
  for (const Run& run : runs) {
    made.push_back(MakeWidthRun(run, transfer.steps));
    widths.insert(made.back().width);
  }
  transfer.width = *widths.rbegin();
  transfer.small_widths.assign(widths.begin(), std::prev(widths.end()));
  std::vector<WidthRun> narrow = made;
  std::erase_if(
      narrow, [&](const WidthRun& run) { return run.width == transfer.width; });
  transfer.logs = made.size();
  transfer.wide_logs = made.size() - narrow.size();
  if (transfer.small_widths.size() < kLeastWidths ||
      narrow.size() < kLeastRuns) {
    ThrowError(ErrorKind::kConfig,
               "widths: below the widest model the number of widths is {} and "
               "that of logs {}, but a line with an interval takes {} widths "
               "and {} logs. Train more.",
               transfer.small_widths.size(), narrow.size(), kLeastWidths,
               kLeastRuns);
  }
  for (const std::string& name : CommonOperands(made, transfer.left_out)) {
    OperandTransfer operand;
    operand.operand = name;
    operand.measured = MeanOf(made, transfer.width, name);
    operand.nearest = MeanOf(made, transfer.small_widths.back(), name);
    Predict(narrow, transfer.width, transfer.wide_logs, operand);
    transfer.operands.push_back(operand);
  }
  if (transfer.operands.empty()) {
    ThrowError(ErrorKind::kConfig,
               "widths: no quantised operand has statistics in all {} logs at "
               "a step that all have. Train with a recipe that quantises, and "
               "equal log.statistics_*.",
               runs.size());
  }
  std::ranges::stable_sort(
      transfer.operands, std::greater<>(), [](const OperandTransfer& operand) {
        return std::fabs(operand.measured - operand.predicted);
      });
  return transfer;
}

}  // namespace isoloss::compare
