#include "isoloss/kernels/gemm_scalar.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::kernels {
namespace {

float Rounded(float value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
}

void CopyRow(const Operand& operand, size_t row, float* to) {
  for (size_t k = 0; k < operand.depth(); ++k) {
    to[k] = operand.contraction == Contraction::kColumns
                ? operand.values(row, k)
                : operand.values(k, row);
  }
}

void QuantizeRow(const formats::Quantization& spec, std::span<float> row) {
  for (size_t k = 0; k < row.size(); k += formats::kMxBlockSize) {
    const std::span<float> block =
        row.subspan(k, std::min(formats::kMxBlockSize, row.size() - k));
    formats::QuantizeDequantizeBlock(block, spec, block);
  }
}

/// Operand rows [extent, depth], quantised block by block within each segment.
Matrix<float> OperandRows(const Operand& operand,
                          std::span<const size_t> segment_ends) {
  Matrix<float> rows(operand.extent(), operand.depth());
  for (size_t i = 0; i < rows.rows(); ++i) {
    CopyRow(operand, i, rows.Row(i));
    if (operand.mx == nullptr) continue;
    size_t begin = 0;
    for (const size_t end : segment_ends) {
      QuantizeRow(*operand.mx, {rows.Row(i) + begin, end - begin});
      begin = end;
    }
  }
  return rows;
}

Matrix<float> UnpackedRows(const PackedOperand& packed) {
  Matrix<float> rows(packed.extent(), packed.depth());
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); ++k) rows(i, k) = packed.At(i, k);
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
  const MatrixView<float>& c = problem.c;
  const PackedOperand* packed = problem.packed_b;
  // Of a packed side only the first rows need be used.
  const size_t b_extent = packed != nullptr
                              ? std::min(packed->extent(), c.cols())
                              : problem.b.extent();
  const size_t b_depth =
      packed != nullptr ? packed->depth() : problem.b.depth();
  if (a.extent() != c.rows() || b_extent != c.cols() || a.depth() != b_depth) {
    ThrowError(
        ErrorKind::kShape,
        "Gemm: a has {} rows of depth {}, b {} rows of depth {} and c is "
        "{}x{}, but c must be a's rows by b's rows, and the depths "
        "equal. Pass operands that fit.",
        a.extent(), a.depth(), b_extent, b_depth, c.rows(), c.cols());
  }
  const MatrixView<const float>& addend = problem.addend;
  if (!addend.empty()) {
    RequireShape("Gemm", "addend", addend, c.rows(), c.cols());
  }
  const std::span<const size_t> ends = problem.segment_ends;
  if (!ends.empty() &&
      (!std::is_sorted(ends.begin(), ends.end()) || ends.back() != a.depth())) {
    ThrowError(ErrorKind::kShape,
               "Gemm: {} segments end at {}, but the ends must ascend to the "
               "depth {}. Pass the end of every segment.",
               ends.size(), ends.back(), a.depth());
  }
  if (packed != nullptr && ends.size() > 1) {
    ThrowError(ErrorKind::kShape,
               "Gemm: {} segments were given, but b was packed as one. Pass b "
               "itself.",
               ends.size());
  }
}

std::span<const size_t> SegmentEnds(const GemmProblem& problem, size_t* whole) {
  if (!problem.segment_ends.empty()) return problem.segment_ends;
  *whole = problem.a.depth();
  return {whole, 1};
}

void PackRowScalar(const Operand& operand, size_t row, float* to) {
  CopyRow(operand, row, to);
  if (operand.mx != nullptr) QuantizeRow(*operand.mx, {to, operand.depth()});
}

void GemmScalar(const GemmProblem& problem) {
  CheckGemmProblem(problem);
  size_t whole = 0;
  const std::span<const size_t> ends = SegmentEnds(problem, &whole);
  const Matrix<float> a = OperandRows(problem.a, ends);
  const Matrix<float> b = problem.packed_b != nullptr
                              ? UnpackedRows(*problem.packed_b)
                              : OperandRows(problem.b, ends);
  for (size_t i = 0; i < problem.c.rows(); ++i) {
    for (size_t j = 0; j < problem.c.cols(); ++j) {
      float sum = Rounded(Dot(a.Row(i), b.Row(j), ends), problem.rounding);
      if (!problem.addend.empty()) {
        sum = Rounded(problem.addend(i, j) + sum, problem.rounding);
      }
      problem.c(i, j) = sum;
    }
  }
}

}  // namespace isoloss::kernels
