#include "isoloss/runlog/schema_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/sealed_file.h"

namespace isoloss::runlog {
namespace {

class Reader {
 public:
  Reader(const hdf5::Object& file, const std::string& path,
         const hdf5::FileKind& kind, MutableView log)
      : file_(file), path_(path), kind_(kind), log_(log) {}

  void Read(const Group& group) {
    group_ = &group;
    if (group.IsFile()) {
      for (const Column& column : group.columns) ReadAttribute(column);
      return;
    }
    if (group.since > version_) return;
    members_ = file_.Member(group.name);
    if (members_ == nullptr && group.optional) return;
    if (members_ == nullptr || !members_->is_group) {
      Reject(fmt::format("group /{}", group.name),
             members_ == nullptr ? "missing" : "a dataset", "present");
    }
    rows_ = 0;
    for (const Column& column : group.ColumnsIn(log_)) {
      if (column.field.since <= version_) ReadDataset(column);
    }
  }

 private:
  // ---- attributes ----------------------------------------------------------

  void ReadAttribute(const Column& column) {
    const Field& field = column.field;
    if (column.role != Role::kAttribute) return ReadVersion(column);
    const bool is_absent =
        field.optional && file_.Attribute(field.name) == nullptr;
    if (field.since > version_ || is_absent) return;
    const hdf5::Values& found =
        FindAttribute(file_, field.name, "attribute ", column.type);
    log_.WithValue(column, [&]<typename T>(T& value) {
      if constexpr (std::is_same_v<T, std::string>) {
        value = ShownText(field, hdf5::RawText(found));
      } else {
        value = hdf5::One<T>(found);
      }
      if constexpr (std::is_same_v<T, int64_t>) {
        if (!field.name.ends_with("seed")) {
          CheckCountable("attribute " + field.name, value);
        }
      }
    });
  }

  void ReadVersion(const Column& column) {
    const Field& field = column.field;
    const auto found = hdf5::One<int64_t>(
        FindAttribute(file_, field.name, "attribute ", ValueType::kInt64));
    if (column.role == Role::kRunVersion) {
      CheckCountable("attribute " + field.name, found);
      version_ = found;
    }
    if (found < 1 || found > column.newest) {
      ThrowError(ErrorKind::kFormat,
                 "{}: {} is {}, but this program reads 1 to {}. Read it with "
                 "the version named in its attribute tool_version.",
                 path_, field.name, found, column.newest);
    }
    if (column.offset != kNowhere) log_.At<int64_t>(column.offset) = found;
  }

  const hdf5::Values& FindAttribute(const hdf5::Object& object,
                                    std::string_view name,
                                    std::string_view owner,
                                    ValueType type) const {
    const std::string full_name = fmt::format("{}{}", owner, name);
    const hdf5::Values* attribute = object.Attribute(name);
    if (attribute == nullptr) Reject(full_name, "missing", "present");
    CheckType(full_name, *attribute, type);
    if (!attribute->IsScalar()) Reject(full_name, "an array", "one value");
    return *attribute;
  }

  // ---- datasets ------------------------------------------------------------

  void ReadDataset(const Column& column) {
    const bool is_index = &column == &group_->columns.front();
    const bool is_due = is_index || column.required ||
                        (column.role == Role::kLabels && rows_ > 0);
    const hdf5::Object* found = members_->Member(column.field.name);
    if (found == nullptr && !is_due) return;
    const hdf5::Values& values = Open(column, found);
    if (column.role == Role::kLabels) {
      TakeLabelExtent(column, values.extent);
    } else if (column.axes.empty()) {
      CheckRows(column, values.extent, is_index);
    } else {
      TakeExtent(column, values.extent);
    }
    if (column.role == Role::kPlaces) return TakePlaces(column, values);
    if (column.role == Role::kMember) return TakeMembers(column, values);
    log_.WithValues(column, [&]<typename T>(std::vector<T>& target) {
      target = hdf5::Copied<T>(values);
    });
    if (column.type == ValueType::kInt64 && column.axes.empty()) {
      CheckSteps(column, log_.Values<int64_t>(column));
    }
  }

  const hdf5::Values& Open(const Column& column, const hdf5::Object* dataset) {
    const std::string name = group_->PathOf(column);
    if (dataset == nullptr) Reject(name, "missing", "present");
    if (dataset->is_group) Reject(name, "a group", "a dataset");
    CheckType(name, dataset->values, column.type);
    const std::string owner = fmt::format("attribute {}:", name);
    const std::string unit = hdf5::One<std::string>(
        FindAttribute(*dataset, "unit", owner, ValueType::kString));
    if (unit != column.field.unit) {
      Reject(owner + "unit", fmt::format("`{}`", unit),
             fmt::format("`{}`", column.field.unit));
    }
    return dataset->values;
  }

  void CheckRows(const Column& column, const std::vector<uint64_t>& extent,
                 bool is_index) {
    if (extent.size() != 1) RejectExtent(column, extent, "[rows]");
    if (is_index) {
      CheckCount(column, extent[0]);
      rows_ = extent[0];
    }
    if (extent[0] == rows_) return;
    RejectExtent(column, extent,
                 fmt::format("[{}] as that of {}", rows_,
                             group_->PathOf(group_->columns.front())));
  }

  /// Requires that an array is [rows_, axes...]. An axis of 0 may have any
  /// length, and keeps the file's length from then on.
  void TakeExtent(const Column& column, const std::vector<uint64_t>& extent) {
    bool fits = extent.size() == column.axes.size() + 1 && extent[0] == rows_;
    std::string expected = fmt::format("[{}", rows_);
    for (size_t i = 0; i < column.axes.size(); ++i) {
      const int64_t size = log_.Size(column.axes[i]);
      expected += size > 0 ? fmt::format(", {}", size) : ", at least 1";
      const uint64_t found = fits ? extent[i + 1] : 0;
      fits = fits && (size > 0 ? found == static_cast<uint64_t>(size)
                               : found > 0 && found <= uint64_t{kMaxValues});
    }
    if (!fits) RejectExtent(column, extent, expected + "]");
    uint64_t count = rows_;
    for (size_t i = 0; i < column.axes.size(); ++i) {
      count *= extent[i + 1];
      CheckCount(column, count);
      log_.Size(column.axes[i]) = static_cast<int64_t>(extent[i + 1]);
    }
  }

  void TakeLabelExtent(const Column& column,
                       const std::vector<uint64_t>& extent) {
    if (extent.size() != 1 || extent[0] < 1) {
      RejectExtent(column, extent, "[at least 1]");
    }
    CheckCount(column, extent[0]);
    log_.Size(column.axes.front()) = static_cast<int64_t>(extent[0]);
  }

  void TakePlaces(const Column& column, const hdf5::Values& found) {
    const std::vector<int64_t> values = hdf5::Copied<int64_t>(found);
    const auto count = static_cast<int64_t>(values.size());
    auto& rows = log_.At<int64_t>(column.offset);
    if (rows == 0) rows = count;
    if (rows != count) {
      RejectExtent(column, {values.size()}, fmt::format("[{}]", rows));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == static_cast<int64_t>(i)) continue;
      Reject(fmt::format("{} in row {}", group_->PathOf(column), i),
             fmt::to_string(values[i]), fmt::to_string(i));
    }
  }

  void TakeMembers(const Column& column, const hdf5::Values& found) {
    auto& events = log_.Values<Event>(column);
    events.resize(rows_);
    const auto take = [&]<typename T>(std::vector<T> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        MutableView(events[i]).At<T>(column.in_row) = std::move(values[i]);
      }
    };
    if (column.type == ValueType::kDouble) {
      take(hdf5::Copied<double>(found));
    } else {
      take(hdf5::Copied<std::string>(found));
    }
  }

  // ---- rules ---------------------------------------------------------------

  /// Requires that no reader can overflow when it counts with `value`.
  void CheckCountable(std::string_view object, int64_t value) const {
    if (value >= 0 && value <= hdf5::kMaxCounted) return;
    Reject(object, fmt::to_string(value),
           fmt::format("from 0 to {}", hdf5::kMaxCounted));
  }

  void CheckSteps(const Column& column,
                  const std::vector<int64_t>& values) const {
    if (std::string_view(column.field.unit) != "step") return;
    for (size_t i = 0; i < values.size(); ++i) {
      CheckCountable(fmt::format("{} in row {}", group_->PathOf(column), i),
                     values[i]);
    }
  }

  void CheckType(std::string_view object, const hdf5::Values& found,
                 ValueType expected) const {
    if (found.type == expected) return;
    Reject(fmt::format("the type of {}", object), found.type_name,
           hdf5::Describe(expected));
  }

  void CheckCount(const Column& column, uint64_t count) const {
    if (count <= uint64_t{kMaxValues}) return;
    Reject(fmt::format("the number of values of {}", group_->PathOf(column)),
           fmt::to_string(count), fmt::format("at most {}", kMaxValues));
  }

  [[noreturn]] void RejectExtent(const Column& column,
                                 const std::vector<uint64_t>& found,
                                 std::string_view expected) const {
    Reject(fmt::format("the extent of {}", group_->PathOf(column)),
           fmt::format("[{}]", fmt::join(found, ", ")), expected);
  }

  [[noreturn]] void Reject(std::string_view object, std::string_view found,
                           std::string_view expected) const {
    ThrowError(ErrorKind::kFormat,
               "{}: {} is {}, but must be {} (docs/run-log.md). The file is "
               "damaged or no {}; make it again.",
               path_, object, found, expected, kind_.name);
  }

  const hdf5::Object& file_;
  const std::string& path_;
  const hdf5::FileKind& kind_;
  MutableView log_;
  int64_t version_ = 1;
  const Group* group_ = nullptr;
  const hdf5::Object* members_ = nullptr;  // of the group
  uint64_t rows_ = 0;                      // likewise
};

}  // namespace

void ReadColumns(const hdf5::Object& file, const std::string& path,
                 const hdf5::FileKind& kind, const Schema& schema,
                 MutableView log) {
  Reader reader(file, path, kind, log);
  for (const Group& group : schema) reader.Read(group);
}

}  // namespace isoloss::runlog
