#include "isoloss/runlog/schema_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::runlog {
namespace {

void WriteAttribute(const hdf5::Handle& file, const Column& column,
                    const View& log) {
  const char* name = column.field.name.c_str();
  if (column.role != Role::kAttribute) {
    const bool is_kept =
        column.role == Role::kOwnVersion && column.offset != kNowhere;
    hdf5::WriteAttribute(
        file, name, is_kept ? log.At<int64_t>(column.offset) : column.newest);
    return;
  }
  log.WithValue(column, [&]<typename T>(const T& value) {
    if (column.field.optional && value == T{}) return;
    hdf5::WriteAttribute(file, name, value);
  });
}

class GroupWriter {
 public:
  GroupWriter(const hdf5::Handle& file, const std::string& document,
              const Group& group, const View& log)
      : document_(document),
        group_(group),
        log_(log),
        rows_(log.Count(group.columns.front())),
        handle_(hdf5::CreateGroup(file, group.name.c_str())) {
    hdf5::WriteAttribute(handle_, "description",
                         std::string(group.description));
  }

  void Write(const Column& column) const {
    std::vector<uint64_t> extent = {rows_};
    for (const Axis& axis : column.axes) {
      extent.push_back(static_cast<uint64_t>(log_.Size(axis)));
    }
    const size_t count = log_.Count(column);
    if (column.role == Role::kLabels) {
      if (count == 0 && rows_ == 0) return;
      CheckLabels(column, count);
      extent = {count};
    } else {
      const bool flat = std::any_of(
          extent.begin() + 1, extent.end(),
          [](uint64_t size) { return static_cast<int64_t>(size) < 1; });
      const bool is_absent = count == 0 && (rows_ > 0 || flat);
      if (is_absent && !column.required) return;
      if (flat) RejectFlat(column, count, extent);
      CheckCount(column, count, extent);
    }
    log_.WithValues(column, [&]<typename T>(const std::vector<T>& values) {
      WriteDataset<T>(column.field, values, extent);
    });
  }

 private:
  void CheckLabels(const Column& column, size_t count) const {
    const Axis& axis = column.axes.front();
    const int64_t size = log_.Size(axis);
    if (count > 0 && static_cast<int64_t>(count) == size) return;
    ThrowError(ErrorKind::kShape,
               "{}: {} has {} values for {} {}. Pass as many names "
               "as columns.",
               document_, group_.PathOf(column), count, size, axis.name);
  }

  [[noreturn]] void RejectFlat(const Column& column, size_t count,
                               const std::vector<uint64_t>& extent) const {
    const std::vector<int64_t> sizes(extent.begin() + 1, extent.end());
    ThrowError(ErrorKind::kShape,
               "{}: {} has {} values in [{}] columns, but needs at "
               "least one column. Pass the number of columns.",
               document_, group_.PathOf(column), count, fmt::join(sizes, ", "));
  }

  void CheckCount(const Column& column, size_t count,
                  const std::vector<uint64_t>& extent) const {
    uint64_t needed = 1;
    for (const uint64_t size : extent) needed *= size;
    if (count == needed) return;
    ThrowError(ErrorKind::kShape,
               "{}: {} has {} values, but {} has {} rows, which "
               "need {}. Append to all columns at each step.",
               document_, group_.PathOf(column), count,
               group_.PathOf(group_.columns.front()), rows_, needed);
  }

  template <typename T>
  void WriteDataset(const Field& field, std::span<const T> values,
                    const std::vector<uint64_t>& extent) const {
    const hdf5::Handle dataset = hdf5::CreateDataset(
        handle_, field.name.c_str(), hdf5::TypeOf<T>(), extent);
    hdf5::WriteDataset(dataset, values);
    hdf5::WriteAttribute(dataset, "unit", std::string(field.unit));
    hdf5::WriteAttribute(dataset, "description",
                         std::string(field.description));
  }

  const std::string& document_;
  const Group& group_;
  View log_;
  size_t rows_;
  hdf5::Handle handle_;
};

}  // namespace

void WriteColumns(const hdf5::Handle& file, const std::string& document,
                  const Schema& schema, const View& log) {
  for (const Group& group : schema) {
    if (group.IsFile()) {
      for (const Column& column : group.columns) {
        WriteAttribute(file, column, log);
      }
      continue;
    }
    if (group.optional && log.Count(group.columns.front()) == 0) continue;
    const GroupWriter writer(file, document, group, log);
    for (const Column& column : group.ColumnsIn(log)) writer.Write(column);
  }
}

}  // namespace isoloss::runlog
