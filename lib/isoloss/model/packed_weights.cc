#include "isoloss/model/packed_weights.h"

#include <algorithm>
#include <utility>

#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;

const precision::GemmPrecision& PrecisionOf(const PackedWeight& weight,
                                            precision::GemmRole role) {
  return role == precision::GemmRole::kFprop ? *weight.fprop : *weight.dgrad;
}

kernels::OperandState StateOf(const StepKey& key, const PackedWeight& weight,
                              precision::GemmRole role, size_t group) {
  return StateOf(key, weight.site, role, OperandSide::kRight,
                 weight.first_group + group, /*first_tensor=*/0);
}

/// One of the two orientations, as the right side of a product.
void PackFor(precision::GemmRole role, MatrixView<const float> values,
             const StepKey& key, const PackedWeight& weight, size_t group,
             kernels::PackedOperand& packed) {
  const precision::GemmPrecision& precision = PrecisionOf(weight, role);
  const formats::Quantization* quantization = precision.right_operand();
  kernels::OperandState state;
  if (quantization != nullptr && quantization->needs_state()) {
    state = StateOf(key, weight, role, group);
  }
  packed.Pack({.values = values,
               .contraction = role == precision::GemmRole::kFprop
                                  ? Contraction::kColumns
                                  : Contraction::kRows,
               .quantization = quantization,
               .state = &state},
              precision.left_operand(), precision.accumulation);
}

void PackGroup(MatrixView<const float> values, const StepKey& key,
               PackedWeight& weight, size_t group) {
  PackFor(precision::GemmRole::kFprop, values, key, weight, group,
          weight.forward[group]);
  PackFor(precision::GemmRole::kDgrad, values, key, weight, group,
          weight.backward[group]);
}

}  // namespace

const formats::Quantization* PackedWeight::QuantizationOf(
    precision::GemmRole role) const {
  return PrecisionOf(*this, role).right_operand();
}

std::vector<kernels::OperandState> PackedWeight::StatesOf(
    const StepKey& key, precision::GemmRole role) const {
  std::vector<kernels::OperandState> states;
  const formats::Quantization* quantization = QuantizationOf(role);
  if (quantization == nullptr || !quantization->needs_state()) return states;
  for (size_t group = 0; group < forward.size(); ++group) {
    states.push_back(StateOf(key, *this, role, group));
  }
  return states;
}

const PackedWeight& PackedWeights::Add(size_t parameter, std::string site,
                                       size_t first_group, size_t groups,
                                       const precision::GemmPrecision& fprop,
                                       const precision::GemmPrecision& dgrad) {
  PackedWeight weight = {
      parameter, std::move(site), first_group, &fprop, &dgrad, {}, {}};
  weight.forward.resize(groups);
  weight.backward.resize(groups);
  return weights_.emplace_back(std::move(weight));
}

const PackedWeight* PackedWeights::Find(size_t parameter) const {
  const auto found = std::find_if(weights_.begin(), weights_.end(),
                                  [&](const PackedWeight& weight) {
                                    return weight.parameter == parameter;
                                  });
  return found == weights_.end() ? nullptr : &*found;
}

void PackedWeights::Load(const ParameterSet& master, kernels::Rounding rounding,
                         const StepKey& key, ParameterSet& copies,
                         ThreadTeam& team) {
  size_t total = 0;
  for (const PackedWeight& weight : weights_) {
    total += master.parameters()[weight.parameter].values.size();
  }
  // A thread packs the groups that begin in its share of all values.
  const auto threads = static_cast<size_t>(team.size());
  team.ParallelFor(threads, [&](size_t thread) {
    const size_t begin = total * thread / threads;
    const size_t end = total * (thread + 1) / threads;
    size_t at = 0;
    for (PackedWeight& weight : weights_) {
      const Matrix<float>& values =
          master.parameters()[weight.parameter].values;
      Matrix<float>& copy = copies.parameters()[weight.parameter].values;
      const size_t out = values.rows() / weight.forward.size();
      for (size_t group = 0; group < weight.forward.size(); ++group) {
        if (at >= begin && at < end) {
          const MatrixView<float> rows = copy.view().Rows(group * out, out);
          kernels::Cast(values.view().Rows(group * out, out), rounding, rows,
                        serial_);
          PackGroup(rows, key, weight, group);
        }
        at += out * values.cols();
      }
    }
  });
}

}  // namespace isoloss::model
