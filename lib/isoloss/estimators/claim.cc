#include "isoloss/estimators/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace isoloss::estimators {

double Student::Operations() const {
  // For each layer and input there are two products of the student, two of the
  // teacher and four backward. Each takes two operations for each weight.
  constexpr double kOfStep = 16;
  constexpr double kOfEvaluation = 8;
  return static_cast<double>(depth) * static_cast<double>(batch) *
         static_cast<double>(width) * static_cast<double>(hidden) *
         (kOfStep * static_cast<double>(steps) +
          kOfEvaluation * static_cast<double>(kStudentEvaluations));
}

double Student::Bytes() const {
  const auto of_inputs = static_cast<double>(batch);
  const auto outer = static_cast<double>(width);
  const auto inner = static_cast<double>(hidden);
  // The memory holds the weights and gradients of student and teacher, two
  // moments, and the values that the layers of both keep for each input.
  const double of_layer = 12 * outer * inner + 3 * of_inputs * (outer + inner);
  return sizeof(float) *
         (static_cast<double>(depth) * of_layer + 4 * of_inputs * outer);
}

double Contrast::Effect() const {
  const double size = published_size.value_or(bound);
  return relation == Relation::kBelow ? bound - size : size - bound;
}

std::set<std::string> ArmsIn(const Contrast& contrast,
                             const std::string& cell) {
  std::set<std::string> arms;
  if (contrast.measure == Measure::kParameterFactor || contrast.cell == cell) {
    arms.insert({contrast.arm, contrast.reference});
  }
  if (contrast.measure == Measure::kInteraction &&
      contrast.other_cell == cell) {
    arms.insert({contrast.other_arm, contrast.other_reference});
  }
  return arms;
}

bool MeasuresTheSame(const Contrast& control, const Contrast& contrast) {
  // Both units are points, but a point of loss is no point of a rate.
  const bool same_unit =
      std::string_view(UnitOf(control.measure)) == UnitOf(contrast.measure) &&
      (control.measure == Measure::kDivergence) ==
          (contrast.measure == Measure::kDivergence);
  const auto reads = [&contrast](const std::string& cell) {
    return !ArmsIn(contrast, cell).empty();
  };
  return same_unit &&
         (reads(control.cell) || (control.measure == Measure::kInteraction &&
                                  reads(control.other_cell)));
}

bool Guards(const Contrast& control, const Contrast& contrast) {
  if (control.role != ContrastRole::kControl ||
      !MeasuresTheSame(control, contrast)) {
    return false;
  }
  return control.relation == Relation::kAbove
             ? control.bound >= contrast.bound
             : control.relation == Relation::kBelow &&
                   control.bound <= -contrast.bound;
}

bool Claim::IsGuarded(const Contrast& contrast) const {
  if (contrast.role != ContrastRole::kClaim ||
      contrast.relation != Relation::kWithin) {
    return true;
  }
  return std::ranges::any_of(contrasts, [&contrast](const Contrast& control) {
    return Guards(control, contrast);
  });
}

size_t Claim::CountOf(ContrastRole role) const {
  return static_cast<size_t>(
      std::ranges::count(contrasts, role, &Contrast::role));
}

double Claim::Error() const {
  return kClaimError /
         (static_cast<double>(Counting()) * static_cast<double>(looks));
}

const char* UnitOf(Measure measure) {
  switch (measure) {
    case Measure::kGap:
      return "%";
    case Measure::kGapChange:
    case Measure::kInteraction:
    case Measure::kDivergence:
      return "points";
    case Measure::kParameterFactor:
      break;
  }
  return "";
}

std::string SizeText(const Contrast& contrast) {
  const std::string unit = UnitOf(contrast.measure);
  return fmt::format("{:g}{}{}", contrast.published_size.value_or(0),
                     unit.empty() ? "" : " ", unit);
}

std::string ClaimedText(const Contrast& contrast) {
  const std::string unit = UnitOf(contrast.measure);
  return fmt::format("{}{:g}{}{}",
                     contrast.relation == Relation::kWithin
                         ? "within +-"
                         : WordOf(kRelations, contrast.relation) + " ",
                     contrast.bound, unit.empty() ? "" : " ", unit);
}

}  // namespace isoloss::estimators
