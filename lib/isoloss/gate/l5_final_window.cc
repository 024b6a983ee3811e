#include <algorithm>
#include <cmath>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/foreign_curves.h"
#include "isoloss/gate/good_runs.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/precision_measures.h"
#include "isoloss/gate/trajectory.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/gate/window_tests.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;

LevelFindings JudgeFinalWindow(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  const compare::Pairing& pairing = *evidence.pairing;
  if (auto check = SmoothedCurve(pairing, policy)) {
    found.checks.push_back(std::move(*check));
    // Smoothing of both arms neither hides nor causes a gap that lasts.
    Check course = JudgeTrajectory(evidence, policy, policy.Alpha());
    if (course.outcome != Outcome::kPass && !IsOneArmSmoothed(pairing)) {
      found.checks.push_back(std::move(course));
    }
    return found;
  }
  found.final_window =
      compare::CompareFinalWindow(pairing, policy.window_share);
  const FinalWindow& window = *found.final_window;
  const bool precision = policy.question == compare::Question::kPrecision;
  const WindowTests tests(evidence, window, policy);
  auto against_good_runs =
      AgainstGoodRuns(evidence, window, policy, tests.options().alpha);
  const bool judged_by_good_runs = against_good_runs.has_value();
  found.checks.push_back(against_good_runs ? std::move(*against_good_runs)
                                           : tests.OfWindow());
  if (!judged_by_good_runs) {
    if (auto check = ApartAtFirstStep(pairing, policy)) {
      found.checks.push_back(std::move(*check));
    } else if (auto other = OtherBatches(pairing)) {
      found.checks.push_back(std::move(*other));
    }
  }
  found.checks.push_back(
      JudgeTrajectory(evidence, policy, tests.options().alpha));
  if (window.held_out_step.has_value()) {
    found.checks.push_back(tests.OfHeldOut());
    Check& held_out = found.checks.back();
    // An ensemble says nothing about the spread of held-out losses. So one
    // pair within the margin is no reason to withhold the verdict.
    const double value = held_out.value.value_or(HUGE_VAL);
    const double distance = policy.one_sided ? value : std::fabs(value);
    held_out.gates = !(tests.borrows() && distance < policy.Margin());
  }
  const bool shown = Severest(found.checks) == Outcome::kPass;
  if (!judged_by_good_runs && tests.HasSpread()) {
    Check last = tests.OfLastSteps();
    // Few seeds of a regression leave it open.
    if (precision || last.outcome == Outcome::kFail) {
      found.checks.push_back(std::move(last));
    }
    if (precision && shown) found.checks.push_back(tests.OfRareHarm());
  }
  if (precision) {
    found.precision = MeasurePrecision(pairing, found, tests.slope(),
                                       tests.options(), tests.resolution());
  }
  found.measures = MeasureWindow(pairing, window);
  return found;
}

}  // namespace

extern constinit const Level kLevel_l5_final_window = {
    .id = LevelId::l5_final_window,
    .name = "L5",
    .title = "end of training",
    .question =
        "is the mean paired loss difference at the end of training within the "
        "margin?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kBoth,
    .run = &JudgeFinalWindow};

}  // namespace isoloss::gate
