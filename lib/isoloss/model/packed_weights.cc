#include "isoloss/model/packed_weights.h"

#include <algorithm>
#include <utility>

#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;

/// One of the two orientations, as the right side of a product. `states`: of
/// all groups, or none.
void PackFor(const precision::GemmPrecision& precision, Contraction contraction,
             MatrixView<const float> values,
             std::span<const kernels::OperandState> states, size_t group,
             kernels::PackedOperand& packed) {
  packed.Pack({.values = values,
               .contraction = contraction,
               .quantization = precision.right_operand(),
               .state = states.empty() ? nullptr : &states[group]},
              precision.left_operand(), precision.accumulation);
}

void PackGroup(MatrixView<const float> values, const StepKey& key,
               AmaxHistory& amax, PackedWeight& weight, size_t group) {
  amax.Note(weight.site, SiteTensor::kWeight, weight.first_group + group,
            values);
  const auto forward = weight.StatesOf(precision::GemmRole::kFprop, key, amax);
  const auto backward = weight.StatesOf(precision::GemmRole::kDgrad, key, amax);
  PackFor(*weight.fprop, Contraction::kColumns, values, forward, group,
          weight.forward[group]);
  PackFor(*weight.dgrad, Contraction::kRows, values, backward, group,
          weight.backward[group]);
}

}  // namespace

std::vector<kernels::OperandState> PackedWeight::StatesOf(
    precision::GemmRole role, const StepKey& key,
    const AmaxHistory& amax) const {
  const formats::Quantization* quantization =
      (role == precision::GemmRole::kFprop ? *fprop : *dgrad).right_operand();
  std::vector<kernels::OperandState> states;
  if (quantization == nullptr || !quantization->needs_state()) return states;
  for (size_t group = 0; group < forward.size(); ++group) {
    states.push_back(StateOf(key, site, role, OperandSide::kRight,
                             first_group + group, /*first_tensor=*/0));
    states.back().common.history = amax.Of(
        site, SiteTensor::kWeight, first_group + group, quantization->history);
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
                         AmaxHistory& amax, ThreadTeam& team) {
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
          PackGroup(rows, key, amax, weight, group);
        }
        at += out * values.cols();
      }
    }
  });
}

}  // namespace isoloss::model
