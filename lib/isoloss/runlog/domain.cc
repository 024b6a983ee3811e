#include "isoloss/runlog/domain.h"

#include <fmt/format.h>

#include <cmath>

#include "isoloss/runlog/relations.h"

namespace isoloss::runlog {
namespace {

/// Writes a bound as people do.
std::string Bound(double value) {
  if (std::fabs(value) == kMostFp32) {
    return value < 0 ? "-FLT_MAX" : "FLT_MAX";
  }
  int exponent = 0;
  const double significand = std::frexp(value, &exponent);
  if (std::fabs(significand) == 0.5 && exponent > 53) {
    return fmt::format("{}2^{}", value < 0 ? "-" : "", exponent - 1);
  }
  return fmt::format("{}", value);
}

}  // namespace

bool Domain::Contains(double value) const {
  if (is_text()) return true;
  if (std::isnan(value)) return nan_;
  if (std::isinf(value)) return value > 0 ? infinity_ : minus_infinity_;
  if (nonzero_ && value == 0) return false;
  if (kind_ == Kind::kWhole && value != std::floor(value)) return false;
  return least_ <= value && value <= most_;
}

bool Domain::Contains(int64_t value) const {
  if (is_text()) return true;
  if (nonzero_ && value == 0) return false;
  // `value` is compared as a whole number: 2^53 + 1 is no FP64 number.
  constexpr double kBeyond = 0x1p63;
  const bool above =
      least_ < -kBeyond ||
      (least_ < kBeyond && value >= static_cast<int64_t>(std::ceil(least_)));
  const bool below =
      most_ >= kBeyond ||
      (most_ >= -kBeyond && value <= static_cast<int64_t>(std::floor(most_)));
  return above && below;
}

std::string Domain::Range() const {
  if (is_text()) return "";
  const bool whole = kind_ == Kind::kWhole;
  const bool below = least_ > (whole ? -HUGE_VAL : -DBL_MAX);
  const bool above = most_ < (whole ? HUGE_VAL : DBL_MAX);
  std::string text = whole ? "whole" : "finite";
  if (below && above && least_ == most_) {
    text = Bound(least_);
  } else if (below && least_ == 0 && nonzero_) {
    text += above ? fmt::format(", above 0, at most {}", Bound(most_))
                  : ", above 0";
  } else if (below && above) {
    text += fmt::format(", {} to {}", Bound(least_), Bound(most_));
  } else if (below) {
    text += fmt::format(", at least {}", Bound(least_));
  } else if (nonzero_) {
    text += ", not 0";
  }
  if (ascending_) text += ", ascending";
  if (nan_) text += ", or NaN";
  if (infinity_) text += minus_infinity_ ? ", or +-infinite" : ", or infinite";
  return text;
}

std::string Domain::Describe() const {
  std::string text = Range();
  for (const RelationRule& rule : RelationRules()) {
    if (Has(rule.relation)) text += fmt::format("; {}", rule.rule);
  }
  return text;
}

}  // namespace isoloss::runlog
