// All datasets of a run log as lists that can be walked in step with those of
// another log: a visitor sees one log only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// What a dataset's first axis is.
enum class Shape {
  kIndex,   ///< rows; the column that says which
  kRows,    ///< rows
  kSquare,  ///< the group's count: no steps
  kLabels,  ///< the axis itself: no steps
};

/// A place in memory; constant if Log is.
template <typename Log, typename T>
using Like = std::conditional_t<std::is_const_v<Log>, const T, T>;

template <typename Log>
struct Dataset {
  template <typename T>
  using Values = Like<Log, std::vector<T>>*;

  Field field;
  Shape shape;
  std::variant<Values<int32_t>, Values<int64_t>, Values<double>,
               Values<std::string>>
      values;
  std::vector<Axis<Like<Log, int64_t>>> axes;

  size_t size() const {
    return std::visit([](const auto* of) { return of->size(); }, values);
  }
  /// Values in one row. An axis that nothing is known of has none.
  size_t Width() const {
    size_t width = 1;
    for (const auto& axis : axes) width *= static_cast<size_t>(axis.size);
    return width;
  }
};

template <typename Log>
struct Group {
  const char* name;
  std::vector<Dataset<Log>> datasets;
  /// Rows of a group without steps; null in others.
  Like<Log, int64_t>* count = nullptr;
  /// Rows of /events; null in others.
  Like<Log, std::vector<Event>>* events = nullptr;

  /// The steps that its rows belong to; null in a group without.
  Like<Log, std::vector<int64_t>>* steps() const {
    using Steps = typename Dataset<Log>::template Values<int64_t>;
    if (count != nullptr || events != nullptr) return nullptr;
    return std::get<Steps>(datasets.front().values);
  }
  /// Rows that the dataset must have, labels one.
  size_t RowsOf(const Dataset<Log>& dataset) const {
    if (count != nullptr) return static_cast<size_t>(*count);
    return dataset.shape == Shape::kLabels ? 1 : steps()->size();
  }
};

/// Visitor of the schema behind Groups.
template <typename Log>
class GroupCollector {
 public:
  using Size = Like<Log, int64_t>;

  void Version(const Field&, int64_t) {}
  template <typename T>
  void Attribute(const Field&, T&) {}
  void Group(const char* name, const char* /*description*/, int64_t /*since*/) {
    groups.push_back({name, {}, nullptr, nullptr});
  }
  template <typename Vector>
  void Column(const Field& field, Vector& values) {
    Add(field, groups.back().datasets.empty() ? Shape::kIndex : Shape::kRows,
        values, {});
  }
  /// A part of the provenance.
  template <typename Vector>
  void RequiredColumn(const Field&, Vector&) {}
  template <typename Vector>
  void Array(const Field& field, Vector& values,
             std::initializer_list<Axis<Size>> axes) {
    const bool square = groups.back().count != nullptr;
    Add(field, square ? Shape::kSquare : Shape::kRows, values, axes);
  }
  template <typename Vector>
  void Labels(const Field& field, Vector& names, const Axis<Size>& axis) {
    Add(field, Shape::kLabels, names, {axis});
  }
  void Count(const Field&, Size& rows) { groups.back().count = &rows; }
  template <typename Events, typename T>
  void Member(const Field&, Events& rows, T Event::*) {
    groups.back().events = &rows;
  }

  std::vector<runlog::Group<Log>> groups;

 private:
  template <typename Vector>
  void Add(const Field& field, Shape shape, Vector& values,
           std::initializer_list<Axis<Size>> axes) {
    groups.back().datasets.push_back({field, shape, &values, axes});
  }
};

/// In the order of the schema, so that those of two logs correspond. Provenance
/// has no part in it.
template <typename Log>
std::vector<Group<Log>> Groups(Log& log) {
  GroupCollector<Log> collector;
  VisitRunLog(collector, log);
  std::erase_if(collector.groups, [](const Group<Log>& group) {
    return group.datasets.empty() && group.events == nullptr;
  });
  return std::move(collector.groups);
}

}  // namespace isoloss::runlog
