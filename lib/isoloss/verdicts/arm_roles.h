// Assigns roles to arms. A verdict on precision is about the candidates. Arms
// with the remaining roles say how much the verdict is worth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/controls.h"
#include "isoloss/gate/policy.h"
#include "isoloss/train/experiment.h"

namespace isoloss::verdicts {

/// Each arm besides the baseline has one of these roles, or none.
struct ArmRoles {
  std::vector<std::string> candidates = {};
  /// Null arms have the baseline's recipe and exchange, but a different
  /// perturbation (compare::IsNullOf). If all arms besides the baseline are
  /// null arms, they are the candidates, and nothing is judged beside them.
  std::vector<std::string> nulls = {};
  std::vector<std::string> controls = {};  ///< one must come out worse
};

/// Assigns the roles that the experiment names. If `judged` names arms, these
/// are the candidates. A candidate that is a null arm or the control keeps
/// this role, too, when the remaining candidates are judged. All further arms
/// have no role.
/// Errors   ConfigError if its controls are the only candidates; if `judged`
///          names no arm of it, or the baseline.
ArmRoles RolesOf(const train::Experiment& experiment,
                 const std::vector<std::string>& judged = {});

/// Returns whether `arm` is a candidate, a null arm or a control.
bool HasRole(const ArmRoles& roles, const std::string& arm);

/// Assigns the roles by the logs. `control` names an arm, or none with "".
/// Without a value, the controls are gate.control of the baseline's
/// experiment_text, and may have no log.
/// Errors   ConfigError if `control` is the baseline, has no log, or is the
///          only candidate.
ArmRoles RolesOf(const std::vector<compare::Run>& runs,
                 const std::string& baseline_arm,
                 const std::optional<std::string>& control);

/// Judges null arms and controls, once for all candidates, at the level of this
/// look. A null `look` means that it is the only one. Of several controls the
/// first that came out worse counts, or else the last.
gate::Controls JudgeControls(const std::vector<compare::Run>& runs,
                             const std::string& baseline_arm,
                             const ArmRoles& roles, const gate::Policy& policy,
                             const gate::Looks* looks);

/// Returns the arms in the order of their first run.
std::vector<std::string> ArmsOf(const std::vector<compare::Run>& runs);

}  // namespace isoloss::verdicts
