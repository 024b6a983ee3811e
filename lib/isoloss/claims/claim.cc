#include "isoloss/claims/claim.h"

#include <fmt/format.h>

#include <algorithm>

namespace isoloss::claims {

size_t Claim::Deciding() const {
  return static_cast<size_t>(
      std::ranges::count(contrasts, true, &Contrast::decides));
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
