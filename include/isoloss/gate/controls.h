// Judges control arms beside a candidate: they show how far to trust its
// verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/outcome.h"
#include "isoloss/gate/policy.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {

struct Judgement;
struct Looks;

/// Holds one test of level L5, in percent of the baseline's loss. It is in
/// percent of the baseline's tokens if the policy's margin is one of tokens.
struct ArmTest {
  std::string name;     ///< "final_window" or "held_out"
  std::string title{};  ///< what people call it: "final loss"
  Outcome outcome = Outcome::kInvalid;
  stats::Summary pairs{};  ///< of the differences of seed pairs
  double margin = 0;
  /// The mean's interval has these ends; empty if the pairs give none.
  std::optional<double> lower{};
  std::optional<double> upper{};
};

/// Returns the tests of level L5. The list is empty if L5 did not run or could
/// not measure.
std::vector<ArmTest> TestsOf(const Judgement& judgement);

/// A control arm is no candidate: a job never fails because of it.
struct ControlArm {
  std::string arm;
  std::string recipe{};
  std::string perturbation{};  ///< "" if its weights were not perturbed
  std::vector<ArmTest> tests{};
  std::string not_judged{};  ///< why there are no tests, if so
  /// The candidate's differences from a null arm, in the place of the
  /// baseline. Empty for a control, and if they could not be judged.
  std::vector<ArmTest> candidate_less{};

  /// Whether a test FAILs on the worse side, so that the experiment saw the
  /// difference.
  bool SeenWorse() const;
  /// Whether a test FAILs, on either side.
  bool Outside() const;
  /// Returns the mean difference of the final window; -infinity if it was not
  /// judged.
  double Harm() const;
};

/// Holds the controls of a verdict on precision.
struct Controls {
  /// L5 has tested the candidate with these results.
  std::vector<ArmTest> candidate{};
  /// Null arms have the baseline's recipe and exchange with another
  /// perturbation. Chance alone makes them differ from the baseline.
  std::vector<ControlArm> nulls{};
  /// Controls are known to be worse than the baseline, each by another amount.
  /// At least one of them must be seen to be worse. Empty if none is named.
  std::vector<ControlArm> controls{};
  /// A named control is the candidate itself, so there is no separate arm.
  bool is_candidate = false;

  /// Returns the control that says most: of those that were seen to be worse
  /// the mildest, else the harshest. Null if there is none.
  const ControlArm* Telling() const;
};

/// Judges an arm against the baseline at level L5, as a candidate would be.
/// Runs that level L0 rejects are not judged. Both sides of the margin are
/// tested, even if the policy is one-sided. The level is that of this look;
/// null stands for a first and only look.
ControlArm JudgeControl(const compare::Pairing& pairing, Policy policy,
                        const Looks* looks = nullptr);

/// Puts `controls` (null: there are none) into a judgement on precision. A
/// control that keeps the judgement from PASS adds an INCONCLUSIVE check of
/// level L5:
///   null_arm  a null arm lies outside the margin, or could not be judged
///   control   no control was seen to be worse
void ApplyControls(const Controls* controls, Judgement& judgement);

}  // namespace isoloss::gate
