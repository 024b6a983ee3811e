#include "isoloss/gate/controls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/judge.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {
namespace {

std::string Reason(const Check& check) {
  return fmt::format(
      "{} {}: {}{}", check.level, check.title, check.quantity,
      check.pairs || check.evidence.empty() ? "" : ": " + check.evidence);
}

/// Says why the ladder did not come as far as level L5.
std::string WhyNotJudged(const Judgement& judgement) {
  for (const Check& check : judgement.checks) {
    if (check.outcome == judgement.outcome) return Reason(check);
  }
  return "no check was made";
}

/// Says why the arm's runs are not sound, so that their difference shows
/// nothing; "" if they are. `configuration` may ask about the loss of step 1,
/// which coarse formats move, and `declared_change` about a null arm, which
/// changes nothing.
std::string WhyUnsound(const Judgement& judgement) {
  for (const Check& check : judgement.checks) {
    const bool of_runs = check.level == LevelName(LevelId::l0_integrity) &&
                         check.name != "configuration" &&
                         check.name != "declared_change";
    if (of_runs && check.outcome != Outcome::kPass) return Reason(check);
  }
  return "";
}

Check Inconclusive(std::string name, std::string quantity) {
  Check check{.name = std::move(name),
              .outcome = Outcome::kInconclusive,
              .quantity = std::move(quantity)};
  Entitle(LevelName(LevelId::l5_final_window), check);
  return check;
}

/// Makes a check that shows the result of an ArmTest.
Check Showing(std::string name, std::string quantity, const ArmTest& test,
              std::string relation, const std::string& meaning) {
  Check check = Inconclusive(std::move(name), std::move(quantity));
  check.value = test.pairs.mean;
  check.relation = std::move(relation);
  check.limit = test.margin;
  check.lower = test.lower;
  check.upper = test.upper;
  check.unit = "%";
  check.evidence = meaning;
  if (test.lower && test.upper) {
    check.evidence += fmt::format("; interval [{:+.3f} %, {:+.3f} %]",
                                  *test.lower, *test.upper);
  }
  check.evidence +=
      fmt::format(", sd {:.3f} %, {} seed pair{}", test.pairs.sd,
                  test.pairs.count, test.pairs.count == 1 ? "" : "s");
  return check;
}

Check NotJudged(const char* name, const ControlArm& arm) {
  Check check = Inconclusive(
      name, fmt::format("{} was not judged: {}", arm.arm, arm.not_judged));
  check.next = "give sound runs of this arm, with the seeds of the others";
  return check;
}

void CheckNull(const ControlArm& arm, std::vector<Check>& checks) {
  if (arm.tests.empty()) {
    checks.push_back(NotJudged("null_arm", arm));
    return;
  }
  for (const ArmTest& test : arm.tests) {
    if (test.outcome != Outcome::kFail) continue;
    checks.push_back(Showing(
        "null_arm", fmt::format("{} of null arm {}", test.title, arm.arm), test,
        "outside +-", "identical recipes differ by more than the margin here"));
    checks.back().next =
        "train more seeds, or for more steps, until chance alone no longer "
        "drives two runs of one recipe so far apart";
    return;
  }
}

/// `arm` is what Controls::Telling returns.
void CheckControl(const ControlArm& arm, std::vector<Check>& checks) {
  if (arm.tests.empty()) {
    checks.push_back(NotJudged("control", arm));
    return;
  }
  if (arm.SeenWorse()) return;
  const ArmTest& test = arm.tests.front();
  const bool better = test.outcome == Outcome::kFail;
  const bool within = test.outcome == Outcome::kPass;
  checks.push_back(Showing(
      "control", fmt::format("{} of control {}", test.title, arm.arm), test,
      better   ? "on the better side of +-"
      : within ? "within +-"
               : "not shown to be outside +",
      better   ? "what must come out worse came out better"
      : within ? "its difference is smaller than the margin, so it shows "
                 "nothing of larger ones"
               : "this experiment could not have seen a difference of that "
                 "size"));
  checks.back().next =
      within ? "name a control that is further off than the margin"
             : "train more seeds, or for more steps, until the control fails, "
               "or name one that is further off";
}

}  // namespace

std::vector<ArmTest> TestsOf(const Judgement& judgement) {
  std::vector<ArmTest> tests;
  for (const Check& check : judgement.checks) {
    if (!check.pairs) continue;
    tests.push_back({.name = check.name,
                     .title = check.title,
                     .outcome = check.outcome,
                     .pairs = *check.pairs,
                     .margin = check.limit.value(),
                     .lower = check.lower,
                     .upper = check.upper});
  }
  return tests;
}

bool ControlArm::SeenWorse() const {
  // A course that leads apart and back says nothing of the end, which is
  // judged.
  return std::ranges::any_of(tests, [](const ArmTest& test) {
    const bool of_end = test.name == "final_window" || test.name == "held_out";
    return of_end && test.outcome == Outcome::kFail && test.pairs.mean > 0;
  });
}

bool ControlArm::Outside() const {
  return std::ranges::any_of(tests, [](const ArmTest& test) {
    return test.outcome == Outcome::kFail;
  });
}

double ControlArm::Harm() const {
  return tests.empty() ? -std::numeric_limits<double>::infinity()
                       : tests.front().pairs.mean;
}

const ControlArm* Controls::Telling() const {
  const ControlArm* telling = nullptr;
  for (const ControlArm& arm : controls) {
    const auto says_more = [&] {
      if (arm.SeenWorse() != telling->SeenWorse()) return arm.SeenWorse();
      return arm.SeenWorse() ? arm.Harm() < telling->Harm()
                             : arm.Harm() > telling->Harm();
    };
    if (telling == nullptr || says_more()) telling = &arm;
  }
  return telling;
}

ControlArm JudgeControl(const compare::Pairing& pairing, Policy policy,
                        const Looks* looks) {
  policy.levels.clear();
  policy.one_sided = false;
  const Judgement judgement =
      Judge(Evidence{.pairing = &pairing, .looks = looks}, policy);
  ControlArm control{.arm = pairing.candidate_arm,
                     .recipe = judgement.candidate.recipe,
                     .tests = TestsOf(judgement)};
  if (!pairing.candidate.empty()) {
    control.perturbation = pairing.candidate[0]->log.provenance.perturbation;
  }
  control.not_judged =
      control.tests.empty() ? WhyNotJudged(judgement) : WhyUnsound(judgement);
  if (!control.not_judged.empty()) control.tests.clear();
  return control;
}

void ApplyControls(const Controls* controls, Judgement& judgement) {
  if (judgement.policy.question != compare::Question::kPrecision) return;
  judgement.controls = controls == nullptr ? Controls() : *controls;
  judgement.controls->candidate = TestsOf(judgement);
  if (judgement.outcome >= Outcome::kFail) return;
  for (const ControlArm& arm : judgement.controls->nulls) {
    CheckNull(arm, judgement.checks);
  }
  if (const ControlArm* control = judgement.controls->Telling()) {
    CheckControl(*control, judgement.checks);
  }
  judgement.outcome = Severest(judgement.checks);
}

}  // namespace isoloss::gate
