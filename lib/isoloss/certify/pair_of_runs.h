// Compares two runs, all ranks, with their operations.
#pragma once

#include <optional>

#include "isoloss/base/executor.h"
#include "isoloss/certify/certificate.h"
#include "isoloss/certify/operation_steps.h"

namespace isoloss::certify {

struct PairQuestion {
  size_t other = 1;  ///< the place of the run that is compared with the first
  bool same_beginning = true;
  /// Causes list all state that the first differing step found otherwise.
  bool lists_states = false;
  /// The last state must have been recorded.
  bool checks_end = true;
  std::string recipe = {};
};

/// Compares a run with the first one, and adds to the certificate what was
/// compared, what lacks and what differs. Returns the difference's place in
/// Certificate::differences.
std::optional<size_t> ComparePair(const PairQuestion& question,
                                  Executor& executor, Certificate& certificate);

/// Says what to do next. A difference without causes gets one. A state that a
/// restart lost needs no further search.
void FinishCauses(bool is_at_restart, Difference& found);

/// Adds a phrase that is not there.
void AddOnce(const std::string& text, std::vector<std::string>& list);

/// Returns the recipe by whose name operations are judged.
std::string RecipeOf(const CertifyRequest& request,
                     const Certificate& certificate);

}  // namespace isoloss::certify
