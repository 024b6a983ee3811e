// Defines the interface through which the model announces its tensors as it
// computes them.
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

/// Says what a tensor is to the module that it is named after. The names are
/// TransformerEngine's. A GEMM site computes y = x W^T.
enum class TensorKind {
  kWeight,      ///< W, as the GEMM reads it before quantisation
  kActivation,  ///< x
  kOutput,      ///< y, or the forward value of any other module
  kGradient,    ///< dy, the loss's gradient by the output
  kDgrad,       ///< dx, including an addend
  kWgrad,       ///< dW, of the whole batch
  kParameter,   ///< the master weights after the step's update
  kUpdate,      ///< the step's change of the master weights
  kExpertIds,   ///< a router's choice, which OnRouting announces
};
/// Returns "weight", "activation", "output", "gradient", "dgrad", "wgrad",
/// "parameter", "update" or "expert_ids".
std::string_view TensorKindName(TensorKind kind);

/// Says which rows of the whole batch's tensor one process announces. Group g
/// owns rows [begins[g], begins[g + 1]). A group has S segments, which end at
/// segment_ends[g * S] … counted from its first row; without segment_ends, a
/// group is one segment. Without `begins`, rows are those of tokens, all in one
/// group. With `begins`, groups are experts, even if this process has only one.
/// Sequences and units are never split, so segments are whole. Only the first
/// segment_rows[i] rows of segment i belong to the batch, and the rest is
/// padding; without segment_rows, all rows belong to the batch.
struct TensorRows {
  std::span<const size_t> begins = {};
  std::span<const size_t> segment_ends = {};
  std::span<const size_t> segment_rows = {};
  /// Group 0 has this number in the whole model (experts of lower processes
  /// precede it).
  size_t first_group = 0;
  /// A group's first segment has this number in the whole batch (dispatch units
  /// of lower copies of the experts precede it).
  size_t first_segment = 0;
  /// Row 0 of tokens has this number in the whole batch (tokens of lower
  /// processes precede it).
  size_t first_row = 0;
  /// A process does not count if another one holds the same values.
  bool counts = true;
};

/// Describes one tensor at the moment of its announcement. It is valid during
/// the call only.
struct Tensor {
  std::string_view module = {};  ///< torchtitan's name: "layers.0.attention.wq"
  TensorKind kind = TensorKind::kOutput;
  MatrixView<const float> values = {};
  TensorRows rows = {};
  /// GEMMs quantise the tensor along rows (fprop's x and W, dgrad's dy) and
  /// down columns (wgrad's x and dy, dgrad's W). Blocks down columns start anew
  /// at each segment. Null: the tensor is not a quantised operand.
  const formats::Quantization* rowwise = nullptr;
  const formats::Quantization* columnwise = nullptr;
  /// If this is true, the columns are quantised from what `rowwise` made of the
  /// tensor.
  bool columnwise_again = false;
  /// The two quantisations take random bits and the history of magnitudes from
  /// these states, one for each group that the process announces. Empty: the
  /// quantisation needs none.
  std::span<const kernels::OperandState> rowwise_states = {};
  std::span<const kernels::OperandState> columnwise_states = {};

  /// Returns e.g. "layers.0.attention.wq_activation".
  std::string Name() const;
};

/// Receives tensors, in the host's memory, in the order of computation.
/// Listening changes no bit.
class TapSink {
 public:
  virtual ~TapSink() = default;
  virtual void OnTensor(const Tensor& tensor) = 0;
  /// Receives expert ids in slot order (score descending, then id ascending),
  /// [T, K]. `first_token` is the number of the process's first token in the
  /// batch.
  virtual void OnRouting(std::string_view module,
                         MatrixView<const int32_t> expert_ids,
                         size_t first_token) = 0;
};

/// Tells `sink` of a tensor whose values lie in `memory`.
void Announce(Tensor tensor, Memory& memory, TapSink& sink);

}  // namespace isoloss::model
