#include "isoloss/sweeps/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace isoloss::sweeps::elements_test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

campaign::RunList ListOf(const std::vector<double>& seconds) {
  campaign::RunList list{.folder = "nowhere", .runs = {}};
  for (size_t i = 0; i < seconds.size(); ++i) {
    const std::string name = "run" + std::to_string(i);
    list.runs.push_back(
        {.name = name, .file = name + ".h5", .thread_seconds = seconds[i]});
  }
  return list;
}

std::vector<size_t> SizesOf(const std::vector<Element>& elements) {
  std::vector<size_t> sizes;
  for (const Element& element : elements) sizes.push_back(element.runs.size());
  return sizes;
}

TEST(Divide, GivesEachLongRunItsOwnElementTheLongestFirst) {
  const auto elements = Divide(ListOf({100, 300, 200}), {});
  ASSERT_THAT(elements, SizeIs(3));
  EXPECT_THAT(elements[0].runs, ElementsAre("run1"));
  EXPECT_THAT(elements[1].runs, ElementsAre("run2"));
  EXPECT_THAT(elements[2].runs, ElementsAre("run0"));
}

// 90 runs of 2 s are 180 s: three elements of a minute.
TEST(Divide, PutsShortRunsTogether) {
  const auto elements = Divide(ListOf(std::vector<double>(90, 2)), {});
  EXPECT_THAT(SizesOf(elements), ElementsAre(30, 30, 30));
  EXPECT_THAT(Divide(ListOf(std::vector<double>(90, 2)),
                     {.most_elements = 90, .least_seconds = 0}),
              SizeIs(90));
}

TEST(Divide, KeepsToTheMostElements) {
  const auto elements = Divide(ListOf(std::vector<double>(2500, 100)),
                               {.most_elements = 1000, .least_seconds = 60});
  ASSERT_THAT(elements, SizeIs(1000));
  const auto sizes = SizesOf(elements);
  EXPECT_EQ(*std::ranges::max_element(sizes), 3u);
  EXPECT_EQ(*std::ranges::min_element(sizes), 2u);
}

// Their names are one argument of a program.
TEST(Divide, GivesNoElementMoreThan500Runs) {
  const auto elements = Divide(ListOf(std::vector<double>(1501, 0.001)),
                               {.most_elements = 2, .least_seconds = 60});
  EXPECT_THAT(SizesOf(elements), ElementsAre(376, 375, 375, 375));
}

TEST(Divide, MakesEachRunOnceAndNoneThatHasFinished) {
  const test_support::TemporaryFolder folder;
  campaign::RunList list = ListOf(std::vector<double>(40, 1));
  list.folder = folder.path();
  for (const size_t finished : {3, 17}) {
    std::ofstream(folder.path() / list.runs[finished].file) << "log";
  }
  std::multiset<std::string> made;
  for (const Element& element :
       Divide(list, {.most_elements = 7, .least_seconds = 0})) {
    made.insert(element.runs.begin(), element.runs.end());
    EXPECT_EQ(element.runs.size(), element.files.size());
  }
  EXPECT_EQ(made.size(), 38u);
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()).size(), 38u);
  EXPECT_FALSE(made.contains("run3"));
  EXPECT_FALSE(made.contains("run17"));
}

// The last run of the longest element went to the one that had least, at most
// the mean of the others: so it ends at most by the mean and 1 - 1/m of a run.
TEST(Divide, EndsSoonBehindTheMean) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> seconds(1, 100);
  constexpr double kElements = 8;
  for (int round = 0; round < 50; ++round) {
    std::vector<double> runs(20 + static_cast<size_t>(round));
    double sum = 0;
    for (double& run : runs) sum += run = seconds(random);
    const auto elements = Divide(
        ListOf(runs),
        {.most_elements = static_cast<size_t>(kElements), .least_seconds = 0});
    EXPECT_LE(elements.front().thread_seconds,
              sum / kElements +
                  *std::ranges::max_element(runs) * (1 - 1 / kElements));
  }
}

}  // namespace
}  // namespace isoloss::sweeps::elements_test
