#include "isoloss/base/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace isoloss::nearest_name_test {
namespace {

const std::vector<std::string> kKeys = {"warmup_steps", "steps", "lr", "seeds",
                                        "clip_norm"};

TEST(NearestName, FindsOneInsertedDeletedReplacedOrSwappedLetter) {
  EXPECT_EQ(NearestName("stepss", kKeys), "steps");
  EXPECT_EQ(NearestName("step", kKeys), "steps");
  EXPECT_EQ(NearestName("stebs", kKeys), "steps");
  EXPECT_EQ(NearestName("setps", kKeys), "steps");
  EXPECT_EQ(NearestName("rl", kKeys), "lr");
}

TEST(NearestName, IgnoresLetterCase) {
  EXPECT_EQ(NearestName("Clip_Norm", kKeys), "clip_norm");
}

TEST(NearestName, AllowsAThirdOfTheLengthAndNoMore) {
  // 9 letters allow 3 edits.
  EXPECT_EQ(NearestName("klep_morm", kKeys), "clip_norm");
  EXPECT_EQ(NearestName("klep_mora", kKeys), "");
}

TEST(NearestName, FallsBackToANameThatBeginsSo) {
  EXPECT_EQ(NearestName("warmup", kKeys), "warmup_steps");
}

TEST(NearestName, PrefersTheEarlierOfEquallyNearNames) {
  const std::vector<std::string> known = {"w1", "w2", "w3"};

  EXPECT_EQ(NearestName("w4", known), "w1");
}

TEST(NearestName, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(NearestName("temperature", kKeys), "");
  EXPECT_EQ(NearestName("", kKeys), "");
  EXPECT_EQ(NearestName("steps", {}), "");
}

TEST(NearestName, IsNotSoughtForWhatNobodyWouldName) {
  const std::string huge(4'000'000, 'a');
  const std::vector<std::string> names = {huge, "aa"};

  EXPECT_EQ(NearestName(huge + "b", names), "");
  EXPECT_EQ(NearestName("aab", names), "aa") << "passes over the huge one";
}

TEST(DidYouMean, IsASentenceOrNothing) {
  EXPECT_EQ(DidYouMean("sttps", kKeys), " Did you mean `steps`?");
  EXPECT_EQ(DidYouMean("temperature", kKeys), "");
}

}  // namespace
}  // namespace isoloss::nearest_name_test
