// The weights of GEMMs as products read them.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/model/amax_history.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// One weight matrix, or `groups` of them stacked along the rows of one
/// parameter, packed and quantised in both orientations: once after each change
/// of the weights, for all tokens and threads of a step.
/// Shapes   W [groups * out, in].
struct PackedWeight {
  const formats::Quantization* QuantizationOf(precision::GemmRole role) const;
  /// What it draws from, for each group; empty if it needs no state.
  std::vector<kernels::OperandState> StatesOf(const StepKey& key,
                                              precision::GemmRole role) const;

  size_t parameter;  ///< place in a ParameterSet
  std::string site;
  size_t first_group;  ///< in the whole model
  const precision::GemmPrecision* fprop;
  const precision::GemmPrecision* dgrad;
  std::vector<kernels::PackedOperand> forward;   ///< [groups], rows of W
  std::vector<kernels::PackedOperand> backward;  ///< [groups], columns of W

  /// What the groups' quantisation for fprop or dgrad draws from; empty if it
  /// needs nothing.
  std::vector<kernels::OperandState> StatesOf(precision::GemmRole role,
                                              const StepKey& key,
                                              const AmaxHistory& amax) const;
};

/// Those of one model.
class PackedWeights {
 public:
  /// The result stays where it is; it is empty until Pack.
  const PackedWeight& Add(size_t parameter, std::string site,
                          size_t first_group, size_t groups,
                          const precision::GemmPrecision& fprop,
                          const precision::GemmPrecision& dgrad);

  /// Rounds the values of what was added from `master` into `copies`, then
  /// packs them while they are near. `key`: of the step that they are for, in
  /// which `amax` notes them.
  void Load(const ParameterSet& master, kernels::Rounding rounding,
            const StepKey& key, ParameterSet& copies, AmaxHistory& amax,
            ThreadTeam& team);

  /// Null if Load does not fill this parameter of the copies.
  const PackedWeight* Find(size_t parameter) const;

 private:
  std::deque<PackedWeight> weights_;  // never moved: layers hold references
  ThreadTeam serial_{1};
};

}  // namespace isoloss::model
