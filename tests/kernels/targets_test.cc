#include "isoloss/kernels/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "isoloss/base/error.h"

namespace isoloss::kernels::targets_test {
namespace {

class Targets : public testing::Test {
 protected:
  ~Targets() override {
    unsetenv("ISOLOSS_FORCE_KERNEL");
    ForceTarget("");
  }
};

TEST_F(Targets, EndWithScalar) {
  ASSERT_FALSE(SupportedTargets().empty());
  EXPECT_EQ(SupportedTargets().back(), "scalar");
}

TEST_F(Targets, BestOneIsActiveUnlessForced) {
  EXPECT_EQ(ActiveTarget(), SupportedTargets().front());
}

TEST_F(Targets, ForcedOneIsActiveInEveryThread) {
  for (const std::string& name : SupportedTargets()) {
    ForceTarget(name);
    std::string elsewhere;
    std::thread([&] { elsewhere = ActiveTarget(); }).join();

    EXPECT_EQ(ActiveTarget(), name);
    EXPECT_EQ(elsewhere, name);
  }
}

TEST_F(Targets, ForcedOneStaysActiveWhenTheChoiceIsListed) {
  ForceTarget("scalar");

  EXPECT_EQ(SupportedTargets().back(), "scalar");

  EXPECT_EQ(ActiveTarget(), "scalar");
}

TEST_F(Targets, EmptyNameReturnsToTheBest) {
  ForceTarget("scalar");

  ForceTarget("");

  EXPECT_EQ(ActiveTarget(), SupportedTargets().front());
}

TEST_F(Targets, EnvironmentForcesOne) {
  setenv("ISOLOSS_FORCE_KERNEL", "scalar", 1);

  ForceTargetFromEnvironment();

  EXPECT_EQ(ActiveTarget(), "scalar");
}

TEST_F(Targets, UnknownNameThrowsAndListsTheChoice) {
  // sse4 has no fused multiply-add: never a target, whatever the processor.
  for (const char* name : {"sse4", "AVX2", "fastest"}) {
    try {
      ForceTarget(name);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), testing::HasSubstr(name));
      EXPECT_THAT(error.what(), testing::HasSubstr("scalar"));
    }
    EXPECT_EQ(ActiveTarget(), SupportedTargets().front());
  }
}

}  // namespace
}  // namespace isoloss::kernels::targets_test
