// Describes a log as data: every group, dataset and attribute with its name,
// unit, meaning, domain and place in memory, listed once. Reader, writer,
// journal, digests, checks, comparison, export and `isoloss show --schema` are
// loops over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "isoloss/hdf5/tree.h"
#include "isoloss/runlog/field.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

using hdf5::ValueType;

/// Columns that have no place in memory have this offset.
inline constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

/// Returns the bytes between the beginning of an object and one of its members.
template <typename Owner, typename Member>
size_t OffsetOf(Member Owner::*member) {
  static const Owner owner{};
  return static_cast<size_t>(
      reinterpret_cast<const std::byte*>(&(owner.*member)) -
      reinterpret_cast<const std::byte*>(&owner));
}

/// Says what a column means in its group.
enum class Role : uint8_t {
  // The following are attributes of the file.
  kOwnVersion,  ///< of a layout that is built of parts of the run log's
  kRunVersion,  ///< of the run log's layout
  kAttribute,
  // The following are datasets of a group.
  kIndex,   ///< [rows]: the first column, which all others are as long as
  kRows,    ///< [rows, axes...], row-major, or absent
  kPlaces,  ///< 0, 1, ...: the index of a group whose rows are an axis' places
  kSquare,  ///< [places, axes...], or absent
  kLabels,  ///< [axis]: names of its places; required if the group has rows
  kMember,  ///< [rows]: one member of each event
};

/// Describes an extent of an array besides its rows.
struct Axis {
  template <typename Owner>
  Axis(const char* axis_name, int64_t Owner::*size)
      : name(axis_name), offset(OffsetOf(size)) {}

  const char* name;
  size_t offset;  ///< of its size, an int64_t
};

/// Describes a dataset or an attribute.
struct Column {
  /// Makes a version that the log does not keep.
  Column(Role version, Field what, int64_t newest_version)
      : field(std::move(what)), role(version), newest(newest_version) {}
  template <typename Owner>
  Column(Role version, Field what, int64_t newest_version,
         int64_t Owner::*value)
      : Column(version, std::move(what), newest_version) {
    offset = OffsetOf(value);
  }
  template <typename Owner, typename T>
  Column(Field what, T Owner::*value)
      : field(std::move(what)),
        role(Role::kAttribute),
        type(hdf5::ValueTypeOf<T>()),
        offset(OffsetOf(value)) {}
  template <typename Owner, typename T>
  Column(Field what, std::vector<T> Owner::*values, std::vector<Axis> of = {})
      : field(std::move(what)),
        type(hdf5::ValueTypeOf<T>()),
        offset(OffsetOf(values)),
        axes(std::move(of)) {}
  /// Makes a column whose group has a struct for a single row.
  template <typename Owner, typename Row, typename T>
  Column(Field what, std::vector<T> Owner::*values, T Row::*value)
      : Column(std::move(what), values) {
    in_row = OffsetOf(value);
  }
  template <typename Owner, typename T>
  Column(Field what, std::vector<Event> Owner::*events, T Event::*value)
      : field(std::move(what)),
        role(Role::kMember),
        type(hdf5::ValueTypeOf<T>()),
        offset(OffsetOf(events)),
        in_row(OffsetOf(value)),
        required(true) {}

  static Column Labels(Field what, auto values, Axis axis) {
    Column column(std::move(what), values, std::vector{axis});
    column.role = Role::kLabels;
    return column;
  }
  template <typename Owner>
  static Column Places(Field what, int64_t Owner::*count) {
    Column column(std::move(what), count);
    column.role = Role::kPlaces;
    column.required = true;
    return column;
  }
  /// The column is there even if it is empty.
  Column Required() const {
    Column column = *this;
    column.required = true;
    return column;
  }
  /// The column exists from version `version` of the log's own layout on.
  Column Since(int64_t version) const {
    Column column = *this;
    column.own_since = version;
    return column;
  }
  /// True if a std::vector of the log holds its values.
  bool IsRecorded() const {
    return role != Role::kPlaces && role != Role::kMember;
  }
  /// True if its values replace those of the log, instead of following them.
  bool IsWhole() const {
    return role == Role::kSquare || role == Role::kLabels;
  }

  Field field;
  Role role = Role::kRows;
  ValueType type = ValueType::kInt64;
  /// The column's vector or value lies at this offset. For kPlaces their number
  /// lies there; for kMember, the events.
  size_t offset = kNowhere;
  size_t in_row = kNowhere;  ///< of its value in one row or event
  std::vector<Axis> axes = {};
  bool required = false;
  int64_t own_since = 1;
  int64_t newest = 0;  ///< of a version: the highest that is read
};
using Columns = std::vector<Column>;

template <typename Byte>
class BasicView;
using View = BasicView<const std::byte>;
using MutableView = BasicView<std::byte>;
struct AnyView {};

/// The datasets of a group have the same rows; a group without a name holds
/// attributes of the file.
struct Group {
  Group(const char* group_name, const char* meaning, int64_t since_version,
        Columns of);

  bool IsFile() const { return name.empty(); }
  /// True if its rows belong to steps, which its index tells.
  bool HasSteps() const {
    return columns.front().role == Role::kIndex &&
           columns.front().type == ValueType::kInt64;
  }
  bool HasEvents() const { return columns.front().role == Role::kMember; }
  /// Returns the columns that the version of the log's own layout has.
  std::span<const Column> ColumnsIn(const View& log) const;
  std::string PathOf(const Column& column) const;  ///< "/steps/lr"

  std::string name;
  const char* description;
  int64_t since;  ///< version of the run log's layout that brought it
  Columns columns;
  size_t own_version = kNowhere;  ///< of the version of the log's own layout
  bool optional = false;          ///< a file without rows lacks the group
};

/// Describes a log, in its order on disk.
using Schema = std::vector<Group>;

/// Returns the schema of a log or of a part of it: of a RunLog, a Provenance, a
/// ModelGraph, a ProbeLog or an Ensemble on disk.
template <typename Log>
const Schema& SchemaOf();
template <>
const Schema& SchemaOf<RunLog>();
template <>
const Schema& SchemaOf<Provenance>();
template <>
const Schema& SchemaOf<ModelGraph>();

/// The graph came with this version of the run log's layout.
inline constexpr int64_t kGraphVersion = 5;
/// Recipes may change in mid-run from this version on.
inline constexpr int64_t kPhasesVersion = 7;

/// Returns the groups of a RunLog that are no part of its provenance: those of
/// steps and of events.
std::span<const Group> RowGroups();
/// Return the attributes of a Provenance: those of every file, and those of
/// files of another program's run.
const Group& AttributeGroup();
const Group& OriginGroup();
/// Returns all parts of a Provenance, as files have them.
Schema FileSchema();

/// Returns the columns of a part of a log whose rows are appended or stacked.
Columns ListOf(const StepColumns& part);
Columns ListOf(const ParameterColumns& part);
template <typename Part>
const Columns& ColumnsOf() {
  static const Columns columns = ListOf(Part());
  return columns;
}

/// Moves columns of a part to the log whose member the part is.
template <typename Log, typename Part>
Columns PartOf(Part Log::*part, Columns columns) {
  const size_t offset = OffsetOf(part);
  for (Column& column : columns) {
    column.offset += offset;
    for (Axis& axis : column.axes) axis.offset += offset;
  }
  return columns;
}
template <typename Log, typename Part>
Group PartOf(Part Log::*part, Group group) {
  group.columns = PartOf(part, std::move(group.columns));
  return group;
}
template <typename Log, typename Part>
Schema PartOf(Part Log::*part, Schema schema) {
  for (Group& group : schema) group = PartOf(part, std::move(group));
  return schema;
}
/// Returns all schemas, one after the other.
Schema Joined(const std::vector<Schema>& parts);

/// Gives access to the memory in which the columns of a schema lie: an object
/// of the type for which they were listed, or a part of it.
template <typename Byte>
class BasicView : AnyView {
 public:
  template <typename T>
  using Like = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  template <typename Log>
  requires(!std::is_base_of_v<AnyView, Log>) explicit BasicView(Log& log)
      : base_(reinterpret_cast<Byte*>(&log)) {}
  /// A mutable view can be read, too.
  operator View() const requires(!std::is_const_v<Byte>) {
    return View(*base_);
  }

  template <typename T>
  Like<T>& At(size_t offset) const {
    return *reinterpret_cast<Like<T>*>(base_ + offset);
  }
  template <typename T>
  Like<std::vector<T>>& Values(const Column& column) const {
    return At<std::vector<T>>(column.offset);
  }
  Like<int64_t>& Size(const Axis& axis) const {
    return At<int64_t>(axis.offset);
  }
  /// Returns the steps to which the rows of a group belong; null if it has
  /// none.
  Like<std::vector<int64_t>>* Steps(const Group& group) const {
    return group.HasSteps() ? &Values<int64_t>(group.columns.front()) : nullptr;
  }

  /// Calls visit(value) with an attribute, which is an int64_t, double, bool or
  /// std::string.
  template <typename Visit>
  decltype(auto) WithValue(const Column& column, Visit&& visit) const {
    switch (column.type) {
      case ValueType::kInt64:
        return visit(At<int64_t>(column.offset));
      case ValueType::kDouble:
        return visit(At<double>(column.offset));
      case ValueType::kBool:
        return visit(At<bool>(column.offset));
      default:
        return visit(At<std::string>(column.offset));
    }
  }
  /// Calls visit(values) with a dataset's std::vector of int32_t, int64_t,
  /// double or std::string. The values of kPlaces and kMember are copies, for
  /// which a mutable view has no use.
  template <typename Visit>
  decltype(auto) WithValues(const Column& column, Visit&& visit) const {
    switch (column.type) {
      case ValueType::kInt32:
        return visit(Values<int32_t>(column));
      case ValueType::kInt64:
        return With<int64_t>(column, visit);
      case ValueType::kDouble:
        return With<double>(column, visit);
      default:
        return With<std::string>(column, visit);
    }
  }

  size_t Count(const Column& column) const {
    if (column.role == Role::kPlaces) {
      return static_cast<size_t>(At<int64_t>(column.offset));
    }
    if (column.role == Role::kMember) return Values<Event>(column).size();
    return WithValues(column, [](const auto& values) { return values.size(); });
  }
  /// Returns the number of values in one row. An axis that was not recorded has
  /// none.
  size_t Width(const Column& column) const {
    size_t width = 1;
    for (const Axis& axis : column.axes) {
      width *= static_cast<size_t>(Size(axis));
    }
    return width;
  }
  /// Returns the number of rows that a column of the group must have; labels
  /// have one.
  size_t Rows(const Group& group, const Column& column) const {
    return column.role == Role::kLabels ? 1 : Count(group.columns.front());
  }

 private:
  template <typename T, typename Visit>
  decltype(auto) With(const Column& column, Visit& visit) const {
    if constexpr (std::is_const_v<Byte>) {
      if (column.role == Role::kPlaces || column.role == Role::kMember) {
        const std::vector<T> copies = Copies<T>(column);
        return visit(copies);
      }
    }
    return visit(Values<T>(column));
  }
  template <typename T>
  std::vector<T> Copies(const Column& column) const {
    std::vector<T> values(Count(column));
    if (column.role == Role::kMember) {
      const std::vector<Event>& events = Values<Event>(column);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = View(events[i]).template At<T>(column.in_row);
      }
    } else if constexpr (std::is_arithmetic_v<T>) {
      std::iota(values.begin(), values.end(), T{0});
    }
    return values;
  }

  Byte* base_;
};

/// Adds one value to every column.
void AppendRow(const Columns& columns, const View& row, MutableView to);

}  // namespace isoloss::runlog
