#include "isoloss/campaign/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign::plan_file_test {
namespace {

using ::testing::HasSubstr;

class PlanFile : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& text) const {
    std::ofstream(file_) << text;
    return file_;
  }

  test_support::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / kPlanFile;
  const std::string plan_ = "a = \"x\"\nb = 2\n[c]\nd = [1]\n";
};

TEST_F(PlanFile, NamesTheKeysThatDiffer) {
  const auto difference = [&](const std::string& text) {
    return PlanDifference(Write(text), plan_);
  };
  EXPECT_EQ(difference(plan_), "");
  EXPECT_EQ(difference("# The same\na = 'x'\nb = 2\nc = {d = [1]}\n"), "");
  EXPECT_EQ(difference("a = \"y\"\nb = 2.0\n[c]\nd = [1]\n"), "a, b");
  EXPECT_EQ(difference("a = \"x\"\nb = 2\n[c]\nd = [2]\n"), "c");
  EXPECT_EQ(difference("a = \"x\"\nb = 2\ne = 1\n"), "c, e");
}

TEST_F(PlanFile, NamesThePlaceWhereItIsNoToml) {
  try {
    PlanDifference(Write("a = 1\nb = = 2\n"), plan_);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("plan.toml:2:5: "));
  }
}

}  // namespace
}  // namespace isoloss::campaign::plan_file_test
