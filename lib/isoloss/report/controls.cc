#include "isoloss/report/controls.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

using gate::ArmTest;
using gate::ControlArm;
using gate::Judgement;

std::string TestLine(const ArmTest& test) {
  const std::string interval =
      test.lower && test.upper
          ? fmt::format("[{:+.3f} %, {:+.3f} %]", *test.lower, *test.upper)
          : "no interval";
  return fmt::format("    {:<12}  {:>+8.3f} %  sd {:>6.3f} %  {:<22}  {}\n",
                     test.name, test.pairs.mean, test.pairs.sd, interval,
                     gate::OutcomeName(test.outcome));
}

std::string ArmLines(const std::string& title,
                     const std::vector<ArmTest>& tests) {
  std::string text = fmt::format("  {}\n", title);
  for (const ArmTest& test : tests) text += TestLine(test);
  return text;
}

std::string NullTitle(const ControlArm& arm) {
  return fmt::format(
      "null arm {} ({} again, {}){}", arm.arm, arm.recipe,
      arm.perturbation.empty() ? "not perturbed" : arm.perturbation,
      arm.tests.empty() ? ": not judged" : "");
}

Json TestsJson(const std::vector<ArmTest>& tests) {
  Json list = Json::array();
  for (const ArmTest& test : tests) {
    Json json{{"name", test.name},
              {"outcome", gate::OutcomeName(test.outcome)},
              {"pairs", test.pairs.count}};
    PutNumber(json, "mean", test.pairs.mean);
    PutNumber(json, "sd", test.pairs.sd);
    PutNumber(json, "lower", test.lower);
    PutNumber(json, "upper", test.upper);
    list.push_back(std::move(json));
  }
  return list;
}

Json ArmJson(const ControlArm& arm) {
  return {{"arm", arm.arm},
          {"recipe", arm.recipe},
          {"perturbation", arm.perturbation},
          {"seen_worse", arm.SeenWorse()},
          {"not_judged", arm.not_judged},
          {"tests", TestsJson(arm.tests)}};
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

std::string ControlsText(const Judgement& judgement) {
  if (!judgement.controls) return "";
  const gate::Controls& controls = *judgement.controls;
  std::string text;
  if (!controls.nulls.empty() || controls.control) {
    if (judgement.policy.InTokens()) {
      text += "  extra tokens in % of the baseline's:\n";
    }
    text +=
        ArmLines("candidate " + judgement.candidate.arm, controls.candidate);
  }
  for (const ControlArm& arm : controls.nulls) {
    text += ArmLines(NullTitle(arm), arm.tests);
  }
  if (controls.control) {
    text += ArmLines(fmt::format("control {}", controls.control->arm),
                     controls.control->tests);
  }
  return text + fmt::format("  {}; null arms: {}\n",
                            ControlStatement(judgement),
                            controls.nulls.empty()
                                ? "none"
                                : fmt::to_string(controls.nulls.size()));
}

Json ControlsJson(const Judgement& judgement) {
  Json json{{"statement", ControlStatement(judgement)},
            {"control", nullptr},
            {"null_arms", Json::array()}};
  if (!judgement.controls) return json;
  if (judgement.controls->control) {
    json["control"] = ArmJson(*judgement.controls->control);
  }
  for (const ControlArm& arm : judgement.controls->nulls) {
    json["null_arms"].push_back(ArmJson(arm));
  }
  return json;
}

}  // namespace isoloss::report
