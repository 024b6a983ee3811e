// Which arms a verdict on precision is about, and which say what it is worth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/controls.h"
#include "isoloss/gate/policy.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

/// What the arms besides the baseline are for.
struct ArmRoles {
  std::vector<std::string> candidates = {};
  /// Of the baseline's recipe and exchange, perturbed otherwise
  /// (compare::IsNullOf). If there is no other arm they are the candidates,
  /// beside nothing.
  std::vector<std::string> nulls = {};
  std::string control = {};  ///< must come out worse; "": none is named
};

/// By what the experiment says. If `judged` names arms, these are the
/// candidates, even if they were null arms or the control, and other candidates
/// have no role.
/// Errors   ConfigError if its control is the only candidate; if `judged` names
///          no arm of it, or the baseline.
ArmRoles RolesOf(const train::Experiment& experiment,
                 const std::vector<std::string>& judged = {});

/// Whether that arm is a candidate, a null arm or the control.
bool HasRole(const ArmRoles& roles, const std::string& arm);

/// By what the logs say. `control` names an arm, or none with ""; without a
/// value, gate.control of the baseline's experiment_text does, of which there
/// may be no log.
/// Errors   ConfigError if `control` is the baseline, has no log, or is the
///          only candidate.
ArmRoles RolesOf(const std::vector<compare::Run>& runs,
                 const std::string& baseline_arm,
                 const std::optional<std::string>& control);

/// Judges null arms and control, once for all candidates.
gate::Controls JudgeControls(const std::vector<compare::Run>& runs,
                             const std::string& baseline_arm,
                             const ArmRoles& roles, const gate::Policy& policy);

/// Arms in the order of their first run.
std::vector<std::string> ArmsOf(const std::vector<compare::Run>& runs);

}  // namespace isoloss::campaign
