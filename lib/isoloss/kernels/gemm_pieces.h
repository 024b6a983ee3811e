// Computes products that packed kernels do not take as they are: their operands
// are quantised as wholes, or their sums are scaled, promoted or cut off.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"

namespace isoloss::kernels {

/// Has the bits of GemmScalar. Operands that products share are prepared once.
/// Keeps its memory from batch to batch.
class PieceGemm {
 public:
  /// Takes over the products of a batch, which were checked before, and
  /// prepares their operands. Returns the products that packed kernels take now
  /// or took before, which the caller computes. Both batches must live until
  /// Run.
  std::span<const GemmProblem> Prepare(std::span<const GemmProblem> problems,
                                       Executor& executor);
  /// Computes the products that Prepare did not return. `multiply` computes a
  /// packable product on the calling thread.
  void Run(Executor& executor, void (*multiply)(const GemmProblem& problem));

 private:
  struct Side {
    const Operand* operand;
    const Pieces* pieces;
    FactorExponents exponents;
    PreparedOperand* prepared;
    bool has_panels = false;  // as the right operand of an accumulator
  };
  struct Product {
    const GemmProblem* problem;
    Pieces pieces;
    const PreparedOperand* a;
    const PreparedOperand* b;
  };
  /// A strip consists of some rows of a product.
  struct Strip {
    const Product* product;
    size_t first;
    size_t count;
  };

  void List(const GemmProblem& problem);
  void Compute(const Strip& strip,
               void (*multiply)(const GemmProblem& problem)) const;
  Side& SideOf(const Operand& operand, const Pieces& pieces,
               FactorExponents exponents);
  void PackPanels(Executor& executor);

  std::deque<PreparedOperand> memory_;
  std::vector<Side> sides_;
  std::deque<Product> products_;
  std::vector<std::pair<const Side*, TensorCut>> parts_;     // of all sides
  std::vector<std::pair<PreparedOperand*, size_t>> panels_;  // of all sides
  std::vector<Strip> strips_;
  std::vector<GemmProblem> packable_;
};

}  // namespace isoloss::kernels
