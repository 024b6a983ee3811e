// Everything that one training step announced, kept.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/model/tap.h"

namespace isoloss::oracle {

/// A copy of a model::Tensor.
struct RecordedTensor {
  std::string name;
  model::TensorKind kind = model::TensorKind::kOutput;
  Matrix<float> values;
  std::vector<size_t> begins;  ///< of groups of rows; empty: one group
  std::vector<size_t> segment_ends;
  bool of_experts = false;
  bool quantized_rowwise = false;
  bool quantized_columnwise = false;
  formats::Quantization rowwise;
  formats::Quantization columnwise;
  bool columnwise_again = false;
  /// Of each group; empty: not needed.
  std::vector<kernels::OperandState> rowwise_states;
  std::vector<kernels::OperandState> columnwise_states;
};

/// Keeps all tensors and routings of a step. One process only.
class StepRecord : public model::TapSink {
 public:
  void OnTensor(const model::Tensor& tensor) override;
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override;

  /// "layers.0.attention.wq_activation".
  /// Errors   FormatError if the step did not announce it.
  const RecordedTensor& At(const std::string& name) const;
  const RecordedTensor* Find(const std::string& name) const;
  /// To plant an error.
  RecordedTensor& MutableAt(const std::string& name);
  /// Of the router "layers.1.moe.router", [T, K].
  MatrixView<const int32_t> ExpertIds(const std::string& router) const;
  /// In the order of computation.
  const std::vector<const RecordedTensor*>& tensors() const { return order_; }
  /// Names that were announced more than once; only the first is kept.
  const std::vector<std::string>& repeated() const { return repeated_; }
  void Clear();

 private:
  std::map<std::string, RecordedTensor> tensors_;
  std::map<std::string, Matrix<int32_t>> routings_;
  std::vector<const RecordedTensor*> order_;
  std::vector<std::string> repeated_;
};

}  // namespace isoloss::oracle
