// Computes products of linear layers, which are summed in another way than in
// kernels::Gemm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/model/gemm_engine.h"

namespace isoloss::ensembles {

/// Computes sums = a b^T of one segment. Several threads call it at once, for
/// different products.
/// Shapes   a [m, k], b [n, k], sums [m, n]; sums come zeroed.
using SegmentSum =
    std::function<void(MatrixView<const float> a, MatrixView<const float> b,
                       MatrixView<float> sums)>;

/// Sums each segment of a product with `segment`, and adds the segments up the
/// aligned tree.
/// Shapes   a [m, k], b [n, k], sums [m, n].
void SumSegments(MatrixView<const float> a, MatrixView<const float> b,
                 std::span<const size_t> segment_ends,
                 const SegmentSum& segment, MatrixView<float> sums);

/// Rounds `sums` as the problem asks for, adds its addend, and writes its c.
void StoreSums(MatrixView<const float> sums,
               const kernels::GemmProblem& problem);

/// Returns an engine that quantises operands as kernels::GemmBatch does and
/// sums their products with `segment`. Products for which `touches` is false go
/// to kernels::GemmBatch; an empty `touches` is true of all.
/// Errors   ConfigError for operands that are quantised otherwise than in MX
///          blocks.
model::GemmEngine SummedBy(
    SegmentSum segment,
    std::function<bool(const model::GemmTask& task)> touches = {});

/// sums(i, j) = fold over k, in the order of `order` (empty: ascending), of
/// step(acc, a(i, k) * b(j, k)) from 0, in `Acc`. The inner loop runs over j,
/// so that it vectorises. BF16 and FP8 operands multiply exactly in FP32.
template <typename Acc, typename Step>
void FoldProducts(MatrixView<const float> a, MatrixView<const float> b,
                  std::span<const size_t> order, const Step& step,
                  MatrixView<float> sums) {
  const size_t n = b.rows();
  Matrix<Acc> columns(b.cols(), n);  // b transposed
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < b.cols(); ++k) {
      columns(k, j) = static_cast<Acc>(b(j, k));
    }
  }
  constexpr size_t kRows = 4;  // that share a pass over b
  Matrix<Acc> acc;
  for (size_t first = 0; first < a.rows(); first += kRows) {
    const size_t rows = std::min(kRows, a.rows() - first);
    acc.Resize(rows, n);
    for (size_t at = 0; at < a.cols(); ++at) {
      const size_t k = order.empty() ? at : order[at];
      const Acc* const column = columns.Row(k);
      for (size_t row = 0; row < rows; ++row) {
        const Acc factor = static_cast<Acc>(a(first + row, k));
        Acc* const into = acc.Row(row);
        for (size_t j = 0; j < n; ++j) {
          into[j] = step(into[j], factor * column[j]);
        }
      }
    }
    for (size_t row = 0; row < rows; ++row) {
      for (size_t j = 0; j < n; ++j) {
        sums(first + row, j) = static_cast<float>(acc(row, j));
      }
    }
  }
}

}  // namespace isoloss::ensembles
