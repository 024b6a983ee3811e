#include "isoloss/stats/fisher_exact.h"

#include <gtest/gtest.h>

#include "isoloss/base/error.h"

namespace isoloss::stats::fisher_exact_test {
namespace {

// Fisher's lady tasting tea: 3 of 4 right and 1 of 4 wrong, 17 / 70.
TEST(FisherExactGreater, MatchesTheLadyTastingTea) {
  EXPECT_NEAR(FisherExactGreater(3, 4, 1, 4), 17.0 / 70, 1e-12);
  EXPECT_NEAR(FisherExactGreater(4, 4, 0, 4), 1.0 / 70, 1e-12);
}

TEST(FisherExactGreater, IsOneWhereAHasNoEvents) {
  EXPECT_EQ(FisherExactGreater(0, 8, 3, 8), 1);
  EXPECT_EQ(FisherExactGreater(0, 0, 3, 8), 1);
  EXPECT_EQ(FisherExactGreater(2, 8, 0, 0), 1);
}

TEST(FisherExactGreater, IsOneWhereAHasAllThatItMustHave) {
  EXPECT_EQ(FisherExactGreater(2, 2, 2, 2), 1);
  EXPECT_EQ(FisherExactGreater(5, 8, 8, 8), 1);
  // All margins, against the sum of binomial coefficients: 70 = C(8, 4).
  EXPECT_NEAR(FisherExactGreater(2, 4, 2, 4), (36 + 16 + 1) / 70.0, 1e-12);
}

TEST(FisherExactGreater, RefusesMoreEventsThanTrials) {
  EXPECT_THROW(FisherExactGreater(5, 4, 1, 4), Error);
  EXPECT_THROW(FisherExactGreater(1, 4, -1, 4), Error);
}

}  // namespace
}  // namespace isoloss::stats::fisher_exact_test
