#include "isoloss/ensembles/segment_sums.h"

#include <memory>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/quantize.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::ensembles {
namespace {

using kernels::GemmProblem;
using kernels::Operand;
using model::GemmTask;

/// Returns the rows of an operand as its product takes them: rounded, and
/// quantised anew at every segment.
Matrix<float> FinishedRows(const Operand& operand,
                           std::span<const size_t> segment_ends) {
  Matrix<float> rows;
  rows.ResizeUninitialized(operand.extent(), operand.depth());
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); ++k) rows(i, k) = operand.At(i, k);
  }
  if (operand.quantization == nullptr) return rows;
  if (!operand.quantization->is_mx()) {
    ThrowError(ErrorKind::kConfig,
               "benign variants: they sum products in MX blocks only. Build "
               "an ensemble of an arm whose recipe quantises in MX blocks.");
  }
  Executor alone(1);
  size_t begin = 0;
  for (const size_t end : segment_ends) {
    const MatrixView<float> part = rows.view().Cols(begin, end - begin);
    if (end > begin) {
      kernels::QuantizeDequantize(part, *operand.quantization, part, alone);
    }
    begin = end;
  }
  return rows;
}

void Compute(const GemmProblem& problem, const SegmentSum& segment) {
  std::vector<size_t> ends(problem.segment_ends.begin(),
                           problem.segment_ends.end());
  if (ends.empty()) ends = {problem.a.depth()};
  const Matrix<float> a = FinishedRows(problem.a, ends);
  const Matrix<float> b = FinishedRows(problem.b, ends);
  Matrix<float> sums(problem.c.rows(), problem.c.cols());
  SumSegments(a.view(), b.view(), ends, segment, sums.view());
  StoreSums(sums.view(), problem);
}

}  // namespace

void SumSegments(MatrixView<const float> a, MatrixView<const float> b,
                 std::span<const size_t> segment_ends,
                 const SegmentSum& segment, MatrixView<float> sums) {
  std::vector<Matrix<float>> parts;
  size_t begin = 0;
  for (const size_t end : segment_ends) {
    Matrix<float>& part = parts.emplace_back(sums.rows(), sums.cols());
    if (end > begin) {
      segment(a.Cols(begin, end - begin), b.Cols(begin, end - begin),
              part.view());
    }
    begin = end;
  }
  for (size_t i = 0; i < sums.rows(); ++i) {
    for (size_t j = 0; j < sums.cols(); ++j) {
      sums(i, j) = kernels::AlignedTreeSum(
          0, parts.size(), [&](size_t s) { return parts[s](i, j); });
    }
  }
}

void StoreSums(MatrixView<const float> sums, const GemmProblem& problem) {
  for (size_t i = 0; i < sums.rows(); ++i) {
    for (size_t j = 0; j < sums.cols(); ++j) {
      float sum = kernels::Rounded(sums(i, j), problem.rounding);
      if (!problem.addend.empty()) {
        sum = kernels::Rounded(problem.addend(i, j) + sum, problem.rounding);
      }
      problem.c(i, j) = sum;
    }
  }
}

model::GemmEngine SummedBy(SegmentSum segment,
                           std::function<bool(const GemmTask& task)> touches) {
  return [segment = std::move(segment), touches = std::move(touches)](
             std::span<const GemmTask> tasks, Executor& executor) {
    std::vector<GemmProblem> plain;
    std::vector<const GemmProblem*> other;
    for (const GemmTask& task : tasks) {
      const GemmProblem& problem = task.problem;
      // An expert without tokens has nothing to sum.
      const bool has_sums = problem.a.depth() > 0 && !problem.c.empty();
      if (has_sums && (!touches || touches(task))) {
        other.push_back(&problem);
      } else {
        plain.push_back(problem);
      }
    }
    executor.ParallelFor(other.size(),
                         [&](size_t i) { Compute(*other[i], segment); });
    kernels::GemmBatch(plain, executor);
  };
}

}  // namespace isoloss::ensembles
