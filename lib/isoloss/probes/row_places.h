// Finds where the rows that a process announces stand in the tensor of the
// whole batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/model/tap.h"

namespace isoloss::probes {

/// A place does not depend on who holds the row. A token has group 0, segment
/// 0 and its number in the batch. An expert's row has the expert, the dispatch
/// unit and the row's number in that unit.
struct RowPlace {
  uint64_t group = 0;
  uint64_t segment = 0;
  uint64_t position = 0;

  friend auto operator<=>(const RowPlace&, const RowPlace&) = default;
};

/// The places of a run's rows have consecutive positions. The rows belong to
/// one tensor of an operand, and blocks down columns end with it.
struct RowRun {
  size_t begin = 0;
  size_t end = 0;
  RowPlace first = {};
  size_t group = 0;    ///< among those of the process
  size_t segment = 0;  ///< among those of the group in the process
};

/// Returns the segments of all groups that have rows besides padding, in the
/// order of rows and without padding. Rows that fill lists up are in no
/// figure.
/// Errors   none; asserts that segments with padding cover `row_count` rows.
std::vector<RowRun> RunsOf(const model::TensorRows& rows, size_t row_count);

/// Gives visit(row, place, run) the rows [first, end) in order.
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
