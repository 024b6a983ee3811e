// Checks the arguments of functions that work row by row, and divides their
// rows among an executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

/// Runs the executor's own form of a kernel; false: it has none, and the kernel
/// runs on the host. The last argument is the executor. One whose memory is not
/// the host's must have a form of every kernel that gets it.
template <typename... Parameters>
bool RanElsewhere(void (*kernel)(Parameters...),
                  std::type_identity_t<Parameters>... arguments) {
  Executor& executor =
      std::get<sizeof...(Parameters) - 1>(std::tie(arguments...));
  const ErasedKernel form =
      executor.FormOf(reinterpret_cast<ErasedKernel>(kernel));
  if (form == nullptr) {
    ISOLOSS_ASSERT(executor.memory().is_host());
    return false;
  }
  reinterpret_cast<void (*)(Parameters...)>(form)(arguments...);
  return true;
}

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

/// Requires that each entry of an index, whose row 0 is that of token `first`,
/// names one of so many rows.
inline void RequireRows(const char* where, MatrixView<const int32_t> index,
                        size_t first, size_t rows) {
  for (size_t t = 0; t < index.rows(); ++t) {
    for (size_t k = 0; k < index.cols(); ++k) {
      const int32_t row = index(t, k);
      if (row < 0 || static_cast<size_t>(row) >= rows) {
        ThrowError(ErrorKind::kShape,
                   "{}: slot {} of token {} is row {}, but there are {} rows. "
                   "Pass the index of an existing row.",
                   where, k, first + t, row, rows);
      }
    }
  }
}

/// A run with fewer elements, or fewer rows of unknown length, is not worth
/// another thread: to hand it over costs about a microsecond.
inline constexpr size_t kMinElementsPerRun = 8192;
inline constexpr size_t kMinRowsPerRun = 32;

/// Calls body(first, count) on disjoint runs that cover [0, rows): at most
/// `wanted` of them, about equally long, at most one per thread. Runs start at
/// multiples of `alignment`.
template <typename Body>
void ForEqualRuns(size_t rows, size_t wanted, size_t alignment,
                  Executor& executor, const Body& body) {
  if (rows == 0) return;
  const size_t granules = (rows + alignment - 1) / alignment;
  const size_t most = std::min(granules, static_cast<size_t>(executor.size()));
  const size_t runs = std::clamp<size_t>(wanted, 1, most);
  executor.ParallelFor(runs, [&](size_t run) {
    const size_t first = granules * run / runs * alignment;
    const size_t end = granules * (run + 1) / runs * alignment;
    body(first, std::min(end, rows) - first);
  });
}

/// Calls body(first, count) on disjoint runs that cover [0, rows), on the
/// executor. Runs start at multiples of `alignment`; no bit may depend on their
/// lengths.
template <typename Body>
void ForRowRuns(size_t rows, size_t cols, size_t alignment, Executor& executor,
                const Body& body) {
  ForEqualRuns(rows, rows * cols / kMinElementsPerRun, alignment, executor,
               body);
}

/// Calls body(row) for each row in [0, rows), on the executor. It is for rows
/// whose work does not show in a number of columns.
template <typename Body>
void ForEachRow(size_t rows, Executor& executor, const Body& body) {
  ForEqualRuns(rows, rows / kMinRowsPerRun, 1, executor,
               [&](size_t first, size_t count) {
                 for (size_t row = first; row < first + count; ++row) body(row);
               });
}

}  // namespace isoloss::kernels
