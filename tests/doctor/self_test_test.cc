#include "isoloss/doctor/self_test.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "isoloss/base/digest.h"
#include "isoloss/doctor/doctor.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::doctor::self_test_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Recipe and numerics of the goldens whose rows travel as by default.
std::map<std::string, std::set<std::string>> NumericsOfGoldens() {
  std::map<std::string, std::set<std::string>> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(ISOLOSS_SOURCE_DIR) + "/golden/curves")) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    std::map<std::string, std::string> fields;
    std::string line;
    while (std::getline(file, line) && !line.empty()) {
      if (line.starts_with('#')) continue;
      const size_t name = line.find(' ');
      fields[line.substr(0, name)] =
          line.substr(line.find_first_not_of(' ', name));
    }
    constexpr std::string_view kDefault =
        R"(exchange = "flat", payload = "unquantized", gradient_payload = )"
        R"("unquantized", weight_site = "source")";
    if (!fields["exchange"].starts_with(kDefault)) continue;
    found[fields["recipe"]].insert(fields["numerics"]);
  }
  return found;
}

TEST(SelfTest, KnowsTheNumericsOfTheGoldens) {
  const auto goldens = NumericsOfGoldens();
  ASSERT_GE(goldens.size(), AllKnownNumerics().size());
  for (const KnownNumerics& known : AllKnownNumerics()) {
    ASSERT_TRUE(goldens.contains(known.recipe)) << known.recipe;
    EXPECT_THAT(goldens.at(known.recipe),
                ElementsAre(DigestToHex(known.digest)))
        << known.recipe;
  }
}

TEST(SelfTest, FindsTheKnownBitsHereAndKeepsTheTargetInUse) {
  kernels::ForceTarget("scalar");
  const KnownNumerics one[] = {AllKnownNumerics().front()};

  const SelfTest test = RunSelfTest(one);

  EXPECT_TRUE(test.wrong.empty()) << DiagnosisOf(test);
  EXPECT_EQ(DiagnosisOf(test), "");
  EXPECT_EQ(test.targets.front(), "scalar");
  EXPECT_EQ(test.targets.size(), kernels::SupportedTargets().size());
  EXPECT_EQ(static_cast<size_t>(test.trainings),
            test.targets.size() + test.threads.size());
  EXPECT_EQ(kernels::ActiveTarget(), "scalar");
  kernels::ForceTarget("");
}

TEST(SelfTest, SeesBitsThatAreNotTheKnownOnes) {
  const KnownNumerics wrong[] = {{"bf16", 0x123}, AllKnownNumerics()[1]};

  const Examination found = Examine({.known = wrong});

  EXPECT_EQ(found.Count(Health::kProblem), 1U);
  for (const HealthCheck& check : found.checks) {
    if (check.topic != "self-test") continue;
    EXPECT_EQ(check.health, Health::kProblem);
    EXPECT_THAT(check.text, HasSubstr("alike on all kernel targets: bf16 has"));
    EXPECT_THAT(check.text, HasSubstr("known is 0000000000000123"));
    EXPECT_NE(check.remedy, "");
  }
}

/// Each of "r0" and "r1" on two targets with one thread, and on the first with
/// two; wrong where `is_wrong` says.
SelfTest Made(const std::vector<WrongNumerics>& wrong) {
  return {.trainings = 6,
          .targets = {"fast", "scalar"},
          .threads = {2},
          .wrong = wrong,
          .failures = {}};
}

TEST(SelfTest, SaysWhetherTargetsThreadsOrAllAreWrong) {
  EXPECT_THAT(DiagnosisOf(Made({{"r0", "fast", 2, 1, 2}})),
              HasSubstr("1 of 6 trainings differ from the known bits, with "
                        "several threads only: r0 has 0000000000000002, known "
                        "is 0000000000000001 with 2 threads"));
  EXPECT_THAT(
      DiagnosisOf(Made({{"r0", "fast", 1, 1, 2}, {"r0", "fast", 2, 1, 2}})),
      HasSubstr("on kernel target fast only"));
  EXPECT_THAT(DiagnosisOf(Made({{"r0", "fast", 1, 1, 2},
                                {"r1", "fast", 1, 1, 3},
                                {"r0", "scalar", 1, 1, 2},
                                {"r1", "scalar", 1, 1, 3}})),
              HasSubstr("alike on all kernel targets"));
  EXPECT_THAT(
      DiagnosisOf(Made({{"r0", "fast", 1, 1, 2}, {"r0", "scalar", 1, 1, 4}})),
      HasSubstr("and from each other"));
}

}  // namespace
}  // namespace isoloss::doctor::self_test_test
