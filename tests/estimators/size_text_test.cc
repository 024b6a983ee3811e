#include "isoloss/estimators/size_text.h"

#include <gtest/gtest.h>

#include "isoloss/base/error.h"

namespace isoloss::estimators::size_text_test {
namespace {

TEST(SizeText, IsReadAsItIsWritten) {
  for (const char* text : {"16B@50B", "671B@14.8T", "0.34M@1.35M", "50K@2K",
                           "7@8", "30B-A3B@36T", "16B-A3B@50B"}) {
    EXPECT_EQ(SizeText(ParseSize(text)), text);
  }
}

TEST(SizeText, KnowsPublishedSizesByTheirNames) {
  EXPECT_EQ(SizeText(ParseSize("16B")), "16B@50B");
  EXPECT_EQ(ParseSize("16B@1T").ActiveParameters(), 2.4e9);
  EXPECT_EQ(SizeText(ParseSize("671b")), "671B@14.8T");
  EXPECT_EQ(ParseSize("671B").Flops(), 6 * 37e9 * 14.8e12);
}

TEST(SizeText, CountsAllParametersUnlessToldOtherwise) {
  EXPECT_EQ(ParseSize("7B@2T").Flops(), 6 * 7e9 * 2e12);
  EXPECT_EQ(ParseSize("30B-A3B@36T").Flops(), 6 * 3e9 * 36e12);
}

TEST(SizeText, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "16", "7B", "16B@", "@50B", "16B@-1B", "0@1B", "16B@50X",
        "16B@50BB", "nan@1", "1e40@1", "3B-A30B@1T", "3B-A@1T", "3B-3B@1T"}) {
    EXPECT_THROW(ParseSize(text), Error) << text;
  }
}

}  // namespace
}  // namespace isoloss::estimators::size_text_test
