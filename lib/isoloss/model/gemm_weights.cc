#include "isoloss/model/gemm_weights.h"

#include <algorithm>

#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {

std::optional<kernels::OperandState> GemmWeight::StateFor(
    precision::GemmRole role, size_t group, const StepKey& key,
    const AmaxHistory& amax) const {
  const formats::Quantization* quantization = QuantizationFor(role);
  if (quantization == nullptr || !quantization->needs_state()) {
    return std::nullopt;
  }
  kernels::OperandState state =
      StateOf(key, site, role, OperandSide::kRight, first_group + group,
              /*first_tensor=*/0);
  state.common.history = amax.Of(site, SiteTensor::kWeight, first_group + group,
                                 quantization->history);
  return state;
}

std::vector<kernels::OperandState> GemmWeight::StatesFor(
    precision::GemmRole role, const StepKey& key,
    const AmaxHistory& amax) const {
  std::vector<kernels::OperandState> states;
  for (size_t group = 0; group < groups; ++group) {
    const auto state = StateFor(role, group, key, amax);
    if (state) states.push_back(*state);
  }
  return states;
}

const GemmWeight* GemmWeights::Find(size_t parameter) const {
  const auto found = std::find_if(
      weights_.begin(), weights_.end(),
      [&](const GemmWeight& weight) { return weight.parameter == parameter; });
  return found == weights_.end() ? nullptr : &*found;
}

void GemmWeights::NoteAmax(const ParameterSet& master,
                           kernels::Rounding rounding, AmaxHistory& amax,
                           Executor& executor) const {
  if (amax.empty()) return;
  for (const GemmWeight& weight : weights_) {
    if (!amax.Notes(weight.site, SiteTensor::kWeight)) continue;
    const Matrix<float>& values = master.parameters()[weight.parameter].values;
    std::vector<size_t> begins;
    for (size_t group = 0; group <= weight.groups; ++group) {
      begins.push_back(values.rows() / weight.groups * group);
    }
    std::vector<float> amaxes(weight.groups);
    kernels::FiniteAmaxes(values.view(), begins, rounding, amaxes, executor);
    for (size_t group = 0; group < weight.groups; ++group) {
      amax.Note(weight.site, SiteTensor::kWeight, weight.first_group + group,
                amaxes[group]);
    }
  }
}

}  // namespace isoloss::model
