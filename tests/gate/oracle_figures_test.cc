#include "isoloss/gate/oracle_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sample_evidence.h"
#include "support/earlier_probe.h"

namespace isoloss::gate::oracle_figures_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OracleFigures, HoldTheRunsLogToTheRoutingAndBytesOfTheOracle) {
  TwoVersions versions(1, /*equal=*/true);
  std::vector<Probe> probes = {SampleProbe(versions.now[0])};
  runlog::RunLog& log = versions.now[0].log;
  log.moe.step = {3, 4};
  log.moe.layers = 1;
  log.moe.routing_digest = {77, 78};
  log.exchange.step = {1, 2, 3};
  log.exchange.bytes_to_self = {10, 20, 30};
  log.exchange.bytes_within_nodes = {11, 21, 31};
  log.exchange.bytes_between_nodes = {12, 22, 32};
  auto& probe = probes[0].log;
  // Of steps 3 and 4 of case plain; other cases have other routings.
  probe.routing.digest = std::vector<int64_t>(probe.routing.step.size(), 99);
  probe.routing.digest[0] = 77;
  probe.routing.digest[1] = 78;
  for (auto* column :
       {&probe.plain_steps.bytes_to_self, &probe.plain_steps.bytes_within_nodes,
        &probe.plain_steps.bytes_between_nodes}) {
    column->assign(probe.plain_steps.step.size(), 10);
  }
  probe.plain_steps.bytes_to_self[1] = 20;
  probe.plain_steps.bytes_within_nodes[0] = 11;
  probe.plain_steps.bytes_between_nodes[0] = 12;
  log.exchange.step.resize(1);
  const auto judge = [&] {
    const compare::Pairing pairing = versions.Pair();
    return CheckFigures({.pairing = &pairing, .candidate_probes = probes});
  };

  ASSERT_TRUE(judge().has_value());
  EXPECT_EQ(judge()->outcome, Outcome::kPass);
  EXPECT_EQ(judge()->evidence, "2 digests and 3 counts of bytes");

  probe.routing.digest[0] = 76;
  log.exchange.bytes_between_nodes[0] = 13;
  EXPECT_EQ(judge()->outcome, Outcome::kFail);
  EXPECT_THAT(judge()->findings,
              ElementsAre(HasSubstr("/moe/routing_digest of step 3, layer 0"),
                          HasSubstr("/exchange/bytes_between_nodes of step 1 "
                                    "is 13, but routing, mesh and payloads "
                                    "give 12")));

  // A probe of an earlier program has none of them.
  test_support::MakeFirstLayout(probe);
  EXPECT_FALSE(judge().has_value());
}

}  // namespace
}  // namespace isoloss::gate::oracle_figures_test
