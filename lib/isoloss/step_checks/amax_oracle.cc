#include "isoloss/step_checks/amax_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "isoloss/step_checks/linear_check.h"
#include "isoloss/step_checks/operand_states.h"

namespace isoloss::step_checks {
namespace {

using precision::GemmRole;

/// One product of a site quantises this tensor as its operand on that side.
struct Reading {
  GemmRole role;
  Side side;
  char tensor;  ///< 'x', 'w' or 'g'
};

constexpr Reading kReadings[] = {
    {GemmRole::kFprop, Side::kLeft, 'x'}, {GemmRole::kFprop, Side::kRight, 'w'},
    {GemmRole::kDgrad, Side::kLeft, 'g'}, {GemmRole::kDgrad, Side::kRight, 'w'},
    {GemmRole::kWgrad, Side::kLeft, 'g'}, {GemmRole::kWgrad, Side::kRight, 'x'},
};

float LargestFinite(MatrixView<const float> values) {
  float largest = 0.0f;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      const float size = std::fabs(values(i, j));
      if (std::isfinite(size) && size > largest) largest = size;
    }
  }
  return largest;
}

/// Returns the rows of each group of one tensor of a site.
std::vector<MatrixView<const float>> GroupsOf(const StepInputs& inputs,
                                              const LinearSite& site,
                                              char tensor) {
  const auto values = inputs.Values(tensor == 'w'   ? site.weight
                                    : tensor == 'x' ? site.name + "_activation"
                                                    : site.name + "_gradient");
  std::vector<MatrixView<const float>> groups;
  for (size_t g = 0; g < site.groups; ++g) {
    size_t begin = values.rows() / site.groups * g;
    size_t end = values.rows() / site.groups * (g + 1);
    if (tensor != 'w' && site.of_experts) {
      const auto& begins = inputs.expert_rows[site.moe_layer].begins;
      begin = begins[g];
      end = begins[g + 1];
    }
    groups.push_back(values.Rows(begin, end - begin));
  }
  return groups;
}

}  // namespace

/// Adds a magnitude. `lengths` says how many steps each recipe looks back.
void AmaxOracle::Append(const OperandHistories::key_type& place, float largest,
                        const std::vector<size_t>& lengths) {
  std::deque<float>& steps = steps_[place];
  steps.push_back(largest);
  if (steps.size() > *std::ranges::max_element(lengths)) steps.pop_front();
  for (size_t phase = 0; phase < lengths.size(); ++phase) {
    const size_t kept = std::min(lengths[phase], steps.size());
    if (kept == 0) continue;
    histories_[phase][place] = *std::max_element(
        steps.end() - static_cast<std::ptrdiff_t>(kept), steps.end());
  }
}

void AmaxOracle::EndStep(const StepInputs& inputs) {
  for (const LinearSite& site : LinearSites(inputs)) {
    for (const auto& [role, side, tensor] : kReadings) {
      std::vector<size_t> lengths;
      for (const precision::ResolvedRecipe* recipe : recipes_) {
        const auto& product = recipe->For(site.index, role);
        const auto& operand =
            side == Side::kLeft ? product.left : product.right;
        lengths.push_back(operand ? static_cast<size_t>(operand->history) : 0);
      }
      if (*std::ranges::max_element(lengths) == 0) continue;
      const auto groups = GroupsOf(inputs, site, tensor);
      for (size_t g = 0; g < groups.size(); ++g) {
        Append({OperandPlace{site.name, role, side}.Name(), g},
               LargestFinite(groups[g]), lengths);
      }
    }
  }
}

}  // namespace isoloss::step_checks
