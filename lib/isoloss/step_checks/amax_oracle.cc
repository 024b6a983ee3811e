#include "isoloss/step_checks/amax_oracle.h"

#include <algorithm>
#include <cmath>
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

void AmaxOracle::EndStep(const StepInputs& inputs) {
  for (const LinearSite& site : LinearSites(inputs)) {
    for (const auto& [role, side, tensor] : kReadings) {
      const auto& product = inputs.recipe.For(site.index, role);
      const auto& operand = side == Side::kLeft ? product.left : product.right;
      if (!operand || operand->history == 0) continue;
      const auto groups = GroupsOf(inputs, site, tensor);
      for (size_t g = 0; g < groups.size(); ++g) {
        const OperandHistories::key_type place = {
            OperandPlace{site.name, role, side}.Name(), g};
        std::deque<float>& steps = steps_[place];
        steps.push_back(LargestFinite(groups[g]));
        if (steps.size() > static_cast<size_t>(operand->history)) {
          steps.pop_front();
        }
        histories_[place] = *std::ranges::max_element(steps);
      }
    }
  }
}

}  // namespace isoloss::step_checks
