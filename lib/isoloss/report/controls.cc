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
  Document document = ArmDocument(arm, NullTitle(arm));
  if (!arm.candidate_less.empty()) document.Say("candidate minus null arm", 4);
  document.PutEach("candidate_minus_null", arm.candidate_less, TestDocument);
  return document;
}

Document GradedDocument(const ControlArm& arm) {
  Document document;
  document.Put("arm", arm.arm);
  document.Put("recipe", arm.recipe);
  document.Put("mean",
               arm.tests.empty() ? std::nullopt : std::optional(arm.Harm()));
  document.Put("seen_worse", arm.SeenWorse());
  return document;
}

/// Says how large the margin is beside the harm of a control that was seen:
/// how much of what is known to be bad would pass. "" if none was seen.
std::string ShareOfHarm(const ControlArm& control, double margin) {
  if (!control.SeenWorse() || !(control.Harm() > 0)) return "";
  return fmt::format(
      " ({:+.3f} %, {:.2g} margins; the margin is {:.0f} % of it)",
      control.Harm(), control.Harm() / margin, 100 * margin / control.Harm());
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
  const ControlArm* control = judgement.controls->Telling();
  if (control == nullptr && judgement.controls->is_candidate) {
    return fmt::format("control: none, since {} itself is judged",
                       judgement.candidate.arm);
  }
  if (control == nullptr) return "control: none named";
  const size_t all = judgement.controls->controls.size();
  return fmt::format(
      "control: {} {}{}{}", control->arm, ControlFinding(*control),
      ShareOfHarm(*control, judgement.policy.Margin()),
      all > 1 ? fmt::format(", the most telling of {}", all) : "");
}

Document ControlsDocument(const Judgement& judgement) {
  Document document;
  document.Put("statement", ControlStatement(judgement));
  if (!judgement.controls) {
    document.Put("control", {});
    document.PutEach("null_arms", std::vector<ControlArm>(), NullDocument);
    document.PutEach("graded_controls", std::vector<ControlArm>(),
                     GradedDocument);
    return document;
  }
  const gate::Controls& controls = *judgement.controls;
  if (!controls.nulls.empty() || !controls.controls.empty()) {
    AddCandidate(judgement, document);
  }
  document.PutEach("null_arms", controls.nulls, NullDocument);
  if (const ControlArm* control = controls.Telling()) {
    document.PutObject("control",
                       ArmDocument(*control, "control " + control->arm));
  } else {
    document.Put("control", {});
  }
  document.PutEach("graded_controls", controls.controls, GradedDocument);
  for (const ControlArm& control : controls.controls) {
    if (&control == controls.Telling()) continue;
    document.Say(
        fmt::format("control {} {}", control.arm, ControlFinding(control)), 2);
    for (const ArmTest& test : control.tests) document.Say(TestLine(test), 4);
  }
  document.Say(fmt::format("{}; null arms: {}", ControlStatement(judgement),
                           controls.nulls.empty()
                               ? "none"
                               : fmt::to_string(controls.nulls.size())),
               2);
  return document;
}

}  // namespace isoloss::report
