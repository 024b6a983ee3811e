// Checks that the values of columns lie in their domains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Tells what to do about a violation.
std::string_view RemedyOf(Fault fault);

/// Compares the groups of a log in memory with their schema.
class ColumnCheck {
 public:
  /// `is_due` says whether the run records such columns; the log can't have
  /// columns of layouts after `version`.
  ColumnCheck(const View& log, int64_t version,
              std::function<bool(When)> is_due)
      : log_(log), version_(version), is_due_(std::move(is_due)) {}

  void Check(const Group& group);
  void Check(std::span<const Group> groups) {
    for (const Group& group : groups) Check(group);
  }

  std::vector<Violation> violations;
  /// The columns of these relations hold a wrong value. The relations are
  /// broken by that, and say nothing new. Sets are bits by Relation.
  uint32_t spoilt_relations = 0;
  /// True if every column is as long as it must be.
  bool lengths_fit = true;

 private:
  void CheckAttribute(const Column& column);
  void CheckColumn(const Column& column);
  void CheckValues(const Column& column);
  void CheckSteps();
  bool MayBeMissing(const Column& column, size_t expected) const;
  void Report(Fault fault, std::string_view found, std::string_view rule);
  void ReportLength(const Column& column, size_t found, size_t expected);
  std::string PlaceOf(const Column& column, size_t place) const;

  View log_;
  int64_t version_;
  std::function<bool(When)> is_due_;
  // The following members describe the group that is checked.
  const Group* group_ = nullptr;
  size_t rows_ = 0;
  const std::vector<int64_t>* steps_ = nullptr;  ///< if they must ascend
  const std::vector<std::string>* labels_ = nullptr;
};

}  // namespace isoloss::runlog
