#include "isoloss/stats/isotonic.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace isoloss::stats {
namespace {

using Values = std::vector<double>;

TEST(IsotonicFit, KeepsWhatAscends) {
  EXPECT_EQ(IsotonicFit(Values{}), Values{});
  EXPECT_EQ(IsotonicFit(Values{-1, 0, 0, 2}), (Values{-1, 0, 0, 2}));
}

// By hand, and exact in FP64: 3, 2 pool to 2.5, and 1 joins them: (3 + 2 + 1)
// / 3 = 2. Then 6, 4 pool to 5, which lies above 2.
TEST(IsotonicFit, PoolsNeighboursThatDescend) {
  EXPECT_EQ(IsotonicFit(Values{3, 2, 1, 6, 4, 7}), (Values{2, 2, 2, 5, 5, 7}));
  EXPECT_EQ(IsotonicFit(Values{4, 0, 0, 0}), (Values{1, 1, 1, 1}));
}

TEST(IsotonicFit, TakesInfiniteValues) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(IsotonicFit(Values{1, 3, kInfinite, kInfinite}),
            (Values{1, 3, kInfinite, kInfinite}));
  EXPECT_EQ(IsotonicFit(Values{1, kInfinite, 3}),
            (Values{1, kInfinite, kInfinite}));
}

}  // namespace
}  // namespace isoloss::stats
