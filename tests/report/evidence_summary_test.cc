#include "isoloss/report/evidence_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"

namespace isoloss::report::evidence_summary_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

runlog::OracleRow Row(int64_t probe_case, int64_t step, int64_t tensor,
                      int64_t flips, int64_t other, double ratio) {
  runlog::OracleRow row;
  row.probe_case = probe_case;
  row.step = step;
  row.tensor = tensor;
  row.elements = 100;
  row.equal = 100 - flips - other;
  row.flips = flips;
  row.other = other;
  row.expected_flips = 0.5;
  row.worst_ratio = ratio;
  row.worst_row = 7;
  row.worst_column = 9;
  row.worst_value = 1.5;
  row.worst_expected = 1.25;
  return row;
}

runlog::ProbeLog Log() {
  runlog::ProbeLog log;
  log.provenance.complete = true;
  log.cases = {"plain", "tails"};
  log.tensors = {"wq_output", "wk_output"};
  log.oracle.Append(Row(0, 1, 0, 3, 0, 0.9));
  log.oracle.Append(Row(0, 2, 1, 0, 0, 0.0));
  log.oracle.Append(Row(1, 1, 0, 1, 0, 0.2));
  log.routing.Append({.probe_case = 1, .step = 1, .tokens = 40, .flips = 2});
  return log;
}

TEST(ProbeSummary, CountsByCaseAndNamesNothingWorstWhereNothingIsWrong) {
  const ProbeSummary summary = SummarizeProbe(Log());

  ASSERT_EQ(summary.cases.size(), 2U);
  EXPECT_EQ(summary.cases[0].steps, 2);
  EXPECT_EQ(summary.cases[0].tensors, 2);
  EXPECT_EQ(summary.cases[0].elements, 200);
  EXPECT_EQ(summary.cases[0].flips, 3);
  EXPECT_EQ(summary.cases[1].tokens, 40);
  EXPECT_EQ(summary.total.flips, 4);
  EXPECT_DOUBLE_EQ(summary.total.expected_flips, 1.5);
  EXPECT_EQ(summary.total.token_flips, 2);
  EXPECT_TRUE(summary.passed());
  EXPECT_FALSE(summary.total.worst.has_value());
  const std::string text = document::RenderText(DocumentOf(summary));
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("wq_output")), Not(HasSubstr("oracle"))));
  // The head, a line for each case, what was seen, and routing.
  EXPECT_EQ(std::ranges::count(text, '\n'), 5) << text;
  EXPECT_THAT(
      document::RenderText(ProbeVerdict(summary, "arm a")),
      AllOf(::testing::StartsWith("PASS: arm a: "),
            HasSubstr("all 4 flips among all 300 elements of 3 tensors"),
            ::testing::EndsWith("(exit code 0)\n")));
}

TEST(ProbeSummary, SaysWhatASampleSawAndMayHaveMissed) {
  runlog::ProbeLog log = Log();
  EXPECT_THAT(document::RenderText(DocumentOf(SummarizeProbe(log))),
              HasSubstr("seen         all 300 elements\n"));
  runlog::OracleRow row = Row(1, 2, 0, 0, 0, 0);
  row.unseen_elements = 9600;
  row.draws = 688;
  log.oracle.Append(row);

  const ProbeSummary summary = SummarizeProbe(log);

  EXPECT_EQ(summary.cases[0].unseen, 0);
  EXPECT_EQ(summary.cases[1].unseen, 9600);
  EXPECT_THAT(
      document::RenderText(DocumentOf(summary)),
      HasSubstr("seen         400 of 10000 elements; if 1 % of a tensor "
                "were wrong, all of them would be missed with a chance "
                "of 0.1 %\n"));
  EXPECT_THAT(document::RenderText(ProbeVerdict(summary, "arm a")),
              HasSubstr("among 400 of 10000 elements of 4 tensors"));
  const auto json = document::ToJson(DocumentOf(summary));
  EXPECT_NEAR(json["missed_share"].get<double>(), 0.009990, 1e-6);
  EXPECT_EQ(json["total"]["unseen_elements"], 9600);
}

TEST(ProbeSummary, NamesTheWorstOfTheElementsThatAreNotExplained) {
  runlog::ProbeLog log = Log();
  log.oracle.Append(Row(1, 2, 0, 0, 2, 3.0));
  log.oracle.Append(
      Row(1, 3, 1, 0, 1, std::numeric_limits<double>::infinity()));
  log.oracle.Append(Row(1, 4, 0, 0, 1, 5.0));

  const ProbeSummary summary = SummarizeProbe(log);

  EXPECT_FALSE(summary.passed());
  EXPECT_EQ(summary.total.other, 4);
  EXPECT_EQ(summary.total.other_tensors, 3);
  ASSERT_TRUE(summary.total.worst.has_value());
  EXPECT_EQ(summary.total.worst->tensor, "wk_output");
  EXPECT_EQ(summary.total.worst->step, 3);
  EXPECT_THAT(document::RenderText(DocumentOf(summary)),
              HasSubstr("wk_output [7, 9] at step 3: 1.5, oracle 1.25"));
  EXPECT_THAT(
      document::RenderText(ProbeVerdict(summary, "arm a")),
      AllOf(HasSubstr("FAIL: arm a: "), HasSubstr("4 elements of 3 tensors"),
            HasSubstr("0 tokens (exit code 1)")));
}

TEST(ProbeSummary, TokensThatAreNotExplainedOrAMissingEndFail) {
  runlog::ProbeLog log = Log();
  log.routing.Append({.probe_case = 0, .step = 1, .tokens = 40, .other = 1});
  EXPECT_FALSE(SummarizeProbe(log).passed());

  log = Log();
  log.provenance.complete = false;
  EXPECT_FALSE(SummarizeProbe(log).passed());
  EXPECT_THAT(document::RenderText(ProbeVerdict(SummarizeProbe(log), "arm a")),
              HasSubstr("incomplete"));
}

runlog::EnsembleMember Member(const char* perturbation, int64_t seed,
                              std::vector<double> loss) {
  runlog::EnsembleMember member{.perturbation = perturbation, .seed = seed};
  member.steps.step = {1, 2};
  member.steps.loss_nats = std::move(loss);
  member.steps.grad_norm = {1, 1};
  member.reference_steps.step = {1, 2};
  member.reference_steps.loss_nats = {2, 4};
  member.reference_steps.grad_norm = {1, 1};
  member.parameters.names = {"wq", "wk", "wv"};
  return member;
}

TEST(EnsembleSummary, SaysHowFarMembersLieFromTheirReference) {
  runlog::Ensemble ensemble;
  ensemble.members = {Member("reverse_k", 1, {2, 4}),
                      Member("ulp", 2, {2, 3}),     // 0 and -1/4
                      Member("ulp", 1, {2.5, 4})};  // 1/4 and 0

  const EnsembleSummary summary = SummarizeEnsemble(ensemble);

  EXPECT_EQ(summary.members, 3U);
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.parameters, 3U);
  EXPECT_THAT(summary.seeds, ElementsAre(1, 2));
  EXPECT_THAT(summary.perturbations, ElementsAre("reverse_k", "ulp"));
  ASSERT_EQ(summary.spreads.size(), 2U);
  EXPECT_EQ(summary.spreads[0].quantity, "loss_nats");
  EXPECT_DOUBLE_EQ(summary.spreads[0].mean, 0);
  // The first of two that are as large.
  EXPECT_DOUBLE_EQ(summary.spreads[0].largest, -0.25);
  EXPECT_EQ(summary.spreads[0].member, "ulp, seed 2");
  EXPECT_EQ(summary.spreads[0].step, 2);
  EXPECT_DOUBLE_EQ(summary.spreads[1].largest, 0);
  EXPECT_THAT(document::RenderText(DocumentOf(summary)),
              AllOf(HasSubstr("members     3 of 2 steps, 2 seeds: 1 2"),
                    HasSubstr("-25.000000")));
}

}  // namespace
}  // namespace isoloss::report::evidence_summary_test
