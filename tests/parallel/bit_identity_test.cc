// The same bits on any number of ranks, over any transport, processes and
// threads: a subset of the full matrix (bit_identity_matrix_test.cc) in which
// every pair of values meets; and what else may not change a bit, or must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "matrix_cells.h"
#include "mesh_runs.h"

namespace isoloss::train::bit_identity_test {
namespace {

using testing::Each;
using testing::IsEmpty;
using testing::Ne;
using testing::UnorderedElementsAre;

class BitIdentity : public testing::TestWithParam<Cell> {};

TEST_P(BitIdentity, HoldsHoweverARunIsExecuted) {
  ExpectOneContent(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Subset, BitIdentity,
                         testing::ValuesIn(CoveringSubset()), NameOf);

/// Tokens of each expert in `step`, from 0.
std::vector<int64_t> LoadsOf(const runlog::RunLog& log, int64_t step) {
  const auto begin = log.moe.tokens_per_expert.begin() + step * 256;
  return {begin, begin + 256};
}

TEST(RecipesWithState, HoldHoweverARunIsExecuted) {
  // With random bits and signs, and with a history of magnitudes. The matrix
  // leaves them out: products of 256 experts take ten times as long as in MX.
  for (const std::string recipe : {"mxfp4_rht_sr", "te_fp8_delayed"}) {
    const auto content = [&](const Execution& how) {
      return WithoutMesh(ContentOf(RunOf(CaseByLabel("learned"), recipe, how)));
    };
    const Content expected = content({});
    for (const Execution& how :
         {Execution{8, "threads", 1, 5}, Execution{256, "shuffled", 1, 2},
          Execution{4, "memory", 4, 1}}) {
      EXPECT_THAT(Differing(content(how), expected), IsEmpty())
          << recipe << " " << how.Label();
    }
  }
}

TEST(BitIdentityCases, AreWhatTheirNamesSay) {
  const auto ties = RunOf(CaseByLabel("ties"), "bf16", {});
  const auto biased = RunOf(CaseByLabel("ties_with_biases"), "bf16", {});
  const auto balanced = RunOf(CaseByLabel("forced_balance"), "bf16", {});
  const auto learned = RunOf(CaseByLabel("learned"), "bf16", {});

  ASSERT_EQ(ties.steps.step.size(), 8u);
  std::vector<int64_t> all_to_first_four(256, 0);
  std::fill_n(all_to_first_four.begin(), 4, 256);
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(LoadsOf(ties, step), all_to_first_four) << step;
    EXPECT_THAT(LoadsOf(balanced, step), Each(4)) << step;
  }
  EXPECT_NE(LoadsOf(biased, 1), all_to_first_four);
  EXPECT_THAT(learned.steps.dead_experts, Each(testing::Gt(0)));
  EXPECT_LT(learned.steps.loss_nats.back(), learned.steps.loss_nats.front());
}

TEST(BitIdentityCases, HaveDifferentWeightsAndSoHaveRecipes) {
  std::set<std::string> weights;
  for (const Cell& cell : FullMatrix()) {
    weights.insert(
        RunOf(*cell.what, cell.recipe, {}).provenance.final_weights_digest);
  }

  EXPECT_EQ(weights.size(), FullMatrix().size());
}

TEST(BitIdentityCases, CompareEveryGroupOfALog) {
  const Content content =
      ContentOf(RunOf(CaseByLabel("learned"), "mxfp8_rceil", {8}));
  for (const char* name :
       {"final_weights_digest", "unigram_entropy_nats", "/steps/grad_norm",
        "/eval/per_sequence_loss_nats", "/parameters/update_ratio",
        "/tensors/digest", "/tensors/dynamic_range", "/tensors/sqnr_db",
        "/tensors/e8m0_histogram", "/moe/expert_ids", "/moe/router_entropy",
        "/exchange/bytes_between_nodes", "/exchange_pairs/bytes_by_pair"}) {
    EXPECT_TRUE(content.contains(name)) << name;
  }
}

// What an exchange adds up on a rank or a node depends on how many there are;
// how it is executed still may not matter.

runlog::RunLog HierarchyRun(size_t hierarchy, const std::string& recipe,
                            const Execution& how) {
  return RunOf(CaseByLabel("learned"), recipe, how,
               AllHierarchies()[hierarchy].overrides);
}

TEST(HierarchicalBitIdentity, HoldsOnAFixedNumberOfRanks) {
  const std::vector<Execution> executions = {{8},
                                             {8, "loop", 1, 2},
                                             {8, "threads"},
                                             {8, "shuffled"},
                                             {8, "memory", 2},
                                             {8, "memory", 8}};
  for (size_t i = 0; i < AllHierarchies().size(); ++i) {
    SCOPED_TRACE(AllHierarchies()[i].label);
    ExpectOneContent(executions, [&](const Execution& how) {
      return ContentOf(HierarchyRun(i, AllRecipes()[i % 3], how));
    });
  }
}

TEST(HierarchicalBitIdentity, RanksAreSeenByRankAndNodeAndByNothingElse) {
  const auto weights = [](size_t i, size_t ranks) {
    return HierarchyRun(i, "bf16", {ranks}).provenance.final_weights_digest;
  };

  EXPECT_NE(weights(0, 8), weights(0, 64)) << "rank";
  EXPECT_NE(weights(2, 8), weights(2, 64)) << "node";
  EXPECT_EQ(weights(4, 8), weights(4, 64)) << "titan_bf16";
}

// Experts kept several times, and experts' lists cut at fixed sequences.

runlog::RunLog MeshRun(const std::string& recipe, const Execution& how,
                       int copies, int units) {
  return RunOf(CaseByLabel("learned"), recipe, how,
               CopiesOfExperts(copies, units));
}

TEST(MeshBitIdentity, CopiesOfExpertsDoNotMatterAtEqualDispatchUnits) {
  for (const std::string& recipe : AllRecipes()) {
    for (const int units : {4, 8}) {
      const auto content = [&](const Execution& how, int copies) {
        return WithoutMesh(ContentOf(MeshRun(recipe, how, copies, units)));
      };
      const Content expected = content({1}, 1);
      for (const auto& [how, copies] :
           std::vector<std::pair<Execution, int>>{{{8, "memory", 4}, 1},
                                                  {{8}, 2},
                                                  {{8, "memory", 8}, 2},
                                                  {{8, "memory", 2}, 4}}) {
        EXPECT_THAT(Differing(content(how, copies), expected), IsEmpty())
            << recipe << " units " << units << " copies " << copies << " "
            << how.Label();
      }
    }
  }
}

TEST(MeshBitIdentity, DispatchUnitsMatter) {
  const auto weights = [](int units) {
    return MeshRun("mxfp8_rceil", {}, 1, units).provenance.final_weights_digest;
  };

  EXPECT_NE(weights(1), weights(4));
  EXPECT_NE(weights(4), weights(8));
}

TEST(MeshBitIdentity, PaddingOfExpertsIsInNoFigureButItsOwn) {
  const auto content = [](const std::string& recipe, size_t ranks,
                          const char* rows) {
    return ContentOf(RunOf(CaseByLabel("learned"), recipe, {ranks},
                           {"parallel.dispatch_units=4",
                            std::string("parallel.expert_padding=") + rows}));
  };
  for (const std::string& recipe : AllRecipes()) {
    for (const size_t ranks : {1, 8}) {
      const Content expected = content(recipe, ranks, "1");
      for (const char* rows : {"8", "128"}) {
        EXPECT_THAT(Differing(content(recipe, ranks, rows), expected),
                    UnorderedElementsAre("exchange", "/moe/padding_rows"))
            << recipe << " padding " << rows << " ranks " << ranks;
      }
    }
  }
}

// A payload in the format of the GEMM's operand changes no bit of fprop and
// dgrad. A quantised wgrad reads rows that were quantised before along another
// axis, so that weights differ after the first step.

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
}  // namespace isoloss::train::bit_identity_test
