// The visitor of a schema (schema.h) that writes what it meets into HDF5.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Errors   ShapeError if columns that belong together disagree in length.
class SchemaWriter {
 public:
  /// `document` is for messages: "run log".
  explicit SchemaWriter(const h5::Handle& file,
                        std::string document = "run log")
      : file_(file), document_(std::move(document)) {}

  /// Version of a layout that is built of parts of the run log's.
  void LayoutVersion(const Field& field, int64_t version) {
    Version(field, version);
  }

  void Version(const Field& field, int64_t version) {
    h5::WriteAttribute(file_, field.name, version);
  }

  template <typename T>
  void Attribute(const Field& field, const T& value) {
    if (field.optional && value == T{}) return;
    h5::WriteAttribute(file_, field.name, value);
  }

  void Group(const char* name, const char* description, int64_t /*since*/) {
    group_name_ = name;
    group_ = h5::CreateGroup(file_, name);
    h5::WriteAttribute(group_, "description", std::string(description));
    index_ = nullptr;
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    const bool is_index = index_ == nullptr;
    if (is_index) {
      index_ = field.name;
      rows_ = values.size();
    }
    if (values.empty() && rows_ > 0) return;
    Write<T>(field, values, {});
  }

  template <typename T>
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    if (index_ == nullptr) return Column(field, values);
    Write<T>(field, values, {});
  }

  template <typename T>
  void Array(const Field& field, const std::vector<T>& values,
             std::initializer_list<Axis<const int64_t>> axes) {
    std::vector<int64_t> sizes;
    for (const auto& axis : axes) sizes.push_back(axis.size);
    const bool flat = *std::min_element(sizes.begin(), sizes.end()) < 1;
    if (values.empty() && (rows_ > 0 || flat)) return;
    if (flat) {
      ThrowError(ErrorKind::kShape,
                 "{}: /{}/{} has {} values in [{}] columns, but needs at "
                 "least one column. Pass the number of columns.",
                 document_, group_name_, field.name, values.size(),
                 fmt::join(sizes, ", "));
    }
    Write<T>(field, values, sizes);
  }

  void Labels(const Field& field, const std::vector<std::string>& names,
              const Axis<const int64_t>& axis) {
    if (names.empty() && rows_ == 0) return;
    if (names.empty() || static_cast<int64_t>(names.size()) != axis.size) {
      ThrowError(ErrorKind::kShape,
                 "{}: /{}/{} has {} values for {} {}. Pass as many names "
                 "as columns.",
                 document_, group_name_, field.name, names.size(), axis.size,
                 axis.name);
    }
    WriteDataset<std::string>(field, names, {names.size()});
  }

  void Count(const Field& field, int64_t rows) {
    std::vector<int64_t> values(static_cast<size_t>(rows));
    std::iota(values.begin(), values.end(), 0);
    Column(field, values);
  }

  template <typename T>
  void Member(const Field& field, const std::vector<Event>& rows,
              T Event::*member) {
    std::vector<T> values;
    std::transform(rows.begin(), rows.end(), std::back_inserter(values),
                   [member](const Event& row) { return row.*member; });
    Column(field, values);
  }

 private:
  /// A dataset [rows_, columns...].
  template <typename T>
  void Write(const Field& field, std::span<const T> values,
             const std::vector<int64_t>& columns) {
    std::vector<uint64_t> extent = {rows_};
    extent.insert(extent.end(), columns.begin(), columns.end());
    uint64_t needed = 1;
    for (const uint64_t size : extent) needed *= size;
    if (values.size() != needed) {
      ThrowError(ErrorKind::kShape,
                 "{}: /{}/{} has {} values, but /{}/{} has {} rows, which "
                 "need {}. Append to all columns at each step.",
                 document_, group_name_, field.name, values.size(), group_name_,
                 index_, rows_, needed);
    }
    WriteDataset(field, values, extent);
  }

  template <typename T>
  void WriteDataset(const Field& field, std::span<const T> values,
                    const std::vector<uint64_t>& extent) {
    const h5::Handle dataset =
        h5::CreateDataset(group_, field.name, h5::TypeOf<T>(), extent);
    h5::WriteDataset(dataset, values);
    h5::WriteAttribute(dataset, "unit", std::string(field.unit));
    h5::WriteAttribute(dataset, "description", std::string(field.description));
  }

  const h5::Handle& file_;
  std::string document_;
  h5::Handle group_;
  const char* group_name_ = nullptr;
  const char* index_ = nullptr;  // the group's first column, once written
  size_t rows_ = 0;
};

}  // namespace isoloss::runlog
