#include "isoloss/certify/log_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "isoloss/base/printable.h"
#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::certify {
namespace {

using runlog::RunLog;
using runlog::SharedColumn;
using runlog::SharedColumns;
using runlog::SharedRow;

/// Counts the digests that both logs have of tensors.
void CountDigests(const SharedColumn& column, LogPair& pair) {
  const auto& names = column.group->names.shared;
  const auto& a = column.a.Values<int64_t>(*column.of);
  const auto& b = column.b.Values<int64_t>(*column.of);
  std::set<size_t> tensors;
  for (const SharedRow& row : column.rows) {
    if (!IsRecorded(column, row)) continue;
    pair.tensor_steps.push_back(row.step);
    size_t found = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (a[row.a * column.width_a + names[i].a] == 0 ||
          b[row.b * column.width_b + names[i].b] == 0) {
        continue;
      }
      ++found;
      tensors.insert(i);
    }
    pair.digests += static_cast<int64_t>(found);
    if (row.step == pair.last_step) {
      pair.has_tensors_at_end = found > 0 && found == column.width_a &&
                                column.width_a == column.width_b;
    }
  }
  pair.tensors = static_cast<int64_t>(tensors.size());
}

void AddQuantities(const SharedColumns& shared, LogPair& pair) {
  for (const SharedColumn* column : shared.Comparable()) {
    if (column->rows.empty() || !column->HoldsValues()) continue;
    const std::string& group = column->group->of->name;
    const std::string& field = column->field().name;
    pair.quantities.push_back(
        group == "steps" ? field : fmt::format("{}/{}", group, field));
    if (group == "tensors" && column->field().domain.is_digest()) {
      CountDigests(*column, pair);
    }
  }
}

/// Returns whether a log has values of a column at the common steps.
bool HasValues(const runlog::View& log, const runlog::Group& group,
               const runlog::Column& column, const LogPair& pair) {
  return log.Count(column) > 0 &&
         std::ranges::any_of(*log.Steps(group), [&](int64_t step) {
           return step >= pair.first_step && step <= pair.last_step;
         });
}

/// Names columns that one log has and the other one lacks.
void AddOnlyInOne(const RunLog& first, const RunLog& other, LogPair& pair) {
  const runlog::View a(first);
  const runlog::View b(other);
  for (const runlog::Group& group : runlog::RowGroups()) {
    if (!group.HasSteps()) continue;
    for (const runlog::Column& column : group.columns) {
      const bool holds_values = column.role == runlog::Role::kRows ||
                                column.role == runlog::Role::kSquare;
      if (!holds_values || !column.field.reproducible ||
          HasValues(a, group, column, pair) ==
              HasValues(b, group, column, pair)) {
        continue;
      }
      pair.uncertified.push_back(
          fmt::format("{} (in one log only)", group.PathOf(column)));
    }
  }
}

void AddOnlyNames(const SharedColumns& shared,
                  const compare::DivergenceReport& report, LogPair& pair) {
  const auto add = [&](const std::vector<std::string>& names) {
    // A log without any is named by its columns.
    if (names.empty() || (shared.group("tensors").names.shared.empty() &&
                          shared.group("parameters").names.shared.empty())) {
      return;
    }
    pair.uncertified.push_back(
        fmt::format("{} of {} tensors or parameters (in one log only)",
                    Printable(names.front()), names.size()));
  };
  add(report.tensors_only_a);
  add(report.tensors_only_b);
  add(report.parameters_only_a);
  add(report.parameters_only_b);
  for (const std::string& column : report.other_extents) {
    pair.lacking.push_back(fmt::format("{}, so it was not compared", column));
  }
}

/// Names what neither log has.
void AddUnrecorded(const RunLog& first, LogPair& pair) {
  const runlog::StepColumns& steps = first.steps;
  if (steps.batch_digest.empty()) {
    pair.uncertified.emplace_back("batches (no digest)");
  }
  const bool has_norms =
      std::ranges::any_of(steps.grad_norm, [](double v) { return v == v; });
  if (!has_norms) pair.uncertified.emplace_back("gradient norms");
  if (pair.digests == 0 && first.tensors.digest.empty()) {
    pair.uncertified.emplace_back("digests of tensors");
  }
  std::set<std::string> told;
  for (const runlog::Event& event : first.events) {
    if (event.kind == "unrecorded" && told.insert(event.text).second) {
      pair.uncertified.push_back(Printable(event.text));
    }
  }
}

void FindFirst(const RunLog& first, const RunLog& other,
               const compare::DivergenceReport& report, bool same_beginning,
               LogPair& pair) {
  const runlog::Provenance& a = first.provenance;
  const runlog::Provenance& b = other.provenance;
  if (same_beginning) {
    pair.has_weights_before =
        !a.initial_weights_digest.empty() && !b.initial_weights_digest.empty();
    if (pair.has_weights_before &&
        a.initial_weights_digest != b.initial_weights_digest) {
      pair.first = {.quantity = "initial_weights_digest",
                    .first = a.initial_weights_digest,
                    .other = b.initial_weights_digest};
      return;
    }
  }
  if (const auto& found = report.first) {
    pair.first = {found->step,
                  found->quantity,
                  found->name,
                  found->a,
                  found->b,
                  found->last_equal_step,
                  found->agreeing.empty() ? "" : found->agreeing.back()};
    return;
  }
  pair.has_weights_after = first.steps.step.back() == other.steps.step.back() &&
                           !a.final_weights_digest.empty() &&
                           !b.final_weights_digest.empty();
  if (pair.has_weights_after &&
      a.final_weights_digest != b.final_weights_digest) {
    pair.first = {.step = pair.last_step,
                  .quantity = "final_weights_digest",
                  .first = a.final_weights_digest,
                  .other = b.final_weights_digest,
                  .last_equal_step = pair.last_step};
  }
}

/// A NaN is equal to any other one, whatever made it.
void CheckFinite(const RunLog& first, LogPair& pair) {
  for (size_t i = 0; i < first.steps.step.size(); ++i) {
    const int64_t step = first.steps.step[i];
    if (step < pair.first_step || step > pair.last_step ||
        i >= first.steps.loss_nats.size() ||
        std::isfinite(first.steps.loss_nats[i])) {
      continue;
    }
    pair.lacking.push_back(fmt::format(
        "The loss of step {} is {}: from there on equal values show nothing.",
        step, first.steps.loss_nats[i]));
    return;
  }
}

}  // namespace

template <typename T>
std::optional<T> At(const runlog::StepColumns& steps,
                    const std::vector<T>& column, int64_t step) {
  const auto found = std::ranges::lower_bound(steps.step, step);
  const auto at = static_cast<size_t>(found - steps.step.begin());
  if (found == steps.step.end() || *found != step || at >= column.size()) {
    return std::nullopt;
  }
  return column[at];
}
template std::optional<int64_t> At(const runlog::StepColumns&,
                                   const std::vector<int64_t>&, int64_t);
template std::optional<double> At(const runlog::StepColumns&,
                                  const std::vector<double>&, int64_t);

LogPair CompareLogs(const RunLog& first, const RunLog& other,
                    bool same_beginning) {
  LogPair pair;
  const auto rows = runlog::MatchRows(first.steps.step, other.steps.step);
  if (rows.empty()) {
    pair.lacking.emplace_back("The logs have no common step.");
    return pair;
  }
  pair.steps = static_cast<int64_t>(rows.size());
  pair.first_step = rows.front().step;
  pair.last_step = rows.back().step;
  const SharedColumns shared(first, other);
  AddQuantities(shared, pair);
  // Without parameters after the update, no tensor shows the last state.
  pair.has_tensors_at_end &= std::ranges::any_of(
      first.tensors.names,
      [](const std::string& name) { return name.ends_with("_parameter"); });
  const compare::DivergenceReport report =
      compare::FindDivergence(first, other);
  AddOnlyInOne(first, other, pair);
  AddOnlyNames(shared, report, pair);
  AddUnrecorded(first, pair);
  CheckFinite(first, pair);
  FindFirst(first, other, report, same_beginning, pair);
  return pair;
}

std::vector<Cause> StepCauses(const RunLog& first, const RunLog& other,
                              int64_t step, const std::string& name) {
  std::vector<Cause> causes;
  const auto batch = At(first.steps, first.steps.batch_digest, step);
  const auto other_batch = At(other.steps, other.steps.batch_digest, step);
  if (batch && other_batch && *batch != *other_batch) {
    causes.push_back(
        {kData, fmt::format("The batch of step {} of {} is another one.", step,
                            name)});
  }
  const auto lr = At(first.steps, first.steps.lr, step);
  const auto other_lr = At(other.steps, other.steps.lr, step);
  if (lr && other_lr && !runlog::SameBits(*lr, *other_lr)) {
    causes.push_back(
        {kSchedule,
         fmt::format("The learning rate of step {} is {} and, of {}, {}.", step,
                     *lr, name, *other_lr)});
  }
  return causes;
}

}  // namespace isoloss::certify
