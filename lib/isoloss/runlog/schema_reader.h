// The visitor of a schema (schema.h) that reads what it meets from a file.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/h5_tree.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/sealed_file.h"

namespace isoloss::runlog {

/// Accepts nothing but what the schema says.
/// Errors   FormatError naming the file and the object.
class SchemaReader {
 public:
  SchemaReader(const h5::Object& file, const std::filesystem::path& path,
               const FileKind& kind = kRunLogFile)
      : file_(file), path_(path.string()), kind_(kind) {}

  /// Version of a layout that is built of parts of the run log's.
  void LayoutVersion(const Field& field, int64_t newest) {
    layout_version_ = ReadAttribute<int64_t>(file_, field.name, "attribute ");
    CheckVersion(field, newest, layout_version_);
  }
  /// Of the file; known once LayoutVersion was visited.
  int64_t layout_version() const { return layout_version_; }

  void Version(const Field& field, int64_t newest) {
    Attribute(field, version_);
    CheckVersion(field, newest, version_);
  }

  /// Of the file; known once Version was visited.
  int64_t version() const { return version_; }

  template <typename T>
  void Attribute(const Field& field, T& value) {
    if (field.since > version_) return;
    if (field.optional && file_.Attribute(field.name) == nullptr) return;
    if constexpr (std::is_same_v<T, std::string>) {
      value = ShownText(field, h5::RawText(FindAttribute<T>(file_, field.name,
                                                            "attribute ")));
    } else {
      value = ReadAttribute<T>(file_, field.name, "attribute ");
    }
    if constexpr (std::is_same_v<T, int64_t>) CheckAttribute(field, value);
  }

  void Group(const char* name, const char* /*description*/, int64_t since) {
    group_name_ = name;
    index_ = nullptr;
    group_is_newer_ = since > version_;
    if (group_is_newer_) return;
    group_ = file_.Member(name);
    if (group_ == nullptr || !group_->is_group) {
      Reject(fmt::format("group /{}", name),
             group_ == nullptr ? "missing" : "a dataset", "present");
    }
    rows_ = 0;
  }

  template <typename T>
  void Column(const Field& field, std::vector<T>& values) {
    values.clear();
    if (IsNewer(field)) return;
    if (index_ == nullptr || HasMember(field)) {
      ReadColumn(field, values);
    }
  }

  template <typename T>
  void RequiredColumn(const Field& field, std::vector<T>& values) {
    values.clear();
    if (IsNewer(field)) return;
    ReadColumn(field, values);
  }

  template <typename T>
  void Array(const Field& field, std::vector<T>& values,
             std::initializer_list<Axis<int64_t>> axes) {
    values.clear();
    if (IsNewer(field) || !HasMember(field)) return;
    const h5::Values& dataset = Open<T>(field);
    const std::vector<uint64_t>& extent = dataset.extent;
    CheckExtent(field, extent, axes);
    uint64_t count = rows_;
    size_t column = 1;
    for (const auto& axis : axes) {
      count *= extent[column];
      CheckCount(field, count);
      axis.size = static_cast<int64_t>(extent[column++]);
    }
    values = h5::Copied<T>(dataset);
  }

  void Labels(const Field& field, std::vector<std::string>& names,
              const Axis<int64_t>& axis) {
    names.clear();
    if (IsNewer(field)) return;
    if (rows_ == 0 && !HasMember(field)) return;
    const h5::Values& dataset = Open<std::string>(field);
    const std::vector<uint64_t>& extent = dataset.extent;
    if (extent.size() != 1 || extent[0] < 1) {
      RejectExtent(field, extent, "[at least 1]");
    }
    CheckCount(field, extent[0]);
    axis.size = static_cast<int64_t>(extent[0]);
    names = h5::Copied<std::string>(dataset);
  }

  void Count(const Field& field, int64_t& rows) {
    if (group_is_newer_) return;
    std::vector<int64_t> values;
    ReadColumn(field, values);
    if (rows == 0) rows = static_cast<int64_t>(values.size());
    if (rows != static_cast<int64_t>(values.size())) {
      RejectExtent(field, {values.size()}, fmt::format("[{}]", rows));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<int64_t>(i)) {
        Reject(fmt::format("{} in row {}", Name(field), i),
               fmt::to_string(values[i]), fmt::to_string(i));
      }
    }
  }

  template <typename T>
  void Member(const Field& field, std::vector<Event>& rows, T Event::*member) {
    std::vector<T> values;
    ReadColumn(field, values);
    rows.resize(values.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].*member = std::move(values[i]);
    }
  }

 private:
  void CheckVersion(const Field& field, int64_t newest, int64_t found) const {
    if (found >= 1 && found <= newest) return;
    ThrowError(ErrorKind::kFormat,
               "{}: {} is {}, but this program reads 1 to {}. Read it with "
               "the version named in its attribute tool_version.",
               path_, field.name, found, newest);
  }

  [[noreturn]] void Reject(std::string_view object, std::string_view found,
                           std::string_view expected) const {
    ThrowError(ErrorKind::kFormat,
               "{}: {} is {}, but must be {} (docs/run-log.md). The file is "
               "damaged or no {}; make it again.",
               path_, object, found, expected, kind_.name);
  }

  [[noreturn]] void RejectExtent(const Field& field,
                                 const std::vector<uint64_t>& found,
                                 std::string_view expected) const {
    Reject(fmt::format("the extent of {}", Name(field)),
           fmt::format("[{}]", fmt::join(found, ", ")), expected);
  }

  /// That an array is [rows_, axes...]; an axis of 0 may have any length.
  void CheckExtent(const Field& field, const std::vector<uint64_t>& extent,
                   std::initializer_list<Axis<int64_t>> axes) const {
    bool fits = extent.size() == axes.size() + 1 && extent[0] == rows_;
    std::string expected = fmt::format("[{}", rows_);
    size_t column = 1;
    for (const auto& [name, size] : axes) {
      expected += size > 0 ? fmt::format(", {}", size) : ", at least 1";
      const uint64_t found = fits ? extent[column++] : 0;
      fits = fits && (size > 0 ? found == static_cast<uint64_t>(size)
                               : found > 0 && found <= uint64_t{kMaxValues});
    }
    if (!fits) RejectExtent(field, extent, expected + "]");
  }

  /// That no reader can overflow when it counts with it.
  void CheckCountable(std::string_view object, int64_t value) const {
    if (value >= 0 && value <= kMaxCounted) return;
    Reject(object, fmt::to_string(value),
           fmt::format("from 0 to {}", kMaxCounted));
  }

  void CheckAttribute(const Field& field, int64_t value) const {
    if (std::string_view(field.name).ends_with("seed")) return;
    CheckCountable(fmt::format("attribute {}", field.name), value);
  }

  void CheckSteps(const Field& field,
                  const std::vector<int64_t>& values) const {
    if (std::string_view(field.unit) != "step") return;
    for (size_t i = 0; i < values.size(); ++i) {
      CheckCountable(fmt::format("{} in row {}", Name(field), i), values[i]);
    }
  }

  /// Whether the file's version does not know it yet.
  bool IsNewer(const Field& field) const {
    return group_is_newer_ || field.since > version_;
  }

  std::string Name(const Field& field) const {
    return fmt::format("/{}/{}", group_name_, field.name);
  }

  void CheckType(std::string_view object, const h5::Values& found,
                 h5::ValueType expected) const {
    if (found.type != expected) {
      Reject(fmt::format("the type of {}", object), found.type_name,
             h5::Describe(expected));
    }
  }

  void CheckCount(const Field& field, uint64_t count) const {
    if (count > uint64_t{kMaxValues}) {
      Reject(fmt::format("the number of values of {}", Name(field)),
             fmt::to_string(count), fmt::format("at most {}", kMaxValues));
    }
  }

  template <typename T>
  const h5::Values& FindAttribute(const h5::Object& object, const char* name,
                                  std::string_view owner) const {
    const std::string full_name = fmt::format("{}{}", owner, name);
    const h5::Values* attribute = object.Attribute(name);
    if (attribute == nullptr) Reject(full_name, "missing", "present");
    CheckType(full_name, *attribute, h5::ValueTypeOf<T>());
    if (!attribute->IsScalar()) Reject(full_name, "an array", "one value");
    return *attribute;
  }

  template <typename T>
  T ReadAttribute(const h5::Object& object, const char* name,
                  std::string_view owner) const {
    return h5::One<T>(FindAttribute<T>(object, name, owner));
  }

  bool HasMember(const Field& field) const {
    return group_->Member(field.name) != nullptr;
  }

  template <typename T>
  const h5::Values& Open(const Field& field) const {
    const h5::Object* dataset = group_->Member(field.name);
    if (dataset == nullptr) Reject(Name(field), "missing", "present");
    if (dataset->is_group) Reject(Name(field), "a group", "a dataset");
    CheckType(Name(field), dataset->values, h5::ValueTypeOf<T>());
    const std::string unit_name = fmt::format("attribute {}:", Name(field));
    const std::string unit =
        ReadAttribute<std::string>(*dataset, "unit", unit_name);
    if (unit != field.unit) {
      Reject(unit_name + "unit", fmt::format("`{}`", unit),
             fmt::format("`{}`", field.unit));
    }
    return dataset->values;
  }

  template <typename T>
  void ReadColumn(const Field& field, std::vector<T>& values) {
    const h5::Values& dataset = Open<T>(field);
    const std::vector<uint64_t>& extent = dataset.extent;
    if (extent.size() != 1) RejectExtent(field, extent, "[rows]");
    if (index_ == nullptr) {
      CheckCount(field, extent[0]);
      index_ = field.name;
      rows_ = extent[0];
    }
    if (extent[0] != rows_) {
      RejectExtent(
          field, extent,
          fmt::format("[{}] as that of /{}/{}", rows_, group_name_, index_));
    }
    values = h5::Copied<T>(dataset);
    if constexpr (std::is_same_v<T, int64_t>) CheckSteps(field, values);
  }

  const h5::Object& file_;
  std::string path_;
  FileKind kind_;
  int64_t version_ = 1;
  int64_t layout_version_ = 1;
  const h5::Object* group_ = nullptr;
  bool group_is_newer_ = false;  // than the file: nothing of it is there
  const char* group_name_ = nullptr;
  const char* index_ = nullptr;  // the group's first column, once read
  uint64_t rows_ = 0;
};

}  // namespace isoloss::runlog
