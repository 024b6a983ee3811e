// Computes linear layers as GEMM sites: fprop, dgrad and wgrad have the formats
// that the recipe gives each of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/model/amax_history.h"
#include "isoloss/model/gemm_queue.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/model/tap.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

struct LayerContext;
struct GemmWeight;

/// Says which rows of an activation meet which of a layer's weight matrices.
struct RowGroups {
  /// Group g owns rows [begins[g], begins[g + 1]), [groups + 1].
  std::span<const size_t> begins;
  /// The weight gradient's sum over rows has leaves, whose ends count from the
  /// group's first row, [groups * leaves]. If this is empty, each group is one
  /// leaf.
  std::span<const size_t> leaf_ends;
  /// Each leaf (or group, if it is one leaf) has this many rows before its
  /// padding; empty: no leaf has padding.
  std::span<const size_t> leaf_rows = {};
  /// If this is true, the exchange brought the rows to this process's experts;
  /// otherwise they are rows of its tokens.
  bool of_experts = false;
};

/// y = x W^T for one weight matrix, or for `groups` of them stacked along the
/// rows of one parameter (routed experts). Methods queue products on the
/// context's GemmQueue; results exist after its Run. Operands are announced to
/// the tap as they are queued, results by the Run.
/// Shapes   x, dx [rows, in]; y, dy [rows, out]; W [groups * out, in].
class Linear {
 public:
  /// Errors   ConfigError if the model's graph has no such site.
  Linear(LayerContext& context, std::string site);

  const std::string& site() const { return site_; }
  /// Returns the width of y.
  size_t out() const { return out_; }

  void QueueForward(MatrixView<const float> x, const RowGroups& groups,
                    kernels::Rounding rounding, MatrixView<float> y) const;
  /// dx = dy W, rounded like activations, and dW = dy^T x, which stays FP32. An
  /// addend is added to dx with one more rounding; the addend may be dx itself.
  void QueueBackward(MatrixView<const float> x, MatrixView<const float> dy,
                     const RowGroups& groups, MatrixView<float> dx,
                     MatrixView<const float> addend = {}) const;
  /// These two are the parts of QueueBackward.
  void QueueInputGradient(MatrixView<const float> dy, const RowGroups& groups,
                          MatrixView<float> dx,
                          MatrixView<const float> addend = {}) const;
  void QueueWeightGradient(MatrixView<const float> x,
                           MatrixView<const float> dy,
                           const RowGroups& groups) const;

 private:
  /// Announces an operand at once, with its formats in the products that read
  /// it. It is the left side of product `first`, and the `side` of wgrad.
  void AnnounceOperand(TensorKind kind, MatrixView<const float> values,
                       const RowGroups& groups, precision::GemmRole first,
                       OperandSide side) const;
  void AnnounceInputGradient(MatrixView<const float> dy,
                             const RowGroups& groups,
                             MatrixView<const float> dx) const;
  /// Announces a result once it exists.
  void AnnounceResult(TensorKind kind, MatrixView<const float> values,
                      const RowGroups& groups) const;
  void QueueInputGradient(size_t group, MatrixView<const float> dy,
                          const RowGroups& groups, MatrixView<float> dx,
                          MatrixView<const float> addend) const;
  void QueueWeightGradient(size_t group, MatrixView<const float> x,
                           MatrixView<const float> dy,
                           const RowGroups& groups) const;

  /// Returns the rows of group `group` as an operand that contracts their
  /// width.
  kernels::Operand Rows(precision::GemmRole role, MatrixView<const float> rows,
                        const RowGroups& groups, size_t group) const;
  /// Returns the same rows as an operand of wgrad, which contracts them.
  kernels::Operand Columns(OperandSide side, MatrixView<const float> rows,
                           const RowGroups& groups, size_t group) const;
  void NoteAmax(SiteTensor tensor, MatrixView<const float> rows,
                const RowGroups& groups) const;
  const precision::GemmPrecision& PrecisionOf(precision::GemmRole role) const;
  /// Returns the states of all groups, or an empty vector if the quantisation
  /// needs none.
  std::vector<kernels::OperandState> StatesOf(
      const formats::Quantization* quantization, precision::GemmRole role,
      OperandSide side, const RowGroups& groups) const;
  /// Returns null if the quantisation needs no state.
  const kernels::OperandState* StateOf(
      const formats::Quantization* quantization, precision::GemmRole role,
      OperandSide side, const RowGroups& groups, size_t group) const;

  /// Returns the weight of group `group` as a right operand. fprop contracts
  /// its columns, dgrad its rows.
  kernels::Operand WeightOperand(precision::GemmRole role, size_t group) const;

  LayerContext& context_;
  std::string site_;
  size_t parameter_;  // place in a ParameterSet
  size_t groups_;
  size_t out_;
  const GemmWeight* weight_;
  const precision::GemmPrecision* fprop_;
  const precision::GemmPrecision* dgrad_;
  const precision::GemmPrecision* wgrad_;
};

}  // namespace isoloss::model
