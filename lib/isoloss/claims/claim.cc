#include "isoloss/claims/claim.h"

#include <fmt/format.h>

#include <algorithm>

namespace isoloss::claims {

double Student::Operations() const {
  // Of each layer and input: two products of the student and two of the
  // teacher, and four backward, of two operations for each weight.
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
  // Weights and gradients of student and teacher, and two moments; what the
  // layers of both keep for each input.
  const double of_layer = 12 * outer * inner + 3 * of_inputs * (outer + inner);
  return sizeof(float) *
         (static_cast<double>(depth) * of_layer + 4 * of_inputs * outer);
}

size_t Claim::CountOf(Role role) const {
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

std::string ClaimedText(const Contrast& contrast) {
  const std::string unit = UnitOf(contrast.measure);
  return fmt::format("{}{:g}{}{}",
                     contrast.relation == Relation::kWithin
                         ? "within +-"
                         : WordOf(kRelations, contrast.relation) + " ",
                     contrast.bound, unit.empty() ? "" : " ", unit);
}

}  // namespace isoloss::claims
