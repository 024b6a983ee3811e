#include "isoloss/gate/probe_completeness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "isoloss/runlog/recipe_phases.h"
#include "sample_evidence.h"
#include "support/sample_graph.h"

namespace isoloss::gate::probe_completeness_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A probe of a run whose recipe changes at step 91 of 100: cases `plain` and
/// `tails` with so many first steps.
runlog::ProbeLog ProbeOfPhases(int64_t plain, int64_t tails) {
  runlog::ProbeLog log;
  log.cases = {"plain", "tails"};
  log.provenance.graph = test_support::SampleGraph("e4m3");
  runlog::AddPhase({91, test_support::SampleGraph("").recipe},
                   log.provenance.graph);
  log.provenance.resolved_recipe = runlog::PhaseHeading(91, "bf16");
  log.provenance.steps_planned = 100;
  for (int64_t step = 1; step <= plain; ++step) {
    log.oracle.Append(SampleRow(0, step, 0));
  }
  for (int64_t step = 1; step <= tails; ++step) {
    log.oracle.Append(SampleRow(1, step, 0));
  }
  return log;
}

// All cases but `plain` have each phase but the last for two steps.
TEST(MissingCases, NamesARecipeThatNoCaseLookedAt) {
  const Policy both = {.probe_cases = {"plain", "tails"}};
  const Policy plain = {.probe_cases = {"plain"}};
  const auto unprobed =
      ElementsAre(HasSubstr("recipe bf16, which holds from step 91 on, was not "
                            "probed for 2 steps"));

  EXPECT_THAT(MissingCases(ProbeOfPhases(3, 4), both), IsEmpty());
  EXPECT_THAT(MissingCases(ProbeOfPhases(3, 3), both),
              ElementsAre(HasSubstr("recipe bf16"),
                          "case tails lacks steps of phase 2 of the recipe"));
  EXPECT_THAT(MissingCases(ProbeOfPhases(90, 0), plain), unprobed);
  EXPECT_THAT(MissingCases(ProbeOfPhases(91, 0), plain), unprobed);
  EXPECT_THAT(MissingCases(ProbeOfPhases(92, 0), plain), IsEmpty());
  EXPECT_THAT(UnprobedPhases(ProbeOfPhases(3, 3)), unprobed);
}

}  // namespace
}  // namespace isoloss::gate::probe_completeness_test
