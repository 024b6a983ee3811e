// Describes the weights of GEMMs as products read them.
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

/// Describes one weight matrix, or `groups` of them stacked along the rows of
/// one parameter. Products read the FP32 master weights, and round and quantise
/// them as they pack them. A step meets each weight once in each orientation,
/// so a packed copy would cost memory and save nothing.
/// Shapes   W [groups * out, in].
struct GemmWeight {
  size_t parameter;  ///< place in a ParameterSet
  std::string site;
  size_t first_group;  ///< in the whole model
  size_t groups;
  const precision::GemmPrecision* fprop;
  const precision::GemmPrecision* dgrad;

  /// Returns null if the weight is not quantised. `role` is kFprop or kDgrad,
  /// here and below.
  const formats::Quantization* QuantizationFor(precision::GemmRole role) const {
    return (role == precision::GemmRole::kFprop ? *fprop : *dgrad)
        .right_operand();
  }
  /// Returns the state that the quantisation of one group needs, or nothing if
  /// it needs none.
  std::optional<kernels::OperandState> StateFor(precision::GemmRole role,
                                                size_t group,
                                                const StepKey& key,
                                                const AmaxHistory& amax) const;
  /// Returns the states of all groups, or an empty vector if the quantisation
  /// needs none.
  std::vector<kernels::OperandState> StatesFor(precision::GemmRole role,
                                               const StepKey& key,
                                               const AmaxHistory& amax) const;
};

/// Holds the GEMM weights of one model.
class GemmWeights {
 public:
  /// The returned reference stays valid.
  const GemmWeight& Add(GemmWeight weight) {
    return weights_.emplace_back(std::move(weight));
  }

  /// Tells `amax` the magnitudes of all weights after `rounding`.
  void NoteAmax(const ParameterSet& master, kernels::Rounding rounding,
                AmaxHistory& amax, Executor& executor) const;

  /// Returns null if no product reads this parameter.
  const GemmWeight* Find(size_t parameter) const;

 private:
  std::deque<GemmWeight> weights_;  // never moved: layers hold references
};

}  // namespace isoloss::model
