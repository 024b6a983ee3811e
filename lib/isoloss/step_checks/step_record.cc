#include "isoloss/step_checks/step_record.h"

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::step_checks {

void StepRecord::OnTensor(const model::Tensor& tensor) {
  const std::string name = tensor.Name();
  const auto [place, is_new] = tensors_.try_emplace(name);
  if (!is_new) {
    // A second announcement would hide the first one from the checks.
    repeated_.push_back(name);
    return;
  }
  RecordedTensor& copy = place->second;
  copy.name = name;
  copy.kind = tensor.kind;
  const auto before = before_.find(name);
  if (before != before_.end()) copy.values = std::move(before->second.values);
  copy.values.ResizeUninitialized(tensor.values.rows(), tensor.values.cols());
  for (size_t row = 0; row < tensor.values.rows(); ++row) {
    std::copy_n(tensor.values.Row(row), tensor.values.cols(),
                copy.values.Row(row));
  }
  const model::TensorRows& rows = tensor.rows;
  copy.begins.assign(rows.begins.begin(), rows.begins.end());
  copy.segment_ends.assign(rows.segment_ends.begin(), rows.segment_ends.end());
  copy.of_experts = !rows.begins.empty();
  copy.quantized_rowwise = tensor.rowwise != nullptr;
  copy.quantized_columnwise = tensor.columnwise != nullptr;
  if (tensor.rowwise != nullptr) copy.rowwise = *tensor.rowwise;
  if (tensor.columnwise != nullptr) copy.columnwise = *tensor.columnwise;
  copy.columnwise_again = tensor.columnwise_again;
  copy.rowwise_states.assign(tensor.rowwise_states.begin(),
                             tensor.rowwise_states.end());
  copy.columnwise_states.assign(tensor.columnwise_states.begin(),
                                tensor.columnwise_states.end());
  order_.push_back(&copy);
}

void StepRecord::OnRouting(std::string_view module,
                           MatrixView<const int32_t> expert_ids,
                           size_t /*first_token*/) {
  Matrix<int32_t>& copy = routings_[std::string(module)];
  copy.ResizeUninitialized(expert_ids.rows(), expert_ids.cols());
  for (size_t row = 0; row < expert_ids.rows(); ++row) {
    std::copy_n(expert_ids.Row(row), expert_ids.cols(), copy.Row(row));
  }
}

const RecordedTensor& StepRecord::At(const std::string& name) const {
  const RecordedTensor* found = Find(name);
  if (found == nullptr) {
    ThrowError(ErrorKind::kFormat,
               "StepRecord: the step announced {} tensors, but not `{}`, which "
               "a check needs. Announce it to the tap (model/tap.h).",
               tensors_.size(), name);
  }
  return *found;
}

const RecordedTensor* StepRecord::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

RecordedTensor& StepRecord::MutableAt(const std::string& name) {
  return const_cast<RecordedTensor&>(At(name));
}

MatrixView<const int32_t> StepRecord::ExpertIds(
    const std::string& router) const {
  const auto found = routings_.find(router);
  if (found == routings_.end()) {
    ThrowError(ErrorKind::kFormat,
               "StepRecord: the step announced {} routings, but none of `{}`. "
               "Announce it to the tap (model/tap.h).",
               routings_.size(), router);
  }
  return found->second.view();
}

void StepRecord::Clear() {
  before_ = std::exchange(tensors_, {});
  routings_.clear();
  order_.clear();
  repeated_.clear();
}

}  // namespace isoloss::step_checks
