// The whole matrix of which bit_identity_test.cc runs a subset.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "matrix_cells.h"

namespace isoloss::train {
namespace {

class FullBitIdentity : public testing::TestWithParam<Cell> {};

TEST_P(FullBitIdentity, HoldsHoweverARunIsExecuted) {
  ExpectOneDigest(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Matrix, FullBitIdentity,
                         testing::ValuesIn(FullMatrix()), NameOf);

class FullHierarchicalBitIdentity : public testing::TestWithParam<Hierarchy> {};

TEST_P(FullHierarchicalBitIdentity, HoldsOnAFixedNumberOfRanks) {
  const auto digests = [&](const std::string& recipe, const Execution& how) {
    return DigestsOf(
        RunOf(CaseByLabel("learned"), recipe, how, GetParam().overrides));
  };

  for (const std::string& recipe : AllRecipes()) {
    std::map<size_t, std::vector<std::string>> expected;
    for (const Execution& how : AllExecutions()) {
      if (how.workers == 5) continue;
      auto& of_ranks = expected[how.ranks];
      if (of_ranks.empty()) of_ranks = digests(recipe, {how.ranks});
      EXPECT_EQ(digests(recipe, how), of_ranks) << recipe << " " << how.Label();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Exchanges, FullHierarchicalBitIdentity,
                         testing::ValuesIn(AllHierarchies()),
                         [](const testing::TestParamInfo<Hierarchy>& test) {
                           return test.param.label;
                         });

TEST(FullMeshBitIdentity, CopiesOfExpertsDoNotMatterAtEqualDispatchUnits) {
  for (const std::string& recipe : AllRecipes()) {
    for (const int units : {4, 8}) {
      const auto digests = [&](const Execution& how, int copies) {
        return DigestsOf(RunOf(CaseByLabel("learned"), recipe, how,
                               CopiesOfExperts(copies, units)));
      };
      const auto expected = digests({1}, 1);
      for (const Execution& how : AllExecutions()) {
        if (how.workers != 1) continue;
        for (const int copies : {1, 2, 4}) {
          if (how.ranks % static_cast<size_t>(copies) != 0) continue;
          EXPECT_EQ(digests(how, copies), expected)
              << recipe << " units " << units << " copies " << copies << " "
              << how.Label();
        }
      }
    }
  }
}

}  // namespace
}  // namespace isoloss::train
