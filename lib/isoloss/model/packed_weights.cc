#include "isoloss/model/packed_weights.h"

#include <algorithm>
#include <utility>

#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;

void PackGroup(MatrixView<const float> values, PackedWeight& weight,
               size_t group) {
  weight.forward[group].Pack(
      {values, Contraction::kColumns, weight.fprop->right_operand()});
  weight.backward[group].Pack(
      {values, Contraction::kRows, weight.dgrad->right_operand()});
}

}  // namespace

const PackedWeight& PackedWeights::Add(size_t parameter, size_t groups,
                                       const precision::GemmPrecision& fprop,
                                       const precision::GemmPrecision& dgrad) {
  PackedWeight weight = {parameter, &fprop, &dgrad, {}, {}};
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
                         ParameterSet& copies, ThreadTeam& team) {
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
          PackGroup(rows, weight, group);
        }
        at += out * values.cols();
      }
    }
  });
}

}  // namespace isoloss::model
