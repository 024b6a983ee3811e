#include "isoloss/compare/first_divergence.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::SharedColumns;
using runlog::SharedValue;

constexpr double kRecordedTolerance = 1e-9;
// Expert biases are sums of FP32 steps that cancel, so 64 last places of the
// largest bias are allowed.
constexpr double kBiasTolerance = 0x1p-18;

double Number(const SharedValue::Value& value) {
  const auto* whole = std::get_if<int64_t>(&value);
  return whole == nullptr ? std::get<double>(value)
                          : static_cast<double>(*whole);
}

Divergence DivergenceAt(const SharedValue& value) {
  const auto [a, b] = value.Values();
  const std::string place = value.Place();
  return {value.row.step,
          fmt::format("{}{}{}", value.column->quantity(),
                      place.empty() ? "" : " of ", place),
          Number(a), Number(b)};
}

/// Returns the first step of a group with another loss or gradient norm.
std::optional<Divergence> FirstOfCurves(const SharedColumns& shared,
                                        const char* group) {
  std::vector<runlog::Band> bands;
  for (const auto* column : shared.Comparable()) {
    const runlog::Turn turn = column->field().turn;
    if (column->group == &shared.group(group) &&
        (turn == runlog::Turn::kLoss || turn == runlog::Turn::kGradient)) {
      bands.push_back({column});
    }
  }
  const auto found =
      runlog::FirstInSteps(shared.group(group).Steps(), bands, {});
  if (!found) return std::nullopt;
  return DivergenceAt(found->value);
}

bool IsRecordedAlike(const runlog::Field& field) {
  return !field.domain.is_digest() && field.scope != runlog::Scope::kSlots;
}

TensorDigests DigestsOf(const SharedColumns& shared) {
  TensorDigests digests;
  for (const auto* column : shared.Comparable()) {
    if (column->group != &shared.group("tensors") ||
        !column->field().domain.is_digest()) {
      continue;
    }
    for (const runlog::SharedRow& row : column->rows) {
      if (!IsRecorded(*column, row)) continue;
      ++digests.steps;
      if (digests.other_step && *digests.other_step <= row.step) continue;
      if (const auto found = FirstDifferent(*column, row, {})) {
        digests.other_step = row.step;
        digests.other_tensor = found->Place();
      }
    }
  }
  return digests;
}

}  // namespace

std::optional<Divergence> FirstStepDivergence(const runlog::RunLog& baseline,
                                              const runlog::RunLog& candidate) {
  return FirstOfCurves({baseline, candidate}, "steps");
}

std::optional<Divergence> FirstDivergence(const runlog::RunLog& baseline,
                                          const runlog::RunLog& candidate) {
  const SharedColumns shared(baseline, candidate);
  const auto first = FirstOfCurves(shared, "steps");
  return first ? first : FirstOfCurves(shared, "eval");
}

TensorDigests CompareTensorDigests(const runlog::RunLog& baseline,
                                   const runlog::RunLog& candidate) {
  return DigestsOf({baseline, candidate});
}

std::optional<Divergence> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate) {
  const SharedColumns shared(baseline, candidate);
  for (const auto* column : shared.OtherExtents()) {
    if (!IsRecordedAlike(column->field()) || column->rows.empty()) continue;
    return Divergence{column->rows.front().step,
                      fmt::format("the number of {} of {}", column->extents->of,
                                  column->quantity()),
                      static_cast<double>(column->extents->a),
                      static_cast<double>(column->extents->b)};
  }
  const runlog::SharedGroup& tensors = shared.group("tensors");
  if (tensors.same_statistics && !tensors.rows.empty() &&
      !tensors.names.only_a.empty()) {
    return Divergence{tensors.rows.front().step,
                      "the presence of " + tensors.names.only_a.front(), 1, 0};
  }
  const std::optional<int64_t> end = DigestsOf(shared).other_step;
  for (const auto* column : shared.Comparable()) {
    if (!IsRecordedAlike(column->field())) continue;
    const bool bias = column->field().turn == runlog::Turn::kBias;
    for (const runlog::SharedRow& row : column->rows) {
      if (end && row.step >= *end) break;
      const auto found = FirstDifferent(
          *column, row,
          {.tolerance = bias ? kBiasTolerance : kRecordedTolerance});
      if (found) return DivergenceAt(*found);
    }
  }
  return std::nullopt;
}

}  // namespace isoloss::compare
