#include "isoloss/foreign/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace isoloss::foreign {
namespace {

void AddSteps(const Series& series, std::vector<std::string>& findings) {
  const Spacing spacing = SpacingOf(series.step);
  if (spacing.gaps > 0) {
    findings.push_back(
        fmt::format("{}: values stand {} steps apart, but not everywhere. "
                    "Places that differ: "
                    "{}, the first after step {}. Values missing: {}.",
                    series.name, spacing.stride, spacing.gaps,
                    spacing.first_gap, spacing.missing));
  }
  if (series.repeated > 0) {
    findings.push_back(fmt::format(
        "{}: steps were written again with another value, as after a resume: "
        "{}, the first is {}. The last value counts.",
        series.name, series.repeated, series.first_repeat));
  }
  if (series.copies > 0) {
    findings.push_back(
        fmt::format("{}: values were written again unchanged, as by several "
                    "ranks: {}. Each "
                    "counts once.",
                    series.name, series.copies));
  }
}

void AddValues(const Series& series, std::vector<std::string>& findings) {
  const auto bad = std::ranges::find_if_not(
      series.value, [](double x) { return std::isfinite(x); });
  if (bad != series.value.end()) {
    findings.push_back(fmt::format(
        "{}: values are NaN or infinite: {}, the first at {}.", series.name,
        std::ranges::count_if(series.value,
                              [](double x) { return !std::isfinite(x); }),
        series.step[static_cast<size_t>(bad - series.value.begin())]));
  }
  if (series.averaging != Averaging::kInstant) {
    findings.push_back(
        fmt::format("{}: each value is a {}, which has less noise than the "
                    "value of a step. Do not pair the two kinds.",
                    series.name, AveragingText(series.averaging)));
  }
  if (LooksSmoothed(series)) {
    findings.push_back(fmt::format(
        "{}: it moves like a smoothed series. Differences in a row have the "
        "correlation {:.2f}, where independent batches give -0.5.",
        series.name, DifferenceCorrelation(series.value)));
  }
  if (series.thinned) {
    findings.push_back(fmt::format(
        "{}: points were left out by whoever exported it.", series.name));
  }
}

}  // namespace

bool LooksSmoothed(const Series& series) {
  return DifferenceCorrelation(series.value) > kSmoothedFrom;
}

bool CanTellSmoothing(const Series& series) {
  return !std::isnan(DifferenceCorrelation(series.value));
}

std::vector<std::string> FindingsOf(const ForeignRun& run) {
  std::vector<std::string> findings = run.notes;
  if (run.step_base != 1 && run.step_unit == "step") {
    findings.push_back(
        fmt::format("The log counts steps from {}. Training steps are counted "
                    "from 1 here.",
                    run.step_base));
  }
  for (const Series& series : run.series) {
    if (series.quantity == Quantity::kOther) continue;
    AddSteps(series, findings);
    // A schedule and a clock are smooth, and nothing is wrong with that.
    const bool is_loss = series.quantity == Quantity::kLoss ||
                         series.quantity == Quantity::kGradNorm ||
                         series.quantity == Quantity::kEvalLoss;
    if (is_loss) AddValues(series, findings);
  }
  return findings;
}

}  // namespace isoloss::foreign
