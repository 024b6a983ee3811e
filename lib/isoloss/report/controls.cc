#include "isoloss/report/controls.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

namespace isoloss::report {
namespace {

using document::Document;
using gate::ArmTest;
using gate::ControlArm;
using gate::Judgement;

std::string TestLine(const ArmTest& test) {
  const std::string interval =
      test.lower && test.upper
          ? fmt::format("[{:+.3f} %, {:+.3f} %]", *test.lower, *test.upper)
          : "no interval";
  return fmt::format("{:<12}  {:>+8.3f} %  sd {:>6.3f} %  {:<22}  {}",
                     test.name, test.pairs.mean, test.pairs.sd, interval,
                     gate::OutcomeName(test.outcome));
}

std::string NullTitle(const ControlArm& arm) {
  return fmt::format(
      "null arm {} ({} again, {}){}", arm.arm, arm.recipe,
      arm.perturbation.empty() ? "not perturbed" : arm.perturbation,
      arm.tests.empty() ? ": not judged" : "");
}

Document TestDocument(const ArmTest& test) {
  Document document;
  document.Put("name", test.name);
  document.Put("outcome", gate::OutcomeName(test.outcome));
  document.Put("pairs", test.pairs.count);
  document.Put("mean", test.pairs.mean);
  document.Put("sd", test.pairs.sd);
  document.Put("lower", test.lower);
  document.Put("upper", test.upper);
  document.Say(TestLine(test), 4);
  return document;
}

/// Returns the arm's tests, below its title.
Document ArmDocument(const ControlArm& arm, std::string title) {
  Document document;
  document.Put("arm", arm.arm);
  document.Put("recipe", arm.recipe);
  document.Put("perturbation", arm.perturbation);
  document.Put("seen_worse", arm.SeenWorse());
  document.Put("not_judged", arm.not_judged);
  document.Say(std::move(title), 2);
  document.PutEach("tests", arm.tests, TestDocument);
  return document;
}

Document NullDocument(const ControlArm& arm) {
  return ArmDocument(arm, NullTitle(arm));
}

void AddCandidate(const Judgement& judgement, Document& document) {
  if (judgement.policy.InTokens()) {
    document.Say("extra tokens in % of the baseline's:", 2);
  }
  document.Say("candidate " + judgement.candidate.arm, 2);
  for (const ArmTest& test : judgement.controls->candidate) {
    document.Say(TestLine(test), 4);
  }
}

}  // namespace

std::string ControlFinding(const ControlArm& control) {
  if (control.tests.empty()) return "was not judged";
  if (control.SeenWorse()) return "came out worse, as it must";
  if (control.Outside()) return "came out better, but must come out worse";
  return control.tests.front().outcome == gate::Outcome::kPass
             ? "lies within the margin, so it shows nothing"
             : "was not shown to lie outside the margin";
}

std::string ControlStatement(const Judgement& judgement) {
  if (!judgement.controls) return "control: no part of this verdict";
  const std::optional<ControlArm>& control = judgement.controls->control;
  if (!control && judgement.controls->is_candidate) {
    return fmt::format("control: none, since {} itself is judged",
                       judgement.candidate.arm);
  }
  if (!control) return "control: none named";
  return fmt::format("control: {} {}", control->arm, ControlFinding(*control));
}

Document ControlsDocument(const Judgement& judgement) {
  Document document;
  document.Put("statement", ControlStatement(judgement));
  if (!judgement.controls) {
    document.Put("control", {});
    document.PutEach("null_arms", std::vector<ControlArm>(), NullDocument);
    return document;
  }
  const gate::Controls& controls = *judgement.controls;
  if (!controls.nulls.empty() || controls.control) {
    AddCandidate(judgement, document);
  }
  document.PutEach("null_arms", controls.nulls, NullDocument);
  if (controls.control) {
    document.PutObject(
        "control",
        ArmDocument(*controls.control, "control " + controls.control->arm));
  } else {
    document.Put("control", {});
  }
  document.Say(fmt::format("{}; null arms: {}", ControlStatement(judgement),
                           controls.nulls.empty()
                               ? "none"
                               : fmt::to_string(controls.nulls.size())),
               2);
  return document;
}

}  // namespace isoloss::report
