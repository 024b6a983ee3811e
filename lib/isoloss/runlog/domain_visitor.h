// The visitor of a schema (schema.h) that holds values against their domains.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// What to do about a violation.
inline std::string_view RemedyOf(Fault fault) {
  return fault == Fault::kRun
             ? "The run diverged or computed garbage."
             : "The file is damaged or was edited: make it again.";
}

/// Visitor for run logs, probe logs and ensembles in memory.
class DomainVisitor {
 public:
  /// `is_due` says whether the run records such columns; those of layouts after
  /// `version` it can't have.
  DomainVisitor(int64_t version, std::function<bool(When)> is_due)
      : version_(version), is_due_(std::move(is_due)) {}

  void LayoutVersion(const Field&, int64_t) {}
  void Version(const Field&, int64_t) {}

  template <typename T>
  void Attribute(const Field& field, const T& value) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (field.domain.Contains(value)) return;
      Report(field.domain.fault(),
             fmt::format("attribute {} is {}", field.name, Shown(value)),
             field.domain.Range());
    }
  }

  void Group(const char* name, const char* /*description*/, int64_t since) {
    group_ = name;
    group_since_ = since;
    labels_ = nullptr;
    index_ = nullptr;
    steps_ = nullptr;
    rows_ = 0;
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    if (index_ == nullptr) StartGroup(field, values);
    Check(field, values, rows_, {});
  }

  template <typename T>
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    Column(field, values);
  }

  template <typename T>
  void Array(const Field& field, const std::vector<T>& values,
             std::initializer_list<Axis<const int64_t>> axes) {
    size_t width = 1;
    for (const auto& axis : axes) width *= static_cast<size_t>(axis.size);
    Check(field, values, rows_ * width, axes);
  }

  void Labels(const Field& field, const std::vector<std::string>& names,
              const Axis<const int64_t>& axis) {
    const auto places = static_cast<size_t>(axis.size);
    if (names.size() != places) ReportLength(field, names.size(), places);
    labels_ = &names;
  }

  void Count(const Field& field, int64_t rows) {
    index_ = field.name;
    rows_ = static_cast<size_t>(rows);
  }

  template <typename T>
  void Member(const Field& field, const std::vector<Event>& rows,
              T Event::*member) {
    std::vector<T> values;
    for (const Event& row : rows) values.push_back(row.*member);
    rows_ = values.size();
    Check(field, values, rows_, {});
  }

  std::vector<Violation> violations;
  /// Bits of the relations whose columns hold a wrong value: they are broken
  /// by that, and say nothing new.
  uint32_t spoilt_relations = 0;
  /// Whether every column is as long as it must be.
  bool lengths_fit = true;

 private:
  template <typename T>
  static std::string Shown(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return "NaN";
    }
    return fmt::to_string(value);
  }

  template <typename T>
  void StartGroup(const Field& field, const std::vector<T>& values) {
    index_ = field.name;
    rows_ = values.size();
    if constexpr (std::is_same_v<T, int64_t>) {
      if (!field.domain.ascending()) return;
      steps_ = &values;
      const auto fall = std::adjacent_find(values.begin(), values.end(),
                                           std::greater_equal<>());
      if (fall == values.end()) return;
      Report(Fault::kFile,
             fmt::format("{} goes from {} to {} in row {}", Name(field), *fall,
                         *(fall + 1), fall - values.begin() + 1),
             "ascending");
    }
  }

  void Report(Fault fault, std::string_view found, std::string_view rule) {
    violations.push_back({fault, fmt::format("{}, but it must be {}. {}", found,
                                             rule, RemedyOf(fault))});
  }

  void ReportLength(const Field& field, size_t found, size_t expected) {
    lengths_fit = false;
    Report(Fault::kFile,
           fmt::format("the length of {} is {}", Name(field), found),
           fmt::to_string(expected));
  }

  using Axes = std::initializer_list<Axis<const int64_t>>;

  template <typename T>
  void Check(const Field& field, const std::vector<T>& values, size_t expected,
             const Axes& axes) {
    if (values.empty()) {
      // /moe/expert_ids alone tells how wide it is, and without it that is 0.
      const bool tells_width = rows_ > 0 && field.when == When::kRouting;
      if ((expected == 0 && !tells_width) ||
          std::max(field.since, group_since_) > version_ ||
          !is_due_(field.when)) {
        return;
      }
      lengths_fit = false;
      Report(Fault::kFile, Name(field) + " is missing", "there");
      return;
    }
    if (values.size() != expected) {
      ReportLength(field, values.size(), expected);
      return;
    }
    if constexpr (std::is_arithmetic_v<T>) {
      const auto bad = [&](T value) { return !field.domain.Contains(value); };
      const auto first = std::find_if(values.begin(), values.end(), bad);
      if (first == values.end()) return;
      spoilt_relations |= field.domain.relations();
      const auto place = static_cast<size_t>(first - values.begin());
      Report(
          field.domain.fault(),
          fmt::format("{} is {} {} ({} of {} values are such)", Name(field),
                      Shown(*first), Place(place, axes),
                      std::count_if(first, values.end(), bad), values.size()),
          field.domain.Range());
    }
  }

  std::string Name(const Field& field) const {
    return fmt::format("/{}/{}", group_, field.name);
  }
  /// "at step 5, layer 0, expert 3".
  std::string Place(size_t place, const Axes& axes) const {
    std::string text;
    for (auto axis = std::rbegin(axes); axis != std::rend(axes); ++axis) {
      const auto size = static_cast<size_t>(axis->size);
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

  int64_t version_;
  std::function<bool(When)> is_due_;
  std::string group_;
  int64_t group_since_ = 1;
  const std::vector<std::string>* labels_ = nullptr;  // of the group
  const char* index_ = nullptr;  // the group's first column
  const std::vector<int64_t>* steps_ = nullptr;
  size_t rows_ = 0;
};

}  // namespace isoloss::runlog
