// isoloss study claim: something that was published, put to the test at a size
// that trains here.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/claims/judge.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {

inline constexpr const char* kClaimFile = "claim.toml";

struct ClaimRequest {
  std::filesystem::path folder = {};  ///< of claim.toml and its experiments
  /// So many, from the experiments' first on, in place of their own.
  std::optional<size_t> seeds = std::nullopt;
  std::filesystem::path out = {};  ///< "": runs/claim-<name of the folder>
};

struct ClaimPlan {
  ClaimRequest request;
  claims::Claim claim;
  Study study;  ///< of the claim's cells, in their order
  std::vector<std::string> notes;
};

/// Reads the claim and its experiments. Arms that no contrast names are left
/// out. The cells' seconds are not known yet.
/// Errors   as ReadTextFile, claims::ParseClaim and ExperimentSource::Load;
///          ConfigError if a contrast names an arm that its experiment lacks,
///          or a share of the steps at which no loss is measured.
ClaimPlan ReadClaimPlan(const ClaimRequest& request);

/// The same, and measures what the cells cost.
ClaimPlan PlanClaim(const ClaimRequest& request);

/// Cells, and what they take.
std::string DescribePlan(const ClaimPlan& plan);

/// What the finished runs of the asked seeds say. Errors   as
/// campaign::ReadRuns and claims::JudgeClaim.
claims::ClaimResult JudgeClaim(const ClaimPlan& plan);

/// Writes claim.json and claim.svg into the folder. Errors   IoError.
void WriteClaim(const ClaimPlan& plan, const claims::ClaimResult& result);

}  // namespace isoloss::studies
