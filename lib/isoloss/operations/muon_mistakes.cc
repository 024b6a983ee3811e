// Lists mistakes that trainers make in Muon.
#include <utility>

#include "isoloss/operations/muon.h"

namespace isoloss::operations {
namespace {

using Scale = MuonRule::Scale;

template <Scale kScale>
bool ScaledBy(MuonRule& rule) {
  if (rule.scale == kScale) return false;
  rule.scale = kScale;
  return true;
}

template <size_t kParts, bool kCutsColumns>
bool Parts(MuonRule& rule) {
  rule.iteration.parts = kParts;
  rule.iteration.cuts_columns = kCutsColumns;
  return true;
}

bool TakeSteps(MuonRule& rule, const NewtonSchulzStep& step) {
  std::vector<NewtonSchulzStep> steps(rule.iteration.steps.size(), step);
  if (steps == rule.iteration.steps) return false;
  rule.iteration.steps = std::move(steps);
  return true;
}

constexpr const char* kPerShard =
    "the update was orthogonalised part by part: each shard for itself";

constexpr MuonMistake kMistakes[] = {
    {"decay_missing", "the parameter did not decay",
     [](MuonRule& rule) {
       return std::exchange(rule.weight_decay, 0.0) != 0.0;
     }},
    {"decay_without_lr", "the decay was not multiplied by the learning rate",
     [](MuonRule& rule) { return rule.decay_without_lr = true; }},
    {"decay_twice", "the parameter decayed twice",
     [](MuonRule& rule) {
       rule.weight_decay *= 2;
       return true;
     }},
    {"decay_scaled",
     "the decay was multiplied by the scale of the update as well",
     [](MuonRule& rule) { return rule.decay_scaled = true; }},
    {"scale_missing", "the update was not scaled by the matrix' shape",
     ScaledBy<Scale::kNone>},
    {"scale_original",
     "the update was scaled by sqrt(max(1, rows / columns)), as Jordan does",
     ScaledBy<Scale::kOriginal>},
    {"scale_match_rms",
     "the update was scaled by 0.2 sqrt(max(rows, columns)), as Moonshot does",
     ScaledBy<Scale::kMatchRms>},
    {"scale_unclamped", "the update was scaled by sqrt(rows / columns)",
     ScaledBy<Scale::kUnclamped>},
    {"scale_spectral", "the update was scaled by sqrt(max(rows, columns))",
     ScaledBy<Scale::kSpectral>},
    {"scale_inverted", "rows and columns were swapped in the update's scale",
     [](MuonRule& rule) { return rule.inverts_scale = true; }},
    {"update_added", "the update was added, not subtracted",
     [](MuonRule& rule) {
       rule.factor = -rule.factor;
       return true;
     }},
    {"nesterov_missing", "the update was the momentum, without Nesterov's step",
     [](MuonRule& rule) { return std::exchange(rule.nesterov, false); }},
    {"nesterov_anyway", "the update had Nesterov's step, though it was off",
     [](MuonRule& rule) { return !std::exchange(rule.nesterov, true); }},
    {"momentum_before", "the update was by the momentum from before the step",
     [](MuonRule& rule) {
       rule.input = MuonRule::Input::kBefore;
       // Interpolated with it, the gradient gives the momentum after the step.
       return !(rule.nesterov && rule.interpolates);
     }},
    {"momentum_unused", "the update was by the gradient alone",
     [](MuonRule& rule) {
       rule.input = MuonRule::Input::kGradient;
       return true;
     }},
    {"nesterov_lerp",
     "in Nesterov's step the gradient counted by 1 - momentum, not by 1",
     [](MuonRule& rule) {
       return rule.nesterov && !std::exchange(rule.interpolates, true);
     }},
    {"nesterov_sum",
     "in Nesterov's step the gradient counted by 1, not by 1 - momentum",
     [](MuonRule& rule) {
       return rule.nesterov && std::exchange(rule.interpolates, false);
     }},
    {"ns_step_fewer", "Newton-Schulz had one step less",
     [](MuonRule& rule) {
       if (rule.iteration.steps.empty()) return false;
       rule.iteration.steps.pop_back();
       return true;
     }},
    {"ns_step_more", "Newton-Schulz had one step more",
     [](MuonRule& rule) {
       if (rule.iteration.steps.empty()) return false;
       rule.iteration.steps.push_back(rule.iteration.steps.back());
       return true;
     }},
    {"ns_coefficients_classic",
     "Newton-Schulz had the coefficients 1.5, -0.5 and 0",
     [](MuonRule& rule) {
       return TakeSteps(rule, {1.5, -0.5, 0.0});
     }},
    {"ns_coefficients_quintic",
     "Newton-Schulz had the coefficients 2, -1.5 and 0.5",
     [](MuonRule& rule) {
       return TakeSteps(rule, {2.0, -1.5, 0.5});
     }},
    {"ns_coefficients_taylor",
     "Newton-Schulz had the coefficients 15/8, -10/8 and 3/8",
     [](MuonRule& rule) {
       return TakeSteps(rule, {1.875, -1.25, 0.375});
     }},
    {"ns_coefficients_jordan",
     "Newton-Schulz had the coefficients 3.4445, -4.775 and 2.0315",
     [](MuonRule& rule) {
       return TakeSteps(rule, {3.4445, -4.775, 2.0315});
     }},
    {"ns_skipped", "the update was normalised, but not orthogonalised",
     [](MuonRule& rule) {
       rule.iteration.steps.clear();
       return true;
     }},
    {"ns_per_shard", kPerShard, Parts<2, false>},
    {"ns_per_shard", kPerShard, Parts<4, false>},
    {"ns_per_shard", kPerShard, Parts<8, false>},
    {"ns_per_shard", kPerShard, Parts<3, false>},
    {"ns_per_shard", kPerShard, Parts<2, true>},
    {"ns_per_shard", kPerShard, Parts<4, true>},
    {"ns_per_shard", kPerShard, Parts<8, true>},
    {"decay_in_gradient", "weight decay was added to the gradient",
     [](MuonRule& rule) {
       return !std::exchange(rule.decay_in_gradient, true) &&
              rule.weight_decay != 0.0;
     }},
};

}  // namespace

std::span<const MuonMistake> MuonMistakes() { return kMistakes; }

}  // namespace isoloss::operations
