// Are two curves the same, as far as their logs' digits tell?
#pragma once

#include <optional>
#include <string>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// The first common step at which two losses differ by more than the rounding
/// of both logs explains (runlog::Origin::loss_half_unit); failing that, the
/// first at which two gradient norms differ that were written alike; failing
/// that, the first held-out losses. Empty if none does.
///
/// Special  NaN equals NaN, and an infinity itself.
std::optional<Divergence> FirstWrittenDivergence(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

/// Half a unit of both logs' losses together, in percent of the smallest loss,
/// of the pair whose logs have the fewest digits: what lies below can't be
/// seen. 0 of isoloss' own runs.
double WrittenPercent(const Pairing& pairing);

/// The distance of neighbouring values of the coarsest format that a loss of
/// the pairs was computed in (runlog::Told::loss_step), in percent of the
/// smallest loss: single steps do not show what lies below.
double FormatPercent(const Pairing& pairing);

/// Why the curve does not say of single steps what they were, as the log
/// declares; "" if it does.
std::string WhyDeclaredUnlikeSteps(const runlog::RunLog& log);
/// The same, also as its statistics say. That is no proof: values that are
/// equal in every digit stay equal.
std::string WhyNotStepByStep(const runlog::RunLog& log);

}  // namespace isoloss::compare
