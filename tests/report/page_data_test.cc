#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "isoloss/report/page/data.h"
#include "isoloss/report/page/page.h"
#include "isoloss/report/page/runs.h"
#include "isoloss/report/page/values.h"
#include "support/synthetic_runs.h"

namespace isoloss::report::page_data_test {
namespace {

using document::Json;

using ::testing::HasSubstr;
using ::testing::Not;

/// A run of so many steps with these losses.
runlog::RunLog LogOf(const std::vector<double>& losses) {
  runlog::RunLog log;
  log.provenance.seed = 7;
  for (size_t i = 0; i < losses.size(); ++i) {
    log.steps.step.push_back(static_cast<int64_t>(i) + 1);
    log.steps.loss_nats.push_back(losses[i]);
  }
  return log;
}

std::vector<double> Ramp(size_t steps) {
  std::vector<double> values(steps);
  for (size_t i = 0; i < steps; ++i) values[i] = static_cast<double>(i);
  return values;
}

std::vector<PageArm> ArmWith(const runlog::RunLog& log, size_t runs) {
  PageArm arm{"bf16", "baseline", {}};
  for (size_t i = 0; i < runs; ++i) arm.runs.push_back({"a.h5", &log});
  return {arm};
}

TEST(CurveBin, KeepsEveryStepWhileThereIsRoom) {
  const runlog::RunLog log = LogOf(Ramp(kMostCurveValues / 10));
  EXPECT_EQ(CurveBin(ArmWith(log, 10)), 1);
  EXPECT_EQ(CurveBin(ArmWith(log, 11)), 2);
  EXPECT_EQ(CurveBin(ArmWith(log, 20)), 2);
  EXPECT_EQ(CurveBin(ArmWith(log, 24)), 3);
  EXPECT_EQ(CurveBin({}), 1);
}

TEST(RunJson, PointsAreMeansAtTheFirstOfTheirSteps) {
  const runlog::RunLog log = LogOf({1, 2, 3, 5, 8, 13, 21});
  PageBudget budget(10'000);

  const Json json = RunJson({"a.h5", &log}, 3, 10, budget);

  EXPECT_EQ(json["recorded_steps"], 7);
  EXPECT_EQ(json["step"], Json({{"first", 1}, {"stride", 3}, {"count", 3}}));
  EXPECT_EQ(json["series"]["loss_nats"],
            Float32Base64(std::vector<double>{2, 26.0 / 3, 21}));
  EXPECT_FALSE(json["series"].contains("grad_norm"));
}

TEST(RunJson, AValueThatIsNotFiniteIsNotAveragedAway) {
  const runlog::RunLog log = LogOf({1, std::nan(""), 3, 4});
  PageBudget budget(10'000);

  const Json json = RunJson({"a.h5", &log}, 2, 10, budget);

  EXPECT_EQ(json["series"]["loss_nats"],
            Float32Base64(std::vector<double>{std::nan(""), 3.5}));
}

TEST(RunJson, StepsThatAreNotRegularAreListed) {
  runlog::RunLog log = LogOf({1, 2, 3, 4});
  log.steps.step = {1, 2, 5, 6};
  PageBudget budget(10'000);

  EXPECT_EQ(RunJson({"a.h5", &log}, 2, 10, budget)["step"],
            Json({{"list", {1, 5}}}));
}

TEST(PageData, ManyLongRunsStayWithinTheBytesOfAPage) {
  std::vector<compare::Run> runs;
  for (int64_t seed = 1; seed <= 12; ++seed) {
    for (const bool candidate : {false, true}) {
      compare::Run run = test_support::SyntheticRun(candidate, seed, 0.1);
      auto& s = run.log.steps;
      while (s.step.size() < 10'000) {
        s.step.push_back(s.step.back() + 1);
        s.loss_nats.push_back(
            2.5 + 1e-3 * std::sin(static_cast<double>(seed * s.step.back())));
        s.grad_norm.push_back(s.loss_nats.back());
        s.lr.push_back(1e-3);
        s.expert_load_max_over_mean.push_back(1.5);
        s.dead_experts.push_back(0);
      }
      run.log.provenance.experiment_text = std::string(10'000'000, '<');
      runs.push_back(std::move(run));
    }
  }

  const Json data = PageData({.runs = runs});
  const std::string page = RenderPage(data);

  EXPECT_LE(page.size(), kMostPageBytes);
  // 24 runs of 5 curves.
  EXPECT_EQ(data["arms"][0]["runs"][0]["bin"], 3);
  EXPECT_THAT(data["runs_note"].get<std::string>(),
              HasSubstr("mean of 3 steps"));
  EXPECT_EQ(data["pairs"][0]["seeds"].size(), 12U);
}

TEST(PageData, SaysThatTheNamedBaselineHasNoRun) {
  // Of runs that are being made, its first may be to come.
  const std::vector<compare::Run> runs = {
      test_support::SyntheticRun(false, 1, 0.1)};
  const auto note = [&](const std::string& baseline) {
    return PageData({.runs = runs, .baseline = baseline})["runs_note"]
        .get<std::string>();
  };

  EXPECT_EQ(note("nope"),
            "The arm nope, which was named as the baseline, has no run here.");
  EXPECT_EQ(note(runs[0].log.provenance.arm), "");
  EXPECT_EQ(note(""), "");
}

TEST(PageData, TheBandOfACurveIsAMarginOfTheLoss) {
  const auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  const auto margin_under = [&](double tokens) {
    const std::vector<Json> verdicts = {
        {{"candidate", {{"arm", "mxfp8"}}},
         {"policy",
          {{"margin_percent", 0.25}, {"margin_tokens_percent", tokens}}}}};
    return PageData(
        {.runs = runs, .verdicts = &verdicts})["pairs"][0]["margin_percent"];
  };

  EXPECT_EQ(margin_under(0), 0.25);
  EXPECT_EQ(margin_under(5), nullptr);
}

TEST(PageData, TensorsHaveTheModuleAndOperandOfTheGraph) {
  compare::Run run = test_support::SyntheticRun(true, 1, 0);
  const runlog::GraphColumns& graph = run.log.provenance.graph.tensors;
  run.log.tensors.step = {1};
  run.log.tensors.names = {graph.name.front(), "layers.9.wkv_a_activation"};

  const Json tensors =
      PageData({.runs = {&run, 1}})["arms"][0]["tensors"]["tensors"];

  EXPECT_EQ(tensors[0]["operand"], graph.kind.front());
  EXPECT_EQ(tensors[1]["module"], "layers.9.wkv_a");
  EXPECT_EQ(tensors[1]["operand"], "activation");
}

TEST(RenderPage, TextsAreNoMarkup) {
  compare::Run run = test_support::SyntheticRun(false, 1, 0);
  run.log.provenance.experiment_name = "</title><script>hit()</script>";
  run.file = "</script><script>hit()</script>";

  const std::string page = RenderPage(PageData({.runs = {&run, 1}}));

  EXPECT_THAT(page, Not(HasSubstr("<script>hit()")));
  EXPECT_THAT(page, HasSubstr("<title>&lt;/title&gt;&lt;script&gt;hit()"));
}

TEST(RenderPage, OfLogsWithoutAnExperimentIsNamedAfterTheirArms) {
  std::vector<compare::Run> runs = test_support::SyntheticExperiment({0.05});
  for (compare::Run& run : runs) run.log.provenance.experiment_name.clear();

  EXPECT_THAT(RenderPage(PageData({.runs = runs})),
              HasSubstr("<title>bf16 and mxfp8</title>"));
}

TEST(RenderPage, LoadsNothing) {
  EXPECT_THAT(RenderPage(PageData({})), AllOf(HasSubstr("default-src 'none'"),
                                              Not(HasSubstr("connect-src"))));
}

}  // namespace
}  // namespace isoloss::report::page_data_test
