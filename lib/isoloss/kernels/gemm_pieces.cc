#include "isoloss/kernels/gemm_pieces.h"

#include <algorithm>
#include <functional>

#include "isoloss/kernels/fused_gemm.h"
#include "isoloss/kernels/piece_sum.h"
#include "isoloss/kernels/prepare.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/same_operand.h"
#include "isoloss/kernels/scalar/gemm.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::kernels {
namespace {

/// One thread computes this number of rows of a product at a time.
constexpr size_t kStripRows = 64;

MatrixView<const float> Part(const Matrix<float>& values, size_t first,
                             size_t count, size_t begin, size_t end) {
  return values.view().Rows(first, count).Cols(begin, end - begin);
}

/// Sets sums to the first piece of a segment, or adds a later piece to sums.
void AddPiece(const Matrix<float>& part, const PreparedOperand& a, size_t first,
              const PreparedOperand& b, size_t piece, bool is_first,
              Rounding outer, Matrix<float>& sums) {
  const PieceSum adder{a.factors.size() > 0 || b.factors.size() > 0, outer};
  for (size_t i = 0; i < sums.rows(); ++i) {
    const float of_a =
        a.factors.size() > 0 ? a.factors(first + i, piece) : 1.0f;
    for (size_t j = 0; j < sums.cols(); ++j) {
      const float of_b = b.factors.size() > 0 ? b.factors(j, piece) : 1.0f;
      sums(i, j) = adder.Add(is_first, sums(i, j), part(i, j), of_a * of_b);
    }
  }
}

/// Folds the segment sums of a strip up the aligned tree.
class StripTree {
 public:
  void Push(const Matrix<float>& leaf) {
    Matrix<float> copy;
    copy.CopyFrom(leaf);
    tree_.Push(std::move(copy));
  }
  /// Returns `empty` if there is no segment.
  Matrix<float> Finish(Matrix<float> empty) {
    return tree_.Finish(std::move(empty));
  }

 private:
  static Matrix<float> Add(Matrix<float> left, Matrix<float> right) {
    for (size_t i = 0; i < left.size(); ++i) left.data()[i] += right.data()[i];
    return left;
  }

  AlignedTree<Matrix<float>, Matrix<float> (*)(Matrix<float>, Matrix<float>)>
      tree_{Add};
};

void WriteResult(const GemmProblem& problem, size_t first,
                 const Matrix<float>& sums) {
  for (size_t i = 0; i < sums.rows(); ++i) {
    for (size_t j = 0; j < sums.cols(); ++j) {
      float sum = Rounded(sums(i, j), problem.rounding);
      if (!problem.addend.empty()) {
        sum = Rounded(problem.addend(first + i, j) + sum, problem.rounding);
      }
      problem.c(first + i, j) = sum;
    }
  }
}

}  // namespace

PieceGemm::Side& PieceGemm::SideOf(const Operand& operand, const Pieces& pieces,
                                   FactorExponents exponents) {
  for (Side& side : sides_) {
    if (SameOperand(*side.operand, operand) &&
        SamePieces(*side.pieces, pieces) && side.exponents == exponents) {
      return side;
    }
  }
  if (memory_.size() == sides_.size()) memory_.emplace_back();
  return sides_.emplace_back(
      Side{&operand, &pieces, exponents, &memory_[sides_.size()]});
}

void PieceGemm::List(const GemmProblem& problem) {
  size_t whole = 0;
  Product& product = products_.emplace_back();
  product.problem = &problem;
  product.pieces =
      PiecesOf(problem.a.quantization, problem.right_quantization(),
               problem.accumulation, SegmentEnds(problem, &whole));
  const FactorExponents exponents = problem.accumulation.exponents();
  product.a = SideOf(problem.a, product.pieces, exponents).prepared;
  if (problem.packed_b != nullptr) {
    product.b = problem.packed_b->prepared();
    return;
  }
  Side& b = SideOf(problem.b, product.pieces, exponents);
  b.has_panels =
      b.has_panels || HasFusedPanels(problem.accumulation.accumulator);
  product.b = b.prepared;
}

std::span<const GemmProblem> PieceGemm::Prepare(
    std::span<const GemmProblem> problems, Executor& executor) {
  sides_.clear();
  products_.clear();
  strips_.clear();
  packable_.clear();
  for (const GemmProblem& problem : problems) {
    if (problem.is_packable()) {
      packable_.push_back(problem);
    } else if (!problem.c.empty()) {
      List(problem);
    }
  }
  parts_.clear();
  for (const Side& side : sides_) {
    Resize(*side.operand, *side.pieces, side.exponents, *side.prepared);
    for (const TensorCut& cut : CutsOf(*side.operand, *side.pieces)) {
      parts_.emplace_back(&side, cut);
    }
  }
  executor.ParallelFor(parts_.size(), [this](size_t i) {
    const auto& [side, cut] = parts_[i];
    PrepareTensor(*side->operand, *side->pieces, cut, side->exponents,
                  *side->prepared);
  });
  PackPanels(executor);
  for (const Product& product : products_) {
    const GemmProblem& problem = *product.problem;
    const bool chains = problem.accumulation == Accumulation{} &&
                        product.a->factors.size() == 0 &&
                        product.b->factors.size() == 0;
    if (chains) {
      GemmProblem& prepared = packable_.emplace_back(problem);
      prepared.a = {product.a->values.view()};
      prepared.b = {product.b->values.view()};
      prepared.packed_b = nullptr;
      prepared.segment_ends = product.pieces.segment_ends;
      continue;
    }
    for (size_t row = 0; row < problem.c.rows(); row += kStripRows) {
      strips_.push_back(
          {&product, row, std::min(kStripRows, problem.c.rows() - row)});
    }
  }
  return packable_;
}

void PieceGemm::PackPanels(Executor& executor) {
  panels_.clear();
  for (const Side& side : sides_) {
    if (!side.has_panels) continue;
    ResizeFusedPanels(*side.prepared);
    for (size_t i = 0; i < side.prepared->panel_values.rows(); ++i) {
      panels_.emplace_back(side.prepared, i);
    }
  }
  executor.ParallelFor(panels_.size(), [this](size_t i) {
    const auto& [prepared, panel] = panels_[i];
    PackFusedPanel(panel, *prepared);
  });
}

void PieceGemm::Run(Executor& executor,
                    void (*multiply)(const GemmProblem& problem)) {
  executor.ParallelFor(strips_.size(), [this, multiply](size_t number) {
    Compute(strips_[number], multiply);
  });
}

void PieceGemm::Compute(const Strip& strip,
                        void (*multiply)(const GemmProblem& problem)) const {
  const Product& product = *strip.product;
  const Accumulation& accumulation = product.problem->accumulation;
  const size_t cols = product.problem->c.cols();
  Matrix<float> part(strip.count, cols);
  Matrix<float> sums(strip.count, cols);
  StripTree tree;
  size_t piece = 0;
  product.pieces.ForEach([&](size_t segment, size_t begin, size_t end) {
    if (accumulation.accumulator != nullptr) {
      FusedSums({*product.a, strip.first, *product.b, begin, end,
                 *accumulation.accumulator},
                part);
    } else {
      multiply(
          {.a = {Part(product.a->values, strip.first, strip.count, begin, end)},
           .b = {Part(product.b->values, 0, cols, begin, end)},
           .c = part.view()});
    }
    AddPiece(part, *product.a, strip.first, *product.b, piece++,
             begin == product.pieces.SegmentBegin(segment), accumulation.outer,
             sums);
    if (end == product.pieces.segment_ends[segment]) tree.Push(sums);
  });
  // Without a segment the sums are still zero.
  WriteResult(*product.problem, strip.first, tree.Finish(std::move(sums)));
}

}  // namespace isoloss::kernels
