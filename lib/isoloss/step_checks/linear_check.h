// Verifies the outputs, input gradients and weight gradients of GEMM sites. It
// quantises the announced operands anew by the recipe's descriptions.
#pragma once

#include <string>
#include <vector>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// One linear layer y = x W^T, or one for each expert.
struct LinearSite {
  size_t index = 0;  ///< among the resolved recipe's sites
  std::string name;
  std::string weight;  ///< tensor; "<name>_weight" unless tied
  size_t groups = 1;
  bool of_experts = false;  ///< routed experts, a group each
  size_t moe_layer = 0;     ///< layer of these experts
  oracle::Grid output = oracle::Grid::kBf16;
  /// dx was added to this tensor's values; it is empty if nothing was added.
  std::string dgrad_addend;
  /// The leaves of the weight gradient's sum are 32 tokens, instead of
  /// sequences.
  bool token_leaves = false;
  /// The embedding's gradient is added to its weight gradient.
  bool tied = false;
};

std::vector<LinearSite> LinearSites(const StepInputs& inputs);

/// Compare one site; the functions are independent of each other:
///   output  round(x W^T) with the recipe's fprop operands;
///   dgrad   round(dy W), or round(addend + round(dy W));
///   wgrad   dy^T x, FP32 or as the recipe rounds weight gradients; each
///           segment is a tensor of its own. CheckWgrad excludes tied sites.
/// They also compare the announced descriptions, states and groups with those
/// of the recipe, the step and the routing.
/// Bounds   ScalarProduct::ForEach; the addend's addition is one FP32 rounding
///          more. Accumulators other than FP32 chains are compared by bits.
/// Errors   FormatError if the step did not announce one of its tensors.
void CheckFprop(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);
void CheckDgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);
void CheckWgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink);

/// Returns what a sample sees of dy^T x, row by row, of a site with one group.
/// It is rounded as the recipe says.
std::vector<oracle::Estimate> WeightGradient(const StepInputs& inputs,
                                             const LinearSite& site,
                                             const oracle::Sample& sample);

/// Adds all three checks of all sites.
void AddLinearParts(const StepInputs& inputs, std::vector<CheckPart>& parts);

}  // namespace isoloss::step_checks
