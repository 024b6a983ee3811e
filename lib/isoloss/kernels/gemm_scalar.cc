#include "isoloss/kernels/gemm_scalar.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::kernels {
namespace {

/// Operand rows [extent, depth], quantised block by block within each segment.
Matrix<float> OperandRows(const Operand& operand,
                          std::span<const size_t> segment_ends) {
  Matrix<float> rows(operand.extent(), operand.depth());
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); ++k) {
      rows(i, k) = operand.contraction == Contraction::kColumns
                       ? operand.values(i, k)
                       : operand.values(k, i);
    }
    if (operand.mx == nullptr) continue;
    size_t begin = 0;
    for (const size_t end : segment_ends) {
      for (size_t k = begin; k < end; k += formats::kMxBlockSize) {
        const std::span<float> block(rows.Row(i) + k,
                                     std::min(formats::kMxBlockSize, end - k));
        formats::QuantizeDequantizeBlock(block, *operand.mx, block);
      }
      begin = end;
    }
  }
  return rows;
}

/// The chain of each segment, folded up the aligned tree.
float Dot(const float* a, const float* b,
          std::span<const size_t> segment_ends) {
  AlignedTree<float, std::plus<float>> tree{std::plus<float>()};
  size_t k = 0;
  for (const size_t end : segment_ends) {
    float acc = 0.0f;
    for (; k < end; ++k) acc = std::fma(a[k], b[k], acc);
    tree.Push(acc);
  }
  return tree.Finish(0.0f);
}

}  // namespace

void CheckGemmProblem(const GemmProblem& problem) {
  const Operand& a = problem.a;
  const Operand& b = problem.b;
  const MatrixView<float>& c = problem.c;
  if (a.extent() != c.rows() || b.extent() != c.cols() ||
      a.depth() != b.depth()) {
    ThrowError(
        ErrorKind::kShape,
        "Gemm: a has {} rows of depth {}, b {} rows of depth {} and c is "
        "{}x{}, but c must be a's rows by b's rows, and the depths "
        "equal. Pass operands that fit.",
        a.extent(), a.depth(), b.extent(), b.depth(), c.rows(), c.cols());
  }
  const std::span<const size_t> ends = problem.segment_ends;
  if (!ends.empty() &&
      (!std::is_sorted(ends.begin(), ends.end()) || ends.back() != a.depth())) {
    ThrowError(ErrorKind::kShape,
               "Gemm: {} segments end at {}, but the ends must ascend to the "
               "depth {}. Pass the end of every segment.",
               ends.size(), ends.back(), a.depth());
  }
}

std::span<const size_t> SegmentEnds(const GemmProblem& problem, size_t* whole) {
  if (!problem.segment_ends.empty()) return problem.segment_ends;
  *whole = problem.a.depth();
  return {whole, 1};
}

void GemmScalar(const GemmProblem& problem) {
  CheckGemmProblem(problem);
  size_t whole = 0;
  const std::span<const size_t> ends = SegmentEnds(problem, &whole);
  const Matrix<float> a = OperandRows(problem.a, ends);
  const Matrix<float> b = OperandRows(problem.b, ends);
  for (size_t i = 0; i < problem.c.rows(); ++i) {
    for (size_t j = 0; j < problem.c.cols(); ++j) {
      const float sum = Dot(a.Row(i), b.Row(j), ends);
      problem.c(i, j) =
          problem.rounding == Rounding::kBf16 ? formats::RoundToBf16(sum) : sum;
    }
  }
}

}  // namespace isoloss::kernels
