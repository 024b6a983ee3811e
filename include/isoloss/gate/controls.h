// Arms that are judged beside a candidate and say what its verdict is worth.
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

/// One test of level L5: in percent of the baseline's loss, or of its tokens
/// if the policy's margin is one of tokens.
struct ArmTest {
  std::string name;     ///< "final_window" or "held_out"
  std::string title{};  ///< what people call it: "final loss"
  Outcome outcome = Outcome::kInvalid;
  stats::Summary pairs{};  ///< of the differences of seed pairs
  double margin = 0;
  /// Interval of the mean; empty if the pairs give none.
  std::optional<double> lower{};
  std::optional<double> upper{};
};

/// Returns the tests of level L5; empty if it did not run, or could not
/// measure.
std::vector<ArmTest> TestsOf(const Judgement& judgement);

/// An arm that is no candidate: whatever comes of it, no job fails by it.
struct ControlArm {
  std::string arm;
  std::string recipe{};
  std::string perturbation{};  ///< "" if its weights were not perturbed
  std::vector<ArmTest> tests{};
  std::string not_judged{};  ///< why there are no tests, if so

  /// Whether a test FAILs on the worse side: the experiment saw the difference.
  bool SeenWorse() const;
  /// Whether a test FAILs, on either side.
  bool Outside() const;
};

/// Holds the controls of a verdict on precision.
struct Controls {
  /// Level L5 measured this of the candidate.
  std::vector<ArmTest> candidate{};
  /// Arms of the baseline's recipe and exchange with another perturbation: what
  /// lies between them and the baseline is chance.
  std::vector<ControlArm> nulls{};
  /// An arm that must come out worse; empty if none is named.
  std::optional<ControlArm> control{};
  /// The arm that is named is the candidate itself, so that none is beside it.
  bool is_candidate = false;
};

/// Judges an arm against the baseline at level L5, as a candidate would be,
/// unless level L0 finds runs that can't be. Both sides of the margin are
/// tested, whatever the policy says, at the level of this look (null: the
/// only one).
ControlArm JudgeControl(const compare::Pairing& pairing, Policy policy,
                        const Looks* looks = nullptr);

/// Puts `controls` (null: there are none) into a judgement on precision. What
/// keeps it from PASS is added as INCONCLUSIVE checks of level L5:
///   null_arm  a null arm lies outside the margin, or could not be judged
///   control   the control was not seen to be worse, or could not be judged
void ApplyControls(const Controls* controls, Judgement& judgement);

}  // namespace isoloss::gate
