// The oracle of the GEMM sites: outputs, input gradients and weight gradients
// from the operands that the step announced, quantised anew by the recipe's
// descriptions.
#pragma once

#include <string>
#include <vector>

#include "isoloss/oracle/step_inputs.h"

namespace isoloss::oracle {

/// One linear layer y = x W^T, or one for each expert.
struct LinearSite {
  size_t index = 0;  ///< of the resolved recipe's sites
  std::string name;
  std::string weight;  ///< its tensor: "<name>_weight" unless tied
  size_t groups = 1;
  bool of_experts = false;  ///< routed ones, a group each
  size_t moe_layer = 0;     ///< theirs
  Grid output = Grid::kBf16;
  /// dx was added to this tensor's values; empty: to nothing.
  std::string dgrad_addend;
  /// Leaves of the weight gradient's sum: 32 tokens instead of sequences.
  bool token_leaves = false;
  /// The embedding's gradient is added to its weight gradient.
  bool tied = false;
};

std::vector<LinearSite> LinearSites(const StepInputs& inputs);

/// Checks of one site, independent of each other:
///   output  round(x W^T) with the recipe's fprop operands
///   dgrad   round(dy W), or round(addend + round(dy W))
///   wgrad   dy^T x, FP32 or as the recipe rounds weight gradients; each
///           segment is a tensor of its own. Not if tied.
/// and that descriptions, states and groups were announced as the recipe, the
/// step and the routing have them.
/// Bounds   ScalarProduct::ForEach; the addend's addition is one FP32 rounding
///          more. Accumulators other than FP32 chains are compared by bits.
/// Errors   FormatError if the step did not announce one of its tensors.
void CheckFprop(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);
void CheckDgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);
void CheckWgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);

/// dy^T x of a site with one group, rounded as the recipe says, [out * in]
/// row-major.
std::vector<Estimate> WeightGradient(const StepInputs& inputs,
                                     const LinearSite& site);

/// All of them for all sites.
void AddLinearParts(const StepInputs& inputs, std::vector<CheckPart>& parts);

}  // namespace isoloss::oracle
