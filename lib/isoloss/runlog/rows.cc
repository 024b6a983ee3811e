#include "isoloss/runlog/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::runlog {
namespace {

/// Counts values as a reader does (hdf5/read_limit.h).
size_t ValueBytes(const Column& column) {
  return column.type == ValueType::kString ? hdf5::kTextBytes
                                           : hdf5::SizeOf(column.type);
}

/// Requires that both sides have the same labels, or one side has none.
void CheckLabels(const std::string& name, const std::vector<std::string>& a,
                 const std::vector<std::string>& b) {
  if (a.empty() || b.empty() || a == b) return;
  const auto [of_rows, of_log] =
      std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  ThrowError(
      ErrorKind::kShape,
      "run log: label {} of {} is `{}` in new rows, but `{}` in the log. "
      "Give the same labels at each step.",
      of_log - b.begin(), name, of_rows == a.end() ? "" : *of_rows,
      of_log == b.end() ? "" : *of_log);
}

void CheckExtents(const Group& group, const Column& column, const View& rows,
                  const View& log) {
  for (const Axis& axis : column.axes) {
    const int64_t a = rows.Size(axis);
    const int64_t b = log.Size(axis);
    if (a == 0 || b == 0 || a == b) continue;
    ThrowError(ErrorKind::kShape,
               "run log: {} has {} {} in new rows, but {} in the log. Give "
               "rows of the same run.",
               group.PathOf(column), a, axis.name, b);
  }
}

void CheckColumn(const Group& group, const Column& column, const View& rows,
                 const View& log) {
  CheckExtents(group, column, rows, log);
  if (column.role == Role::kLabels) {
    return CheckLabels(group.PathOf(column), rows.Values<std::string>(column),
                       log.Values<std::string>(column));
  }
  const size_t length = rows.Count(column);
  const size_t needed = rows.Width(column) * rows.Rows(group, column);
  if (length != 0 && length != needed) {
    ThrowError(ErrorKind::kShape,
               "run log: {} has {} values, but its rows need {}. Append to all "
               "columns at each step.",
               group.PathOf(column), length, needed);
  }
  if (column.role != Role::kSquare && rows.Rows(group, column) > 0 &&
      log.Rows(group, column) > 0 &&
      (length == 0) != (log.Count(column) == 0)) {
    ThrowError(ErrorKind::kShape,
               "run log: {} is in {}, but not in {}. Record it at all steps or "
               "none.",
               group.PathOf(column), length == 0 ? "the log" : "new rows",
               length == 0 ? "new rows" : "the log");
  }
}

void Take(const Column& column, const View& from, MutableView to) {
  for (const Axis& axis : column.axes) {
    if (to.Size(axis) == 0) to.Size(axis) = from.Size(axis);
  }
  to.WithValues(column, [&]<typename T>(std::vector<T>& target) {
    const std::vector<T>& values = from.Values<T>(column);
    if (column.IsWhole() && !values.empty()) target.clear();
    target.insert(target.end(), values.begin(), values.end());
  });
}

/// Keeps the rows [begin, end) of a group with steps.
void Keep(const Group& group, size_t begin, size_t end, MutableView log) {
  for (const Column& column : group.columns) {
    if (column.role == Role::kLabels || log.Count(column) == 0) continue;
    const size_t width = log.Width(column);
    log.WithValues(column, [&](auto& values) {
      const auto first = values.begin();
      values.erase(first + static_cast<std::ptrdiff_t>(end * width),
                   values.end());
      values.erase(first, first + static_cast<std::ptrdiff_t>(begin * width));
    });
  }
}

/// Returns how many of ascending `steps` are at most `step`.
size_t CountUpTo(const std::vector<int64_t>& steps, int64_t step) {
  return static_cast<size_t>(
      std::upper_bound(steps.begin(), steps.end(), step) - steps.begin());
}

std::string Text(const SharedValue::Value& value) {
  const auto* real = std::get_if<double>(&value);
  return real != nullptr
             ? fmt::format("{:.17g}", *real)
             : std::visit([](const auto& of) { return fmt::format("{}", of); },
                          value);
}

std::string ColumnDifference(const SharedColumn& column) {
  if (column.extents) return ": " + column.extents->Text();
  for (const SharedRow& row : column.rows) {
    const auto found = FirstDifferent(column, row, {.whole_rows = true});
    if (!found) continue;
    const auto [a, b] = found->Values();
    return fmt::format("{}: {} against {}",
                       column.of->role == Role::kLabels
                           ? ""
                           : fmt::format(" at step {}", row.step),
                       Text(a), Text(b));
  }
  return "";
}

}  // namespace

void CheckAppend(const RunLog& rows, const RunLog& log) {
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      if (!column.IsRecorded()) continue;
      CheckColumn(group, column, View(rows), View(log));
    }
  }
}

/// Functions that search a log by step rely on this check.
void CheckOrder(const RunLog& rows, const RunLog& log) {
  for (const Group& group : RowGroups()) {
    if (!group.HasSteps()) continue;
    const std::vector<int64_t>& held = *View(log).Steps(group);
    int64_t last = held.empty() ? -1 : held.back();
    for (const int64_t step : *View(rows).Steps(group)) {
      if (step <= last || step > hdf5::kMaxCounted) {
        ThrowError(
            ErrorKind::kShape,
            "run log: /{}/step is {} in new rows, but must be above {} and "
            "at most {}. Append each step once, in order.",
            group.name, step, last, hdf5::kMaxCounted);
      }
      last = step;
    }
  }
}

size_t ValueBytesOf(const RunLog& log) {
  size_t bytes = 0;
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      if (column.role == Role::kPlaces) continue;
      bytes += View(log).Count(column) * ValueBytes(column);
    }
  }
  return bytes;
}

void CheckSize(const RunLog& rows, const RunLog& log, int64_t limit) {
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      if (column.role == Role::kPlaces) continue;
      const size_t added = View(rows).Count(column);
      const size_t held = View(log).Count(column);
      const size_t values =
          column.IsWhole() ? std::max(added, held) : added + held;
      if (values <= static_cast<size_t>(limit)) continue;
      ThrowError(ErrorKind::kConfig,
                 "run log: {} would have {} values with this step, but a log "
                 "may hold {} of one kind. Record tensors at fewer steps "
                 "(log.statistics_every, log.digests_every), no routing "
                 "(log.routing), or train for fewer steps.",
                 group.HasEvents() ? "/events" : group.PathOf(column), values,
                 limit);
    }
  }
  const size_t bytes = ValueBytesOf(rows) + ValueBytesOf(log);
  if (bytes <= hdf5::ReadLimit()) return;
  ThrowError(ErrorKind::kConfig,
             "run log: with this step it would have {} MiB of values, but a "
             "log may hold {} MiB. Record tensors at fewer steps "
             "(log.statistics_every, log.digests_every), no routing "
             "(log.routing), train for fewer steps, or set ISOLOSS_MEMORY_MIB "
             "to more.",
             bytes >> 20, hdf5::ReadLimit() >> 20);
}

void AppendRows(const RunLog& rows, RunLog& log) {
  CheckAppend(rows, log);
  CheckOrder(rows, log);
  CheckSize(rows, log);
  TakeRows(rows, log);
}

void TakeRows(const RunLog& rows, RunLog& log) {
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      if (column.IsRecorded()) Take(column, View(rows), MutableView(log));
    }
  }
  log.events.insert(log.events.end(), rows.events.begin(), rows.events.end());
}

bool HaveCommonSteps(const RunLog& rows, const RunLog& log) {
  return std::ranges::any_of(RowGroups(), [&](const Group& group) {
    if (!group.HasSteps()) return false;
    const std::vector<int64_t>& added = *View(rows).Steps(group);
    const std::vector<int64_t>& held = *View(log).Steps(group);
    return !added.empty() && !held.empty() && added.front() <= held.back();
  });
}

void UnifyNans(RunLog& rows) {
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      if (!column.IsRecorded() || column.type != ValueType::kDouble) continue;
      for (double& value : MutableView(rows).Values<double>(column)) {
        if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

void KeepRowsUpTo(int64_t step, RunLog& log) {
  const size_t exchange_rows = log.exchange.step.size();
  for (const Group& group : RowGroups()) {
    if (!group.HasSteps()) continue;
    Keep(group, 0, CountUpTo(*View(log).Steps(group), step), MutableView(log));
  }
  if (log.exchange.step.size() < exchange_rows) {
    log.exchange.bytes_by_pair.clear();
  }
}

void DropRowsOf(const RunLog& log, RunLog& rows) {
  const bool had_exchange = !rows.exchange.step.empty();
  for (const Group& group : RowGroups()) {
    const std::vector<int64_t>* held = View(log).Steps(group);
    if (held == nullptr || held->empty()) continue;
    for (const Column& column : group.columns) {
      if (column.role != Role::kLabels || View(log).Count(column) == 0)
        continue;
      MutableView(rows).Values<std::string>(column).clear();
    }
    const std::vector<int64_t>& steps = *View(rows).Steps(group);
    Keep(group, CountUpTo(steps, held->back()), steps.size(),
         MutableView(rows));
  }
  if (had_exchange && rows.exchange.step.empty()) {
    rows.exchange.bytes_by_pair.clear();
  }
}

bool HasNoRows(const RunLog& rows) {
  for (const Group& group : RowGroups()) {
    for (const Column& column : group.columns) {
      const bool is_row =
          column.role != Role::kLabels && column.role != Role::kPlaces;
      if (is_row && View(rows).Count(column) > 0) return false;
    }
  }
  return true;
}

std::string FirstDifference(const RunLog& a, const RunLog& b) {
  const SharedColumns shared(a, b);
  for (const SharedColumn& column : shared.all()) {
    const std::string difference = ColumnDifference(column);
    if (difference.empty()) continue;
    return column.group->of->PathOf(*column.of) + difference;
  }
  return "";
}

}  // namespace isoloss::runlog
