// Finds where the rows that a process announces stand in the tensor of the
// whole batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/model/tap.h"

namespace isoloss::probes {

/// Independent of who holds the row. Of tokens: group 0, segment 0, and the
/// token's number in the batch; of experts: the expert, the dispatch unit and
/// the row's number in it.
struct RowPlace {
  uint64_t group = 0;
  uint64_t segment = 0;
  uint64_t position = 0;

  friend auto operator<=>(const RowPlace&, const RowPlace&) = default;
};

/// Rows whose places have consecutive positions: those of one tensor of an
/// operand. Blocks down columns end with it.
struct RowRun {
  size_t begin = 0;
  size_t end = 0;
  RowPlace first = {};
  size_t group = 0;    ///< among those of the process
  size_t segment = 0;  ///< among those of the group in the process
};

/// The segments of all groups that have rows besides padding, in the order of
/// rows and without padding: what fills lists up is in no figure.
/// Errors   none; asserts that segments with padding cover `row_count` rows.
std::vector<RowRun> RunsOf(const model::TensorRows& rows, size_t row_count);

/// Calls visit(row, place, run) for rows [first, end) in order.
template <typename Visit>
void ForEachPlace(const std::vector<RowRun>& runs, size_t first, size_t end,
                  const Visit& visit) {
  for (const RowRun& run : runs) {
    for (size_t row = first > run.begin ? first : run.begin;
         row < run.end && row < end; ++row) {
      RowPlace place = run.first;
      place.position += row - run.begin;
      visit(row, place, run);
    }
  }
}

}  // namespace isoloss::probes
