#include "isoloss/runlog/column_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace isoloss::runlog {
namespace {

template <typename T>
std::string Shown(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "NaN";
  }
  return fmt::to_string(value);
}

}  // namespace

std::string_view RemedyOf(Fault fault) {
  return fault == Fault::kRun
             ? "The run diverged or computed garbage."
             : "The file is damaged or was edited: make it again.";
}

void ColumnCheck::Check(const Group& group) {
  group_ = &group;
  if (group.IsFile()) {
    for (const Column& column : group.columns) CheckAttribute(column);
    return;
  }
  labels_ = nullptr;
  steps_ = nullptr;
  rows_ = log_.Count(group.columns.front());
  CheckSteps();
  for (const Column& column : group.ColumnsIn(log_)) CheckColumn(column);
}

void ColumnCheck::CheckAttribute(const Column& column) {
  if (column.role != Role::kAttribute) return;
  log_.WithValue(column, [&]<typename T>(const T& value) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      const Domain& domain = column.field.domain;
      if (domain.Contains(value)) return;
      Report(domain.fault(),
             fmt::format("attribute {} is {}", column.field.name, Shown(value)),
             domain.Range());
    }
  });
}

void ColumnCheck::CheckSteps() {
  const Column& index = group_->columns.front();
  if (!index.field.domain.ascending()) return;
  steps_ = log_.Steps(*group_);
  const auto fall = std::adjacent_find(steps_->begin(), steps_->end(),
                                       std::greater_equal<>());
  if (fall == steps_->end()) return;
  Report(Fault::kFile,
         fmt::format("{} goes from {} to {} in row {}", group_->PathOf(index),
                     *fall, *(fall + 1), fall - steps_->begin() + 1),
         "ascending");
}

void ColumnCheck::CheckColumn(const Column& column) {
  if (column.role == Role::kPlaces) return;
  const size_t count = log_.Count(column);
  if (column.role == Role::kLabels) {
    const auto places = static_cast<size_t>(log_.Size(column.axes.front()));
    if (count != places) ReportLength(column, count, places);
    labels_ = &log_.Values<std::string>(column);
    return;
  }
  const size_t expected = rows_ * log_.Width(column);
  if (count == 0) {
    if (MayBeMissing(column, expected)) return;
    lengths_fit = false;
    Report(Fault::kFile, group_->PathOf(column) + " is missing", "there");
  } else if (count != expected) {
    ReportLength(column, count, expected);
  } else {
    CheckValues(column);
  }
}

bool ColumnCheck::MayBeMissing(const Column& column, size_t expected) const {
  const Field& field = column.field;
  // Only /moe/expert_ids itself tells its width, which is 0 if it is missing.
  const bool tells_width = rows_ > 0 && field.when == When::kRouting;
  return (expected == 0 && !tells_width) ||
         std::max(field.since, group_->since) > version_ ||
         !is_due_(field.when);
}

void ColumnCheck::CheckValues(const Column& column) {
  const Domain& domain = column.field.domain;
  log_.WithValues(column, [&]<typename T>(const std::vector<T>& values) {
    if constexpr (std::is_arithmetic_v<T>) {
      const auto bad = [&](T value) { return !domain.Contains(value); };
      const auto first = std::find_if(values.begin(), values.end(), bad);
      if (first == values.end()) return;
      spoilt_relations |= domain.relations();
      const auto place = static_cast<size_t>(first - values.begin());
      Report(domain.fault(),
             fmt::format(
                 "{} is {} {} ({} of {} values are such)",
                 group_->PathOf(column), Shown(*first), PlaceOf(column, place),
                 std::count_if(first, values.end(), bad), values.size()),
             domain.Range());
    }
  });
}

void ColumnCheck::Report(Fault fault, std::string_view found,
                         std::string_view rule) {
  violations.push_back({fault, fmt::format("{}, but it must be {}. {}", found,
                                           rule, RemedyOf(fault))});
}

void ColumnCheck::ReportLength(const Column& column, size_t found,
                               size_t expected) {
  lengths_fit = false;
  Report(Fault::kFile,
         fmt::format("the length of {} is {}", group_->PathOf(column), found),
         fmt::to_string(expected));
}

/// Returns "at step 5, layer 0, expert 3".
std::string ColumnCheck::PlaceOf(const Column& column, size_t place) const {
  std::string text;
  for (auto axis = column.axes.rbegin(); axis != column.axes.rend(); ++axis) {
    const auto size = static_cast<size_t>(log_.Size(*axis));
    const size_t at = place % size;
    place /= size;
    const bool labelled = labels_ != nullptr && labels_->size() == size;
    const std::string_view plural = axis->name;
    text = fmt::format(", {} {}{}", plural.substr(0, plural.size() - 1),
                       labelled ? labels_->at(at) : fmt::to_string(at), text);
  }
  return (steps_ == nullptr ? fmt::format("in row {}", place)
                            : fmt::format("at step {}", steps_->at(place))) +
         text;
}

}  // namespace isoloss::runlog
