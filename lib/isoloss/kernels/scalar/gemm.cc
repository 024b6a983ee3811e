#include "isoloss/kernels/scalar/gemm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/piece_sum.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::kernels {
namespace {

PreparedOperand UnpackedRows(const PackedOperand& packed) {
  PreparedOperand operand;
  operand.values.Resize(packed.extent(), packed.depth());
  for (size_t i = 0; i < packed.extent(); ++i) {
    for (size_t k = 0; k < packed.depth(); ++k) {
      operand.values(i, k) = packed.At(i, k);
    }
  }
  return operand;
}

/// Reads steps [begin, end) of one row.
struct Steps {
  const PreparedOperand& operand;
  size_t row;

  float operator[](size_t k) const { return operand.values(row, k); }
  Elements From(size_t k) const { return operand.From(row, k); }
  float Factor(size_t piece) const {
    return operand.factors.size() == 0 ? 1.0f : operand.factors(row, piece);
  }
};

float SumOfPiece(const Steps& a, const Steps& b, size_t begin, size_t end,
                 const Accumulator* accumulator) {
  float acc = 0.0f;
  if (accumulator == nullptr) {
    for (size_t k = begin; k < end; ++k) acc = std::fma(a[k], b[k], acc);
    return acc;
  }
  for (size_t k = begin; k < end; k += accumulator->steps) {
    acc = FusedSum(*accumulator, acc, a.From(k), b.From(k),
                   std::min(accumulator->steps, end - k));
  }
  return acc;
}

/// Adds up the pieces of each segment, and then the segments up the aligned
/// tree.
float Dot(const Steps& a, const Steps& b, const Pieces& pieces,
          const Accumulation& accumulation) {
  const PieceSum adder{
      a.operand.factors.size() > 0 || b.operand.factors.size() > 0,
      accumulation.outer};
  AlignedTree<float, std::plus<float>> tree{std::plus<float>()};
  float sum = 0.0f;
  size_t piece = 0;
  pieces.ForEach([&](size_t segment, size_t begin, size_t end) {
    sum = adder.Add(begin == pieces.SegmentBegin(segment), sum,
                    SumOfPiece(a, b, begin, end, accumulation.accumulator),
                    a.Factor(piece) * b.Factor(piece));
    ++piece;
    if (end == pieces.segment_ends[segment]) tree.Push(sum);
  });
  return tree.Finish(0.0f);
}

}  // namespace

void CheckGemmProblem(const GemmProblem& problem) {
  const Operand& a = problem.a;
  const MatrixView<float>& c = problem.c;
  const PackedOperand* packed = problem.packed_b;
  // A product may use only the first rows of a packed side.
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
  if (packed != nullptr && a.rounding != Rounding::kFp32) {
    ThrowError(ErrorKind::kShape,
               "Gemm: a is to be rounded, but b was packed for an a that is "
               "read as it is. Pass b itself, or round a before.");
  }
}

std::span<const size_t> SegmentEnds(const GemmProblem& problem, size_t* whole) {
  if (!problem.segment_ends.empty()) return problem.segment_ends;
  *whole = problem.a.depth();
  return {whole, 1};
}

void PackRowScalar(const Operand& operand, size_t row, float* to) {
  const size_t depth = operand.depth();
  for (size_t k = 0; k < depth; ++k) {
    to[k] = operand.At(row, k);
  }
  if (operand.quantization == nullptr) return;
  for (size_t k = 0; k < depth; k += formats::kMxBlockSize) {
    const std::span<float> block(to + k,
                                 std::min(formats::kMxBlockSize, depth - k));
    formats::QuantizeDequantizeBlock(block, *operand.quantization, block);
  }
}

void GemmScalar(const GemmProblem& problem) {
  CheckGemmProblem(problem);
  size_t whole = 0;
  const Pieces pieces =
      PiecesOf(problem.a.quantization, problem.right_quantization(),
               problem.accumulation, SegmentEnds(problem, &whole));
  const FactorExponents exponents = problem.accumulation.exponents();
  PreparedOperand a;
  PreparedOperand unpacked;
  PrepareScalar(problem.a, pieces, exponents, a);
  const PreparedOperand* b = &unpacked;
  if (problem.packed_b == nullptr) {
    PrepareScalar(problem.b, pieces, exponents, unpacked);
  } else if (problem.packed_b->prepared() != nullptr) {
    b = problem.packed_b->prepared();
  } else {
    unpacked = UnpackedRows(*problem.packed_b);
  }
  for (size_t i = 0; i < problem.c.rows(); ++i) {
    for (size_t j = 0; j < problem.c.cols(); ++j) {
      float sum = Rounded(Dot({a, i}, {*b, j}, pieces, problem.accumulation),
                          problem.rounding);
      if (!problem.addend.empty()) {
        sum = Rounded(problem.addend(i, j) + sum, problem.rounding);
      }
      problem.c(i, j) = sum;
    }
  }
}

}  // namespace isoloss::kernels
