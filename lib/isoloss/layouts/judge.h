// Judges tensors of one step, in the order of computation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/comparison.h"
#include "isoloss/layouts/difference.h"
#include "isoloss/layouts/mistakes.h"
#include "isoloss/layouts/token_rows.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::layouts {

/// A side is checked by the oracle, each operation by its own inputs.
struct CheckedSide {
  const char* name;  ///< "A" or "B"
  const Recording& recording;
  const operations::ModuleChoices& modules;
  const precision::Recipe& recipe;
  /// These have elements that no order of sums explains.
  std::vector<operations::Finding> wrong;
};

/// Goes from step to step.
struct Carry {
  bool is_first_step = true;
  double parameters = 0.0;  ///< largest difference after the last step
};

/// A difference may grow by this factor from what was recorded before to what
/// an operation reads.
///
/// Source   Between two recorded operations lie a residual connection, a norm,
///          and an activation or attention. Relative differences grow in these
///          by at most sqrt(2) (a sum of unrelated terms), 2 (a norm removes
///          the mean and divides) and 3 (x sigmoid(x) times a gate): 8 in all.
///          Their own roundings, up to 16 with independent errors, are as large
///          as 4 units. Softmax grows differences more if logits are large, so
///          that a factor of 2 is left for it.
inline constexpr double kLargestGrowth = 16.0;

class Judge {
 public:
  Judge(const Batch& a, const Batch& b, const CheckedSide& side_a,
        const CheckedSide& side_b, const Carry& carry,
        LayoutsComparison& result);

  const std::vector<RankCount>& counts() const { return counts_; }
  /// Returns the largest difference that what was computed so far explains.
  double bound() const;

  TensorResult& Add(const OperationKey& key, const std::string& tensor,
                    Status status);
  void Note(const std::string& text);
  /// Adds a tensor that is missing on a side, or whose sides can't be paired;
  /// nothing if no side has it.
  void AddMissing(const OperationKey& key, const std::string& tensor);
  /// Adds what no order of sums explains in one operation by its own inputs.
  void AddWrong(const OperationKey& key, bool backward);
  /// Adds a result that follows from each side's own inputs, unless AddWrong
  /// has added it.
  void AddResult(const OperationKey& key, const std::string& tensor,
                 const Pair& pair, const std::vector<bool>& skipped);
  /// As AddResult, for sums whose terms may cancel: what comes after may not
  /// differ as much.
  void AddSum(const OperationKey& key, const std::string& tensor,
              const Pair& pair);
  /// Adds a tensor that something made which is not recorded, after `before`.
  void AddInput(const OperationKey& key, const std::string& tensor,
                const Pair& pair, const std::vector<bool>& skipped,
                const std::string& before);
  /// Adds a weight or state, which an earlier step left.
  void AddState(const OperationKey& key, const std::string& tensor,
                const Pair& pair);
  /// Adds what the optimizer read. A mistake with a sentence was found already;
  /// `extra` is added to the bound.
  void AddGradient(const OperationKey& key, const Pair& pair, double extra,
                   Mistake mistake);
  bool HasTold(const OperationKey& key, const std::string& tensor) const;

 private:
  void AddFinding(const OperationKey& key, const CheckedSide& side,
                  const Piece& piece, const operations::Finding& finding);
  Mistake MistakeOfProduct(const CheckedSide& side, const Piece& piece,
                           precision::GemmRole role, TensorResult& entry) const;
  Mistake Named(const Pair& pair, double bound, double relative) const;
  TensorResult& AddDifference(const OperationKey& key,
                              const std::string& tensor, const Pair& pair,
                              const Difference& difference);
  void Raise(const Difference& difference);
  void Widen(const Pair& pair);

  const Batch& a_;
  const Batch& b_;
  const CheckedSide* sides_[2];
  const Carry& carry_;
  LayoutsComparison& result_;
  std::vector<RankCount> counts_;
  size_t first_;  ///< result of the step
  // These are the largest differences so far, and the coarsest spacing of
  // numbers.
  double relative_ = 0.0;
  double row_ = 0.0;
  double unit_ = 0.0;
};

/// Returns "layers.0.wq (linear)".
std::string NameOf(const OperationKey& key);

}  // namespace isoloss::layouts
