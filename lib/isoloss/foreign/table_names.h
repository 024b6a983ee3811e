// Knows the names that tables of programs give to their columns and keys.
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

/// Returns the names in the order of preference: an iteration goes before a
/// number of log calls.
std::vector<std::string_view> StepNames();

/// Returns the first of StepNames() among `names`; "" if none is one.
std::string_view StepNameAmong(const std::vector<std::string>& names);

/// Follows one column of whole numbers over the rows of a table. Its values
/// tell whether the column may count the steps of the whole run.
class Counter {
 public:
  void Add(int64_t value);
  /// Returns how often the number fell to where it began, as a counter within
  /// an epoch does. A resume goes back to a greater number.
  int64_t restarts() const { return restarts_; }
  int64_t rows() const { return rows_; }
  /// Returns whether the number is equal in all rows, as a step within
  /// something else may be.
  bool stands_still() const { return rows_ > 1 && still_; }
  /// Returns whether the number rises by one amount from row to row.
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

/// Counts one more value of that name. If a table has very many names, only the
/// first ones and StepNames() are counted.
void Count(std::string_view name, int64_t value, Counters& counters);

/// Returns the first of StepNames() among `counters` that rises and never
/// begins again. If none does, returns the first of them; "" if none is there.
/// Tells `run` the choice, and why if it is not the first name.
std::string ChooseStep(const Counters& counters, ForeignRun& run);
/// Returns the names that rise, without `step`. Empty if `step` itself rises
/// and never begins again.
std::vector<std::string> RisingNames(const Counters& counters,
                                     std::string_view step);

/// Tells a row that lacks a loss which was due from a row of evaluations,
/// pictures or clocks.
class LossRows {
 public:
  /// Takes one more row: `names` are all that it holds, and `has_loss` says
  /// whether it has a loss. Returns whether a loss was due and is missing. A
  /// loss is due if an earlier row of these names had a loss, or if the row
  /// tells of an update. It is also due if `names_loss` is set and the row
  /// holds only clocks.
  bool Misses(const std::vector<std::string_view>& names, bool has_loss,
              bool names_loss);

 private:
  std::set<std::string> kinds_;  ///< of rows with a loss
};

/// Says what the step of that name is: unit and base.
void DescribeStep(std::string_view name, ForeignRun& run);

/// Returns whether a column of that name may tell which rows are of training.
bool IsPhaseName(std::string_view name);
/// Returns the prefix of the names of a row's series, by the word in that
/// column: "validation/" for "Validation", "" for "train" and any other word.
std::string PhasePrefix(std::string_view word);

/// Lists up to 12 names for a message, each in `quotes` and shortened. Then it
/// says how many more there are. "none" if all are empty.
std::string NamesText(const std::vector<std::string>& names);

/// Returns the place of the dash of SwanLab's "<run>-<metric>": the first one
/// before a known name, or else the last one; npos if there is none.
size_t DashOf(std::string_view name);

/// Says which columns of a table have the name of an earlier one, which alone
/// counts as that quantity.
std::vector<std::string> NotesOnCopies(const std::vector<std::string>& names);

}  // namespace isoloss::foreign
