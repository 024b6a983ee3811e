// The same bits on any number of ranks, over any transport, processes and
// threads: a subset of the full matrix (bit_identity_matrix_test.cc) in which
// every pair of values meets; and what else may not change a bit, or must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "matrix_cells.h"
#include "mesh_runs.h"

namespace isoloss::train {
namespace {

using testing::Each;
using testing::Ne;

class BitIdentity : public testing::TestWithParam<Cell> {};

TEST_P(BitIdentity, HoldsHoweverARunIsExecuted) { ExpectOneDigest(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Subset, BitIdentity,
                         testing::ValuesIn(CoveringSubset()), NameOf);

/// Tokens of each expert in `step`, from 0.
std::vector<int64_t> LoadsOf(const runlog::RunLog& log, int64_t step) {
  const auto begin = log.moe.tokens_per_expert.begin() + step * 256;
  return {begin, begin + 256};
}

TEST(BitIdentityCases, AreWhatTheirNamesSay) {
  const auto ties = RunOf(CaseByLabel("ties"), "bf16", {});
  const auto biased = RunOf(CaseByLabel("ties_with_biases"), "bf16", {});
  const auto balanced = RunOf(CaseByLabel("forced_balance"), "bf16", {});
  const auto learned = RunOf(CaseByLabel("learned"), "bf16", {});

  ASSERT_EQ(ties.steps.step.size(), 20u);
  std::vector<int64_t> all_to_first_four(256, 0);
  std::fill_n(all_to_first_four.begin(), 4, 256);
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(LoadsOf(ties, step), all_to_first_four) << step;
    EXPECT_THAT(LoadsOf(balanced, step), Each(4)) << step;
  }
  EXPECT_NE(LoadsOf(biased, 1), all_to_first_four);
  EXPECT_THAT(learned.steps.dead_experts, Each(testing::Gt(0)));
  EXPECT_LT(learned.steps.loss_nats.back(), learned.steps.loss_nats.front());
}

TEST(BitIdentityCases, HaveDifferentDigestsAndSoHaveRecipes) {
  std::set<std::string> digests;
  for (const Cell& cell : FullMatrix()) {
    digests.insert(DigestsOf(RunOf(*cell.what, cell.recipe, {})).back());
  }

  EXPECT_EQ(digests.size(), FullMatrix().size());
}

// What an exchange adds up on a rank or a node depends on how many there are;
// how it is executed still may not matter.

std::vector<std::string> HierarchyDigests(size_t hierarchy,
                                          const std::string& recipe,
                                          const Execution& how) {
  return DigestsOf(RunOf(CaseByLabel("learned"), recipe, how,
                         AllHierarchies()[hierarchy].overrides));
}

TEST(HierarchicalBitIdentity, HoldsOnAFixedNumberOfRanks) {
  for (size_t i = 0; i < AllHierarchies().size(); ++i) {
    const std::string& recipe = AllRecipes()[i % 3];
    const auto expected = HierarchyDigests(i, recipe, {8});
    for (const Execution& how : std::vector<Execution>{{8, "loop", 1, 2},
                                                       {8, "threads"},
                                                       {8, "shuffled"},
                                                       {8, "memory", 2},
                                                       {8, "memory", 8}}) {
      EXPECT_EQ(HierarchyDigests(i, recipe, how), expected)
          << AllHierarchies()[i].label << " " << how.Label();
    }
  }
}

TEST(HierarchicalBitIdentity, RanksAreSeenByRankAndNodeAndByNothingElse) {
  const auto digest = [](size_t i, size_t ranks) {
    return HierarchyDigests(i, "bf16", {ranks}).back();
  };

  EXPECT_NE(digest(0, 8), digest(0, 64)) << "rank";
  EXPECT_NE(digest(2, 8), digest(2, 64)) << "node";
  EXPECT_EQ(digest(4, 8), digest(4, 64)) << "titan_bf16";
}

// Experts kept several times, and experts' lists cut at fixed sequences.

std::vector<std::string> MeshDigests(const std::string& recipe,
                                     const Execution& how, int copies,
                                     int units) {
  return DigestsOf(RunOf(CaseByLabel("learned"), recipe, how,
                         CopiesOfExperts(copies, units)));
}

TEST(MeshBitIdentity, CopiesOfExpertsDoNotMatterAtEqualDispatchUnits) {
  for (const std::string& recipe : AllRecipes()) {
    for (const int units : {4, 8}) {
      const auto expected = MeshDigests(recipe, {1}, 1, units);
      EXPECT_EQ(MeshDigests(recipe, {8, "memory", 4}, 1, units), expected);
      EXPECT_EQ(MeshDigests(recipe, {8}, 2, units), expected);
      EXPECT_EQ(MeshDigests(recipe, {8, "memory", 8}, 2, units), expected);
      EXPECT_EQ(MeshDigests(recipe, {8, "memory", 2}, 4, units), expected);
    }
  }
}

TEST(MeshBitIdentity, DispatchUnitsMatter) {
  EXPECT_NE(MeshDigests("mxfp8_rceil", {}, 1, 1),
            MeshDigests("mxfp8_rceil", {}, 1, 4));
  EXPECT_NE(MeshDigests("mxfp8_rceil", {}, 1, 4),
            MeshDigests("mxfp8_rceil", {}, 1, 8));
}

TEST(MeshBitIdentity, PaddingOfExpertsDoesNotMatter) {
  for (const std::string& recipe : AllRecipes()) {
    const auto expected = DigestsOf(RunOf(CaseByLabel("learned"), recipe, {}));
    for (const char* rows : {"8", "16", "32", "128"}) {
      for (const size_t ranks : {1, 8}) {
        EXPECT_EQ(
            DigestsOf(RunOf(CaseByLabel("learned"), recipe, {ranks},
                            {std::string("parallel.expert_padding=") + rows})),
            expected)
            << recipe << " padding " << rows << " ranks " << ranks;
      }
    }
  }
}

// docs/expert-parallel.md, section 1.7.

runlog::RunLog PayloadRun(const std::string& recipe, const char* payload) {
  return RunOf(CaseByLabel("learned"), recipe, {8},
               {std::string("parallel.payload=") + payload});
}

/// Losses that depend on no weight gradient: of the evaluation before the first
/// step, then of that step.
std::vector<double> FirstLosses(const runlog::RunLog& log) {
  std::vector<double> losses(log.eval.per_sequence_loss_nats.begin(),
                             log.eval.per_sequence_loss_nats.begin() + 8);
  losses.push_back(log.steps.loss_nats.front());
  return losses;
}

TEST(PayloadOfTheGemmsOwnFormat, KeepsTheForwardPassAndNotQuantisedWgrad) {
  const auto plain = PayloadRun("mxfp8_rceil", "unquantized");
  const auto same = PayloadRun("mxfp8_rceil", "mx1x32");

  EXPECT_EQ(FirstLosses(same), FirstLosses(plain));
  EXPECT_NE(same.provenance.final_weights_digest,
            plain.provenance.final_weights_digest);
}

TEST(PayloadOfTheGemmsOwnFormat, IsSeenByWgradInHighPrecision) {
  const auto plain = PayloadRun("mxfp8_rceil_wgrad_with_hp", "unquantized");
  const auto same = PayloadRun("mxfp8_rceil_wgrad_with_hp", "mx1x32");

  EXPECT_EQ(FirstLosses(same), FirstLosses(plain));
  EXPECT_NE(same.steps.grad_norm.front(), plain.steps.grad_norm.front());
}

TEST(PayloadOfAnotherFormat, ChangesTheFirstLoss) {
  const auto plain = PayloadRun("mxfp8_rceil", "unquantized");

  EXPECT_THAT(FirstLosses(PayloadRun("mxfp8_rceil", "e4m3_1x128_fp32")),
              Ne(FirstLosses(plain)));
  EXPECT_THAT(FirstLosses(PayloadRun("bf16", "mx1x32")),
              Ne(FirstLosses(PayloadRun("bf16", "unquantized"))));
}

}  // namespace
}  // namespace isoloss::train
