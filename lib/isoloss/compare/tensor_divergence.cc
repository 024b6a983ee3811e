#include "isoloss/compare/tensor_divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::Band;
using runlog::SharedColumn;
using runlog::SharedColumns;
using runlog::SharedGroup;
using runlog::SharedRow;
using runlog::SharedValue;
using runlog::Turn;

constexpr size_t kNeighbours = 3;

std::string DigestText(int64_t digest) {
  if (digest == 0) return "none";
  return fmt::format("{:016x}", static_cast<uint64_t>(digest));
}

std::string Text(const SharedValue::Value& value, bool is_digest) {
  return std::visit(
      [is_digest](const auto& of) -> std::string {
        using T = std::remove_cvref_t<decltype(of)>;
        if constexpr (std::is_same_v<T, double>) {
          return fmt::format("{}", of);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return is_digest ? DigestText(of) : fmt::to_string(of);
        } else {
          return of;
        }
      },
      value);
}

bool IsStatistic(Turn turn) {
  return turn > Turn::kDigest && turn < Turn::kRouting;
}

/// Returns the turn of a column; empty if it is not compared. In an exact
/// comparison, digests compare tensors to the bit. Statistics then come last,
/// for logs without digests.
std::optional<Turn> TurnOf(const SharedColumn& column, bool exact) {
  const Turn turn = column.field().turn;
  if (exact) return IsStatistic(turn) ? Turn::kMeasured : turn;
  const bool none =
      turn == Turn::kDigest || turn == Turn::kRouting || turn >= Turn::kBias;
  return none ? std::nullopt : std::optional(turn);
}

/// Returns all columns of /eval, or those of all remaining groups, by turn.
/// Columns of tensors are one band.
std::vector<Band> Bands(const SharedColumns& shared, bool exact, bool of_eval) {
  Band band;
  for (const SharedColumn* column : shared.Comparable()) {
    const bool in_eval = column->group == &shared.group("eval");
    if (in_eval == of_eval && TurnOf(*column, exact)) band.push_back(column);
  }
  std::stable_sort(band.begin(), band.end(),
                   [exact](const SharedColumn* a, const SharedColumn* b) {
                     return *TurnOf(*a, exact) < *TurnOf(*b, exact);
                   });
  std::vector<Band> bands(1);
  for (const SharedColumn* column : band) {
    if (*TurnOf(*column, exact) < Turn::kRouting) {
      bands.front().push_back(column);
    } else {
      bands.push_back({column});
    }
  }
  return bands;
}

bool HasTensors(const SharedColumn& column, const SharedRow& row) {
  if (!column.labelled || !IsRecorded(column, row)) return false;
  for (size_t i = 0; i < column.group->names.shared.size(); ++i) {
    if (IsRecorded(column, row, i)) return true;
  }
  return false;
}

/// Returns the steps at which a column of the band was recorded in both logs.
std::vector<int64_t> TensorSteps(const Band& band) {
  std::vector<int64_t> steps;
  for (const SharedColumn* column : band) {
    for (const SharedRow& row : column->rows) {
      if (HasTensors(*column, row)) steps.push_back(row.step);
    }
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::optional<Phase> PhaseOf(const runlog::RunLog& log,
                             std::string_view tensor) {
  const runlog::GraphIndex graph(log.provenance.graph);
  const auto place = graph.Find(tensor);
  if (!place) return std::nullopt;
  for (const Phase phase :
       {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    if (graph.tensors().phase[*place] == PhaseName(phase)) return phase;
  }
  return std::nullopt;
}

std::optional<Phase> PhaseOf(const SharedColumn& column) {
  if (column.field().turn == Turn::kRouting) return Phase::kForward;
  if (column.field().turn == Turn::kBias) return Phase::kOptimizer;
  return std::nullopt;
}

TensorDivergence DivergenceAt(const runlog::StepDifference& difference,
                              bool exact) {
  const SharedValue& value = difference.value;
  const SharedColumn& column = *value.column;
  const auto [a, b] = value.Values();
  const bool is_digest = column.field().domain.is_digest();
  TensorDivergence found;
  found.step = value.row.step;
  found.quantity = column.quantity();
  found.name = value.Place();
  found.a = Text(a, is_digest);
  found.b = Text(b, is_digest);
  found.is_tensor = *TurnOf(column, exact) < Turn::kRouting;
  found.phase = PhaseOf(column);
  found.last_equal_step = difference.last_equal_step;
  if (!found.is_tensor) return found;
  const SharedGroup& group = *column.group;
  found.agreeing_count = static_cast<int64_t>(value.place);
  for (size_t i = value.place - std::min(value.place, kNeighbours);
       i < value.place; ++i) {
    found.agreeing.push_back((*group.labels_a)[group.names.shared[i].a]);
  }
  return found;
}

}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
  }
  return "";
}

bool DivergenceReport::HidesTensors() const {
  if (!first) return false;
  // Tensors of this step say what differs in it. Tensors of the step before say
  // that nothing differed until then.
  const int64_t telling = first->is_tensor ? first->step - 1 : first->step;
  return telling > 0 &&
         !std::binary_search(tensor_steps.begin(), tensor_steps.end(), telling);
}

DivergenceReport FindDivergence(const runlog::RunLog& a,
                                const runlog::RunLog& b,
                                const DivergenceOptions& options) {
  const SharedColumns shared(a, b);
  const bool exact = !options.tolerance;
  const SharedGroup& tensors = shared.group("tensors");
  const SharedGroup& parameters = shared.group("parameters");
  const std::vector<Band> bands = Bands(shared, exact, /*of_eval=*/false);
  const std::vector<int64_t> steps = shared.Steps();
  DivergenceReport report;
  report.steps = static_cast<int64_t>(steps.size());
  report.tensor_steps = TensorSteps(bands.front());
  report.tensors_only_a = tensors.names.only_a;
  report.tensors_only_b = tensors.names.only_b;
  report.parameters_only_a = parameters.names.only_a;
  report.parameters_only_b = parameters.names.only_b;
  for (const SharedColumn* column : shared.OtherExtents()) {
    if (!TurnOf(*column, exact)) continue;
    report.other_extents.push_back(
        fmt::format("/{}/{}: {}", column->group->of->name, column->field().name,
                    column->extents->Text()));
  }
  const runlog::Rule rule = {.tolerance = options.tolerance,
                             .where_both_quantize = !exact};
  auto found = FirstInSteps(steps, bands, rule);
  if (!found) {
    found = FirstInSteps(shared.group("eval").Steps(),
                         Bands(shared, exact, /*of_eval=*/true), rule);
  }
  if (found) report.first = DivergenceAt(*found, exact);
  if (report.first && report.first->is_tensor) {
    report.first->phase = PhaseOf(a, report.first->name);
    if (!report.first->phase) {
      report.first->phase = PhaseOf(b, report.first->name);
    }
  }
  return report;
}

}  // namespace isoloss::compare
