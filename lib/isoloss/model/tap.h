// Where the model announces its tensors as it computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/operand.h"

namespace isoloss::model {

/// What a tensor is to the module that it is named after; TransformerEngine's
/// names. Of a GEMM site: y = x W^T.
enum class TensorKind {
  kWeight,      ///< W, as the GEMM reads it before quantisation
  kActivation,  ///< x
  kOutput,      ///< y, or the forward value of any other module
  kGradient,    ///< dy: of the loss with respect to the output
  kDgrad,       ///< dx; includes what was in it, if it was added to
  kWgrad,       ///< dW, of the whole batch
  kParameter,   ///< the master weights after the step's update
  kUpdate,      ///< what the step added to them
  kExpertIds,   ///< a router's choice, which OnRouting announces
};
/// "weight", "activation", "output", "gradient", "dgrad", "wgrad",
/// "parameter", "update", "expert_ids".
std::string_view TensorKindName(TensorKind kind);

/// Which rows of the whole batch's tensor one process announces. Group g owns
/// rows [begins[g], begins[g + 1]); its segments end at segment_ends[g * S] …
/// counted from its first row, S segments a group; none: one segment a group.
/// Empty begins: rows of tokens, all in one group. Groups are experts
/// otherwise, also if this process has only one. Sequences and units are never
/// split, so segments are whole. Of segment i only the first segment_rows[i]
/// rows are the batch's, the rest fills it up; none: all are.
struct TensorRows {
  std::span<const size_t> begins = {};
  std::span<const size_t> segment_ends = {};
  std::span<const size_t> segment_rows = {};
  /// Of begins[0], in the whole model (experts of lower processes).
  size_t first_group = 0;
  /// Of a group's first segment, in the whole batch (dispatch units of lower
  /// copies of the experts).
  size_t first_segment = 0;
  /// Of row 0 of tokens, in the whole batch (tokens of lower processes).
  size_t first_row = 0;
  /// Does this process count? Not if another one holds the same values.
  bool counts = true;
};

/// One tensor at its moment. Valid during the call only.
struct Tensor {
  std::string_view module = {};  ///< torchtitan's name: "layers.0.attention.wq"
  TensorKind kind = TensorKind::kOutput;
  MatrixView<const float> values = {};
  TensorRows rows = {};
  /// How the GEMMs quantise it: along rows (fprop's x and W, dgrad's dy) and
  /// down columns (wgrad's x and dy, dgrad's W), where blocks start anew at
  /// each segment. Null: not a quantised operand.
  const formats::Quantization* rowwise = nullptr;
  const formats::Quantization* columnwise = nullptr;
  /// What down columns is quantised is what `rowwise` made of the tensor.
  bool columnwise_again = false;
  /// What the two draw random bits from or look back to, of each group that the
  /// process announces; empty: neither does.
  std::span<const kernels::OperandState> rowwise_states = {};
  std::span<const kernels::OperandState> columnwise_states = {};

  /// "layers.0.attention.wq_activation".
  std::string Name() const;
};

/// Receives tensors, in the host's memory, in the order of computation.
/// Listening changes no bit.
class TapSink {
 public:
  virtual ~TapSink() = default;
  virtual void OnTensor(const Tensor& tensor) = 0;
  /// Expert ids in slot order (score descending, then id ascending), [T, K];
  /// `first_token`: of the process, in the batch.
  virtual void OnRouting(std::string_view module,
                         MatrixView<const int32_t> expert_ids,
                         size_t first_token) = 0;
};

/// Tells `sink` of a tensor whose values lie in `memory`.
void Announce(Tensor tensor, Memory& memory, TapSink& sink);

}  // namespace isoloss::model
