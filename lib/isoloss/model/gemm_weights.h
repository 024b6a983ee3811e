// The weights of GEMMs as products read them.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/operand.h"
#include "isoloss/model/amax_history.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// One weight matrix, or `groups` of them stacked along the rows of one
/// parameter. Products read the FP32 master weights, and round and quantise
/// them as they pack them: a step meets each weight once in each orientation,
/// so that a packed copy would cost memory and save nothing.
/// Shapes   W [groups * out, in].
struct GemmWeight {
  size_t parameter;  ///< place in a ParameterSet
  std::string site;
  size_t first_group;  ///< in the whole model
  size_t groups;
  const precision::GemmPrecision* fprop;
  const precision::GemmPrecision* dgrad;

  /// Null: not quantised. `role` is kFprop or kDgrad, here and below.
  const formats::Quantization* QuantizationFor(precision::GemmRole role) const {
    return (role == precision::GemmRole::kFprop ? *fprop : *dgrad)
        .right_operand();
  }
  /// What the quantisation of one group draws from; none if it needs nothing.
  std::optional<kernels::OperandState> StateFor(precision::GemmRole role,
                                                size_t group,
                                                const StepKey& key,
                                                const AmaxHistory& amax) const;
  /// Of all groups; empty if they need nothing.
  std::vector<kernels::OperandState> StatesFor(precision::GemmRole role,
                                               const StepKey& key,
                                               const AmaxHistory& amax) const;
};

/// Those of one model.
class GemmWeights {
 public:
  /// The result stays where it is.
  const GemmWeight& Add(GemmWeight weight) {
    return weights_.emplace_back(std::move(weight));
  }

  /// Tells `amax` of all weights as they are after `rounding`.
  void NoteAmax(const ParameterSet& master, kernels::Rounding rounding,
                AmaxHistory& amax, Executor& executor) const;

  /// Null if no product reads this parameter.
  const GemmWeight* Find(size_t parameter) const;

 private:
  std::deque<GemmWeight> weights_;  // never moved: layers hold references
};

}  // namespace isoloss::model
