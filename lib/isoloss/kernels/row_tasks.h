// What functions that work row by row share: argument checks and the division
// of rows among a team.
#pragma once

#include <algorithm>
#include <cstddef>

#include "isoloss/base/error.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"

namespace isoloss::kernels {

inline void RequireLength(const char* where, const char* what, size_t length,
                          size_t expected) {
  if (length == expected) return;
  ThrowError(ErrorKind::kShape,
             "{}: {} has {} elements, but {} are needed. Pass arrays that fit.",
             where, what, length, expected);
}

template <typename T>
void RequireShape(const char* where, const char* what, MatrixView<T> given,
                  size_t rows, size_t cols) {
  if (given.rows() == rows && given.cols() == cols) return;
  ThrowError(ErrorKind::kShape,
             "{}: {} is {}x{}, but must be {}x{}. Pass arrays that fit.", where,
             what, given.rows(), given.cols(), rows, cols);
}

/// Elements that make a task worth handing to another thread.
inline constexpr size_t kElementsPerTask = 16384;

/// Calls body(first, count) on disjoint runs that cover [0, rows), on the team.
/// Runs start at multiples of `alignment`; no bit may depend on their lengths.
template <typename Body>
void ForRowRuns(size_t rows, size_t cols, size_t alignment, ThreadTeam& team,
                const Body& body) {
  const size_t wanted = kElementsPerTask / std::max<size_t>(cols, 1);
  const size_t run = std::max<size_t>(wanted / alignment, 1) * alignment;
  team.ParallelFor((rows + run - 1) / run, [&](size_t task) {
    const size_t first = task * run;
    body(first, std::min(run, rows - first));
  });
}

/// Calls body(row) for each row in [0, rows), on the team; for rows whose work
/// does not show in a number of columns.
template <typename Body>
void ForEachRow(size_t rows, ThreadTeam& team, const Body& body) {
  constexpr size_t kRowsPerTask = 64;
  team.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    const size_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (size_t row = task * kRowsPerTask; row < end; ++row) body(row);
  });
}

}  // namespace isoloss::kernels
