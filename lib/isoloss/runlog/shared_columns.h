// Compares two run logs: matches every column that both have, its rows by step
// and its places by label, and finds the first difference. The schema decides
// which columns are compared, and how: no comparison lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// A name occurs in two lists, at these places.
struct SharedName {
  size_t a = 0;
  size_t b = 0;
};

/// Finds the names that two lists share. If a list repeats a name, its first
/// place counts.
struct MatchedNames {
  std::vector<SharedName> shared;  ///< in the order of `a`
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
};
MatchedNames MatchNames(const std::vector<std::string>& a,
                        const std::vector<std::string>& b);

/// Both logs have a row of this step.
struct SharedRow {
  size_t a = 0;
  size_t b = 0;
  int64_t step = 0;
};

/// Rows of the steps that both ascending columns have, ascending.
/// Cost     O(log of the longer + rows between the others' first and last
/// step).
std::vector<SharedRow> MatchRows(const std::vector<int64_t>& a,
                                 const std::vector<int64_t>& b);

/// NaN equals a NaN of the same bits; 0 is not -0.
bool SameBits(double a, double b);
template <typename T>
bool SameBits(const T& a, const T& b) {
  return a == b;
}
/// Compares two spans of the same length likewise.
bool EqualBits(std::span<const double> a, std::span<const double> b);

/// These columns of /tensors are needed to understand further ones; null if a
/// log lacks them.
struct BasicStatistics {
  const std::vector<double>* numel = nullptr;
  const std::vector<double>* l1_norm = nullptr;
  const std::vector<double>* l2_norm = nullptr;
};

/// Both logs have this group. /exchange_pairs, which has no steps, is a single
/// row of the last step of the group before it, if that step is the same in
/// both.
struct SharedGroup {
  const Group* of = nullptr;
  std::vector<SharedRow> rows = {};
  /// The names are those of the axis that has labels; the labels are those of
  /// the logs, if there is such an axis.
  MatchedNames names = {};
  const std::vector<std::string>* labels_a = nullptr;
  const std::vector<std::string>* labels_b = nullptr;

  BasicStatistics basic_a = {};
  BasicStatistics basic_b = {};
  /// Both runs were asked (`log.statistics_*`) for the same statistics.
  bool same_statistics = false;

  std::vector<int64_t> Steps() const;
};

/// The axis of a column is not as long in both logs.
struct ExtentDifference {
  std::string_view of;  ///< "experts"
  int64_t a = 0;
  int64_t b = 0;

  std::string Text() const;  ///< "5 against 6 experts"
};

/// Both logs have values of this reproducible dataset.
struct SharedColumn {
  const SharedGroup* group = nullptr;
  const Column* of = nullptr;
  View a;
  View b;
  std::span<const SharedRow> rows;  ///< labels: one, of no step
  size_t width_a = 0;               ///< values in a row
  size_t width_b = 0;
  /// Places are matched by the group's labels; each has `inner` values.
  bool labelled = false;
  size_t inner = 0;
  /// Different extents, if there are any, prevent a comparison.
  std::optional<ExtentDifference> extents = {};

  const Field& field() const { return of->field; }
  const char* quantity() const {
    return field().shown == nullptr ? field().name.c_str() : field().shown;
  }
  /// True if it holds values, rather than steps or labels.
  bool HoldsValues() const {
    return of->role == Role::kRows || of->role == Role::kSquare;
  }
};

/// Holds the indices of one value of a column in both logs.
struct SharedValue {
  const SharedColumn* column = nullptr;
  SharedRow row;
  size_t place = 0;  ///< number of the shared place within the row
  size_t a = 0;      ///< index in the column
  size_t b = 0;

  using Value = std::variant<int64_t, double, std::string>;
  std::pair<Value, Value> Values() const;
  /// Returns "MoE layer 2, expert 5", "w1" or "x_output, byte 3"; "" if a row
  /// of the column is one value.
  std::string Place() const;
};

/// Decides when two values agree.
struct Rule {
  /// Without a tolerance values agree only to the bit. With one they agree if
  /// they differ by no more than this share of the field's scale; NaN and
  /// infinities agree only with their like.
  std::optional<double> tolerance = {};
  /// Values are skipped that are NaN in one log because its recipe does not
  /// quantise.
  bool where_both_quantize = false;
  /// All values of every row are compared, by place: also values of a tensor
  /// that one log did not record at the step.
  bool whole_rows = false;
};

/// Returns the first value of a row that differs, in the order of A's places.
std::optional<SharedValue> FirstDifferent(const SharedColumn& column,
                                          const SharedRow& row,
                                          const Rule& rule);

/// True if both logs recorded values of the column in this row, or at one place
/// in it. A row of digests that are all 0 has none, and a tensor whose `numel`
/// is NaN has no statistics. If both runs were asked for the same statistics,
/// one log is enough: the second log lacks values that it should have.
bool IsRecorded(const SharedColumn& column, const SharedRow& row);
bool IsRecorded(const SharedColumn& column, const SharedRow& row, size_t place);

/// A band is compared place by place, so that a tensor's statistics come before
/// those of the next tensor.
using Band = std::vector<const SharedColumn*>;

/// Describes the first difference of some steps.
struct StepDifference {
  SharedValue value;
  std::optional<int64_t> last_equal_step;
};

/// Both logs must outlive it.
class SharedColumns {
 public:
  SharedColumns(const RunLog& a, const RunLog& b);
  SharedColumns(const SharedColumns&) = delete;
  SharedColumns& operator=(const SharedColumns&) = delete;

  /// Returns all columns in the order of the schema.
  const std::vector<SharedColumn>& all() const { return columns_; }
  /// Returns columns with values whose scope both runs share. Columns of the
  /// ranks and of the traffic between them belong only if mesh and exchange are
  /// the same.
  Band Comparable() const;
  /// Returns likewise columns that are not compared, because extents differ.
  Band OtherExtents() const;
  const SharedGroup& group(const char* name) const;
  /// Returns the steps that any group but /eval has in both logs, ascending.
  std::vector<int64_t> Steps() const;

 private:
  void Add(const SharedGroup& group, const Column& column);
  Band OfSharedScope(bool other_extents) const;

  View a_;
  View b_;
  std::deque<SharedGroup> groups_;
  std::vector<SharedColumn> columns_;
  bool same_mesh_ = false;
};

/// Finds the first difference step by step, in each step by band, in a band by
/// place.
std::optional<StepDifference> FirstInSteps(const std::vector<int64_t>& steps,
                                           const std::vector<Band>& bands,
                                           const Rule& rule);

}  // namespace isoloss::runlog
