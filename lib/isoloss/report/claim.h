// What runs say of a published claim, for people and for programs.
#pragma once

#include <string>

#include "isoloss/claims/judge.h"

namespace isoloss::report {

/// Claim, source, each contrast with its interval, verdict and what keeps it
/// from being another one.
std::string RenderClaim(const claims::ClaimResult& result);

/// One JSON object; numbers that are not finite are null.
std::string RenderClaimJson(const claims::ClaimResult& result);

/// A forest plot: each contrast's estimate and interval on an axis of its own,
/// with its bound and both sides coloured, under the verdict.
std::string RenderClaimSvg(const claims::ClaimResult& result);

/// "+0.12 [-0.01, +0.25] %".
std::string ContrastText(const claims::ContrastResult& result);

/// "claimed"; of a control "expected".
std::string ExpectedWord(const claims::Contrast& contrast);

/// What the intervals hold together with: a sentence.
std::string ConfidenceText(const claims::ClaimResult& result);

/// "on the claim's side" or "on the control's side", "on the other side",
/// "undecided"; "; it does not count" behind what is only shown.
std::string SideText(const claims::ContrastResult& result);

}  // namespace isoloss::report
