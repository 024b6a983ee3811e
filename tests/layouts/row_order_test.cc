// Which rows of two layouts belong to the same token.
#include "isoloss/layouts/row_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isoloss::layouts::row_order_test {
namespace {

using ::testing::ElementsAre;

TEST(RowOrder, KeepsRunsOfRepeatedKeysTogether) {
  // Both runs begin with the same word; only their whole tells them apart.
  const auto places = MatchKeys({1, 2, 1, 3}, {1, 3, 1, 2});

  ASSERT_TRUE(places);
  EXPECT_THAT(*places, ElementsAre(2, 3, 0, 1));
  EXPECT_FALSE(MatchKeys({1, 2}, {1, 1}));
  EXPECT_FALSE(MatchKeys({1, 2}, {1}));
}

TEST(RowOrder, NearestRowsAreTakenOnceAndNotFromAfar) {
  Matrix<float> a(3, 1);
  Matrix<float> b(3, 1);
  a(0, 0) = 4.0f;
  a(1, 0) = 4.1f;
  a(2, 0) = -4.0f;
  b(0, 0) = 100.0f;
  b(1, 0) = 4.0f;
  b(2, 0) = 4.2f;

  EXPECT_THAT(NearestRows(a.view(), b.view(), 0.5), ElementsAre(1, 2, kNoRow));
}

}  // namespace
}  // namespace isoloss::layouts::row_order_test
