#include "isoloss/base/digest.h"

#include <gtest/gtest.h>

namespace isoloss::digest_test {
namespace {

TEST(Digest, EqualsThePublishedValueOfTheEmptyInput) {
  // XXH3_64bits of no bytes with seed 0, from the xxHash test vectors.
  EXPECT_EQ(DigestOf(""), 0x2D06800538D394C2u);
}

TEST(Digest, DoesNotDependOnHowTheStreamIsCut) {
  const std::string text(1000, 'x');
  Digest whole;
  Digest pieces;

  whole.Update(text);
  for (size_t at = 0; at < text.size(); at += 7) {
    pieces.Update(std::string_view(text).substr(at, 7));
  }

  EXPECT_EQ(whole.Value(), pieces.Value());
  EXPECT_EQ(whole.Value(), DigestOf(text));
}

TEST(Digest, ChangesWithASingleBit) {
  EXPECT_NE(DigestOf("isoloss"), DigestOf("isolosr"));
}

TEST(Digest, PrintsSixteenHexadecimalDigits) {
  EXPECT_EQ(DigestToHex(0x1Fu), "000000000000001f");
}

}  // namespace
}  // namespace isoloss::digest_test
