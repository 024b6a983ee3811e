#include "isoloss/kernels/blocking.h"

#include <gtest/gtest.h>

namespace isoloss::kernels::blocking_test {
namespace {

TEST(Blocking, IsAShareOfTheCaches) {
  const Blocking zen = BlockingFor({.l2 = 1 << 20, .l3 = 32 << 20});
  EXPECT_EQ(zen.strip_bytes, 256 << 10);
  EXPECT_EQ(zen.column_block_bytes, 4 << 20);
  EXPECT_EQ(BlockingFor({.l2 = 2 << 20, .l3 = 32 << 20}).strip_bytes,
            512 << 10);
}

TEST(Blocking, StaysWithinLimits) {
  const Blocking least = BlockingFor({.l2 = 1, .l3 = 1});
  EXPECT_EQ(least.strip_bytes, 64 << 10);
  EXPECT_EQ(least.column_block_bytes, 1 << 20);
  const Blocking most = BlockingFor({.l2 = 1 << 30, .l3 = 1 << 30});
  EXPECT_EQ(most.strip_bytes, 1 << 20);
  EXPECT_EQ(most.column_block_bytes, 8 << 20);
}

TEST(Blocking, UnknownCachesAreTakenForCommonOnes) {
  const Blocking unknown = BlockingFor({});
  const Blocking common = BlockingFor({.l2 = 1 << 20, .l3 = 32 << 20});
  EXPECT_EQ(unknown.strip_bytes, common.strip_bytes);
  EXPECT_EQ(unknown.column_block_bytes, common.column_block_bytes);
}

}  // namespace
}  // namespace isoloss::kernels::blocking_test
