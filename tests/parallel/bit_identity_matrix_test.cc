// The whole matrix of which bit_identity_test.cc runs a subset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "matrix_cells.h"

namespace isoloss::train::bit_identity_matrix_test {
namespace {

using testing::IsEmpty;

class FullBitIdentity : public testing::TestWithParam<Cell> {};

TEST_P(FullBitIdentity, HoldsHoweverARunIsExecuted) {
  ExpectOneContent(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Matrix, FullBitIdentity,
                         testing::ValuesIn(FullMatrix()), NameOf);

class FullHierarchicalBitIdentity : public testing::TestWithParam<Hierarchy> {};

TEST_P(FullHierarchicalBitIdentity, HoldsOnAFixedNumberOfRanks) {
  for (const std::string& recipe : AllRecipes()) {
    std::map<size_t, Content> of_ranks;
    for (const Execution& how : AllExecutions()) {
      if (how.workers == 5) continue;
      const Content content = ContentOf(
          RunOf(CaseByLabel("learned"), recipe, how, GetParam().overrides));
      const auto expected = of_ranks.try_emplace(how.ranks, content).first;
      EXPECT_THAT(Differing(content, expected->second), IsEmpty())
          << recipe << " " << how.Label();
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
      const auto content = [&](const Execution& how, int copies) {
        return WithoutMesh(ContentOf(RunOf(CaseByLabel("learned"), recipe, how,
                                           CopiesOfExperts(copies, units))));
      };
      const Content expected = content({1}, 1);
      for (const Execution& how : AllExecutions()) {
        if (how.workers != 1) continue;
        for (const int copies : {1, 2, 4}) {
          if (how.ranks % static_cast<size_t>(copies) != 0) continue;
          EXPECT_THAT(Differing(content(how, copies), expected), IsEmpty())
              << recipe << " units " << units << " copies " << copies << " "
              << how.Label();
        }
      }
    }
  }
}

}  // namespace
}  // namespace isoloss::train::bit_identity_matrix_test
