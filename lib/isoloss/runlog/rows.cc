#include "isoloss/runlog/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "isoloss/base/error.h"
#include "isoloss/runlog/datasets.h"
#include "isoloss/runlog/sealed_file.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::runlog {
namespace {

template <typename Log>
std::string Name(const Group<Log>& group, const Dataset<Log>& dataset) {
  return fmt::format("/{}/{}", group.name, dataset.field.name);
}

/// As a reader counts them (read_limit.h).
template <typename Log>
size_t ValueBytes(const Dataset<Log>& dataset) {
  return std::visit(
      [](const auto* values) {
        using T = typename std::remove_cvref_t<decltype(*values)>::value_type;
        return std::is_same_v<T, std::string> ? kTextBytes : sizeof(T);
      },
      dataset.values);
}

/// That both are labels alike, or one side has none.
void CheckLabels(const std::string& name, const Dataset<const RunLog>& rows,
                 const Dataset<const RunLog>& log) {
  const auto& a = *std::get<const std::vector<std::string>*>(rows.values);
  const auto& b = *std::get<const std::vector<std::string>*>(log.values);
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

void CheckDataset(const Group<const RunLog>& from,
                  const Dataset<const RunLog>& rows,
                  const Group<const RunLog>& to,
                  const Dataset<const RunLog>& log) {
  const std::string name = Name(from, rows);
  for (size_t i = 0; i < rows.axes.size(); ++i) {
    const int64_t a = rows.axes[i].size;
    const int64_t b = log.axes[i].size;
    if (a != 0 && b != 0 && a != b) {
      ThrowError(ErrorKind::kShape,
                 "run log: {} has {} {} in new rows, but {} in the log. Give "
                 "rows of the same run.",
                 name, a, rows.axes[i].name, b);
    }
  }
  if (rows.shape == Shape::kLabels) return CheckLabels(name, rows, log);
  const size_t length = rows.size();
  const size_t needed = rows.Width() * from.RowsOf(rows);
  if (length != 0 && length != needed) {
    ThrowError(ErrorKind::kShape,
               "run log: {} has {} values, but its rows need {}. Append to all "
               "columns at each step.",
               name, length, needed);
  }
  if (rows.shape != Shape::kSquare && from.RowsOf(rows) > 0 &&
      to.RowsOf(log) > 0 && (length == 0) != (log.size() == 0)) {
    ThrowError(ErrorKind::kShape,
               "run log: {} is in {}, but not in {}. Record it at all steps or "
               "none.",
               name, length == 0 ? "the log" : "new rows",
               length == 0 ? "new rows" : "the log");
  }
}

/// That steps ascend over both, which all that search a log by step rely on.
void CheckSteps(const Group<const RunLog>& rows,
                const Group<const RunLog>& log) {
  if (rows.steps() == nullptr) return;
  int64_t last = log.steps()->empty() ? -1 : log.steps()->back();
  for (const int64_t step : *rows.steps()) {
    if (step <= last || step > kMaxCounted) {
      ThrowError(
          ErrorKind::kShape,
          "run log: /{}/step is {} in new rows, but must be above {} and "
          "at most {}. Append each step once, in order.",
          rows.name, step, last, kMaxCounted);
    }
    last = step;
  }
}

void Take(const Dataset<const RunLog>& from, const Dataset<RunLog>& to) {
  for (size_t i = 0; i < from.axes.size(); ++i) {
    if (to.axes[i].size == 0) to.axes[i].size = from.axes[i].size;
  }
  std::visit(
      [&](const auto* values) {
        using Values = std::remove_cvref_t<decltype(*values)>;
        Values& target = *std::get<Values*>(to.values);
        const bool replaces =
            from.shape == Shape::kSquare || from.shape == Shape::kLabels;
        if (replaces && !values->empty()) target.clear();
        target.insert(target.end(), values->begin(), values->end());
      },
      from.values);
}

/// Leaves the rows [begin, end) of a group with steps.
void Keep(const Group<RunLog>& group, size_t begin, size_t end) {
  for (const Dataset<RunLog>& dataset : group.datasets) {
    if (dataset.shape == Shape::kLabels || dataset.size() == 0) continue;
    const size_t width = dataset.Width();
    std::visit(
        [&](auto* values) {
          const auto first = values->begin();
          values->erase(first + static_cast<std::ptrdiff_t>(end * width),
                        values->end());
          values->erase(first,
                        first + static_cast<std::ptrdiff_t>(begin * width));
        },
        dataset.values);
  }
}

/// How many of ascending `steps` are at most `step`.
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
                       column.a->shape == Shape::kLabels
                           ? ""
                           : fmt::format(" at step {}", row.step),
                       Text(a), Text(b));
  }
  return "";
}

}  // namespace

void CheckAppend(const RunLog& rows, const RunLog& log) {
  const auto from = Groups(rows);
  const auto to = Groups(log);
  for (size_t g = 0; g < from.size(); ++g) {
    for (size_t i = 0; i < from[g].datasets.size(); ++i) {
      CheckDataset(from[g], from[g].datasets[i], to[g], to[g].datasets[i]);
    }
  }
}

void CheckOrder(const RunLog& rows, const RunLog& log) {
  const auto from = Groups(rows);
  const auto to = Groups(log);
  for (size_t g = 0; g < from.size(); ++g) CheckSteps(from[g], to[g]);
}

size_t ValueBytesOf(const RunLog& log) {
  size_t bytes = log.events.size() * (sizeof(double) + 2 * kTextBytes);
  for (const Group<const RunLog>& group : Groups(log)) {
    for (const Dataset<const RunLog>& dataset : group.datasets) {
      bytes += dataset.size() * ValueBytes(dataset);
    }
  }
  return bytes;
}

void CheckSize(const RunLog& rows, const RunLog& log, int64_t limit) {
  const auto check = [limit](const std::string& name, size_t values) {
    if (values <= static_cast<size_t>(limit)) return;
    ThrowError(ErrorKind::kConfig,
               "run log: {} would have {} values with this step, but a log "
               "may hold {} of one kind. Record tensors at fewer steps "
               "(log.statistics_every, log.digests_every), no routing "
               "(log.routing), or train for fewer steps.",
               name, values, limit);
  };
  const auto from = Groups(rows);
  const auto to = Groups(log);
  for (size_t g = 0; g < from.size(); ++g) {
    if (from[g].events != nullptr) {
      check("/events", from[g].events->size() + to[g].events->size());
    }
    for (size_t i = 0; i < from[g].datasets.size(); ++i) {
      const Dataset<const RunLog>& dataset = from[g].datasets[i];
      const size_t added = dataset.size();
      const size_t held = to[g].datasets[i].size();
      const bool replaces =
          dataset.shape == Shape::kSquare || dataset.shape == Shape::kLabels;
      check(Name(from[g], dataset),
            replaces ? std::max(added, held) : added + held);
    }
  }
  const size_t bytes = ValueBytesOf(rows) + ValueBytesOf(log);
  if (bytes <= ReadLimit()) return;
  ThrowError(ErrorKind::kConfig,
             "run log: with this step it would have {} MiB of values, but a "
             "log may hold {} MiB. Record tensors at fewer steps "
             "(log.statistics_every, log.digests_every), no routing "
             "(log.routing), train for fewer steps, or set ISOLOSS_MEMORY_MIB "
             "to more.",
             bytes >> 20, ReadLimit() >> 20);
}

void AppendRows(const RunLog& rows, RunLog& log) {
  CheckAppend(rows, log);
  CheckOrder(rows, log);
  CheckSize(rows, log);
  const auto from = Groups(rows);
  const auto to = Groups(log);
  for (size_t g = 0; g < from.size(); ++g) {
    if (from[g].events != nullptr) {
      to[g].events->insert(to[g].events->end(), from[g].events->begin(),
                           from[g].events->end());
    }
    for (size_t i = 0; i < from[g].datasets.size(); ++i) {
      Take(from[g].datasets[i], to[g].datasets[i]);
    }
  }
}

void UnifyNans(RunLog& rows) {
  for (const Group<RunLog>& group : Groups(rows)) {
    for (const Dataset<RunLog>& dataset : group.datasets) {
      auto* const* values = std::get_if<std::vector<double>*>(&dataset.values);
      if (values == nullptr) continue;
      for (double& value : **values) {
        if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

void KeepRowsUpTo(int64_t step, RunLog& log) {
  const size_t exchange_rows = log.exchange.step.size();
  for (const Group<RunLog>& group : Groups(log)) {
    if (group.steps() == nullptr) continue;
    Keep(group, 0, CountUpTo(*group.steps(), step));
  }
  if (log.exchange.step.size() < exchange_rows) {
    log.exchange.bytes_by_pair.clear();
  }
}

void DropRowsOf(const RunLog& log, RunLog& rows) {
  const bool had_exchange = !rows.exchange.step.empty();
  const auto held = Groups(log);
  const auto groups = Groups(rows);
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto* last = held[g].steps();
    if (last == nullptr || last->empty()) continue;
    for (size_t i = 0; i < groups[g].datasets.size(); ++i) {
      const Dataset<RunLog>& dataset = groups[g].datasets[i];
      if (dataset.shape != Shape::kLabels) continue;
      if (held[g].datasets[i].size() > 0) {
        std::get<std::vector<std::string>*>(dataset.values)->clear();
      }
    }
    const std::vector<int64_t>& steps = *groups[g].steps();
    Keep(groups[g], CountUpTo(steps, last->back()), steps.size());
  }
  if (had_exchange && rows.exchange.step.empty()) {
    rows.exchange.bytes_by_pair.clear();
  }
}

bool HasNoRows(const RunLog& rows) {
  const auto groups = Groups(rows);
  return std::all_of(
      groups.begin(), groups.end(), [](const Group<const RunLog>& group) {
        if (group.events != nullptr) return group.events->empty();
        return std::all_of(group.datasets.begin(), group.datasets.end(),
                           [](const Dataset<const RunLog>& dataset) {
                             return dataset.shape == Shape::kLabels ||
                                    dataset.size() == 0;
                           });
      });
}

std::string FirstDifference(const RunLog& a, const RunLog& b) {
  const SharedColumns shared(a, b);
  for (const SharedColumn& column : shared.all()) {
    const std::string difference = ColumnDifference(column);
    if (difference.empty()) continue;
    return Name(column.group->a, *column.a) + difference;
  }
  return "";
}

}  // namespace isoloss::runlog
