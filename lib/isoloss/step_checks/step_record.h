// Keeps everything that one training step announced.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/model/tap.h"

namespace isoloss::step_checks {

/// This is a copy of a model::Tensor.
struct RecordedTensor {
  std::string name;
  model::TensorKind kind = model::TensorKind::kOutput;
  Matrix<float> values;
  std::vector<size_t> begins;  ///< starts of groups of rows; empty: one
  std::vector<size_t> segment_ends;
  bool of_experts = false;
  bool quantized_rowwise = false;
  bool quantized_columnwise = false;
  formats::Quantization rowwise;
  formats::Quantization columnwise;
  bool columnwise_again = false;
  /// Each group has one; empty if not needed.
  std::vector<kernels::OperandState> rowwise_states;
  std::vector<kernels::OperandState> columnwise_states;
};

/// Keeps all tensors and routings of a step of one process.
class StepRecord : public model::TapSink {
 public:
  void OnTensor(const model::Tensor& tensor) override;
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override;

  /// Returns a tensor such as "layers.0.attention.wq_activation".
  /// Errors   FormatError if the step did not announce it.
  const RecordedTensor& At(const std::string& name) const;
  const RecordedTensor* Find(const std::string& name) const;
  /// It lets tests plant an error.
  RecordedTensor& MutableAt(const std::string& name);
  /// Returns the ids of a router such as "layers.1.moe.router", [T, K].
  MatrixView<const int32_t> ExpertIds(const std::string& router) const;
  /// The tensors are in the order of computation.
  const std::vector<const RecordedTensor*>& tensors() const { return order_; }
  /// These names were announced more than once; only the first tensor is kept.
  const std::vector<std::string>& repeated() const { return repeated_; }
  /// Forgets the step. The next one takes its memory.
  void Clear();

 private:
  std::map<std::string, RecordedTensor> tensors_;
  std::map<std::string, RecordedTensor> before_;  // whose memory serves again
  std::map<std::string, Matrix<int32_t>> routings_;
  std::vector<const RecordedTensor*> order_;
  std::vector<std::string> repeated_;
};

}  // namespace isoloss::step_checks
