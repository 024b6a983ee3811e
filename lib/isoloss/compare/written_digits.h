// Tests whether two curves are the same, as far as their digits tell.
#pragma once

#include <optional>
#include <string>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// Returns the first common step at which two losses differ by more than the
/// rounding of both logs explains (runlog::Origin::loss_half_unit). If there is
/// none, gradient norms with equal digits in both logs are compared, and then
/// held-out losses. Empty if none differs.
///
/// Special  NaN equals NaN, and an infinity equals itself.
std::optional<Divergence> FirstWrittenDivergence(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

/// Returns half a unit of both logs' losses, added, in percent of the smallest
/// loss. The pair whose logs have the fewest digits counts. Smaller differences
/// can't be seen. 0 for isoloss' own runs.
double WrittenPercent(const Pairing& pairing);

/// Returns the distance of neighbouring values of the coarsest format in which
/// a loss of the pairs was computed (runlog::Told::loss_step), in percent of
/// the smallest loss. Single steps do not show smaller differences.
double FormatPercent(const Pairing& pairing);

/// Returns why the curve does not have the losses of single steps, as the log
/// declares; "" if it does.
std::string WhyDeclaredUnlikeSteps(const runlog::RunLog& log);
/// Returns such a reason also if the curve's statistics give one. That is no
/// proof: values that are equal in every digit stay equal.
std::string WhyNotStepByStep(const runlog::RunLog& log);

}  // namespace isoloss::compare
