// Names that tables of programs give to their columns and keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// In the order of preference: an iteration goes before a number of log calls.
std::vector<std::string_view> StepNames();

/// The first of StepNames() among `names`; "" if none is one.
std::string_view StepNameAmong(const std::vector<std::string>& names);

/// How one column of whole numbers runs over the rows of a table, and so
/// whether it may count the steps of the whole run.
class Counter {
 public:
  void Add(int64_t value);
  /// Times that it fell to where it began, as a counter within an epoch does. A
  /// resume goes back to a number above that.
  int64_t restarts() const { return restarts_; }
  int64_t rows() const { return rows_; }
  /// It is one number in all rows, as of a step within something else.
  bool stands_still() const { return rows_ > 1 && still_; }
  /// Rises by one amount from row to row.
  bool rises() const { return rows_ > 2 && stride_ > 0 && even_; }

 private:
  int64_t rows_ = 0;
  int64_t first_ = 0;
  int64_t last_ = 0;
  int64_t stride_ = 0;  ///< from the first row to the second
  int64_t restarts_ = 0;
  bool even_ = true;
  bool still_ = true;
};
using Counters = std::map<std::string, Counter, std::less<>>;

/// One more value of that name. Of a table with very many names only the first
/// ones and StepNames() are counted.
void Count(std::string_view name, int64_t value, Counters& counters);

/// The first of StepNames() among `counters` that rises and never begins again;
/// failing that, the first of them; "" if none is there. Tells `run` which it
/// is, and why if it is not the first.
std::string ChooseStep(const Counters& counters, ForeignRun& run);
/// Those that rise, but `step`; none if `step` itself rises and never begins
/// again.
std::vector<std::string> RisingNames(const Counters& counters,
                                     std::string_view step);

/// Tells rows that lack a loss which they should have from rows of evaluations,
/// pictures and clocks.
class LossRows {
 public:
  /// One more row: the names of all that it holds. Whether a loss was due,
  /// which `has_loss` says is not there: the row is as one that had a loss, or
  /// it tells of an update, or `names_loss` and it holds nothing but clocks.
  bool Misses(const std::vector<std::string_view>& names, bool has_loss,
              bool names_loss);

 private:
  std::set<std::string> kinds_;  ///< of rows with a loss
};

/// Says what the step is by that name: unit and base.
void DescribeStep(std::string_view name, ForeignRun& run);

/// Whether a column of that name may tell rows of training from others.
bool IsPhaseName(std::string_view name);
/// What goes before the names of a row's series by the word in that column:
/// "validation/" of "Validation", "" of "train" and of any other word.
std::string PhasePrefix(std::string_view word);

/// Up to 12 names for a message, each in `quotes` and shortened; then how many
/// more there are. "none" if all are empty.
std::string NamesText(const std::vector<std::string>& names);

}  // namespace isoloss::foreign
