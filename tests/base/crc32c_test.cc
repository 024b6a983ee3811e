#include "isoloss/base/crc32c.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/vector_state.h"

namespace isoloss::crc32c_test {
namespace {

TEST(Crc32c, HasThePublishedValues) {
  // RFC 3720, appendix B.4, and the check value of the algorithm.
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(Crc32c(bytes), 0x8A9136AAu);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  EXPECT_EQ(Crc32c(bytes), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(std::string_view("123456789")))),
            0xE3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, LeavesNoVectorStateBehind) {
  if (!test_support::UpperHalvesAreClear()) {
    GTEST_SKIP() << "this processor doesn't tell";
  }
  // Long enough for the widest code.
  for (const size_t size : {16, 256, 4096, 100000}) {
    Crc32c(std::vector<std::byte>(size));
    EXPECT_TRUE(*test_support::UpperHalvesAreClear()) << size;
  }
}

}  // namespace
}  // namespace isoloss::crc32c_test
