#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/studies/claim.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;

TEST(PublishedClaims, AllCanBeTrained) {
  size_t claims = 0;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(ISOLOSS_PUBLISHED)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    ++claims;

    // Refuses arms and shares of steps that the experiments lack.
    const ClaimPlan plan = ReadClaimPlan({.folder = entry.path()});

    for (const StudyCell& cell : plan.study.cells) {
      EXPECT_GE(cell.experiment.arms.size(), 2u) << cell.name;
      EXPECT_GE(cell.experiment.train.seeds.size(), 4u) << cell.name;
    }
    EXPECT_TRUE(fs::exists(entry.path() / "README.md"));
    EXPECT_TRUE(fs::exists(entry.path() / "claim.svg"));
  }
  EXPECT_GE(claims, 12u);
}

/// A claim in a folder of its own, of dsv3-nano on a synthetic corpus.
class ClaimFolder {
 public:
  explicit ClaimFolder(const std::string& contrast) {
    Write("experiment.toml", R"(name = "one"
[model]
preset = "dsv3-nano"
[data]
source = "synthetic"
[train]
steps = 40
warmup_steps = 10
[log]
eval_every = 20
[arms.bf16]
recipe = "bf16"
[arms.unused]
recipe = "mxfp4_floor"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)");
    Write("claim.toml", R"(title = "t"
statement = "s"
[source]
paper = "p"
section = "1"
published = "x"
here = "y"
[[contrasts]]
name = "c"
says = "d"
relation = "above"
bound = 0
reference = "bf16"
)" + contrast);
  }
  fs::path path() const { return folder_.path(); }

 private:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
  }
  TemporaryFolder folder_;
};

std::string RefusalOf(const std::string& contrast) {
  const ClaimFolder folder(contrast);
  try {
    ReadClaimPlan({.folder = folder.path()});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ClaimPlan, LeavesOutArmsThatNoContrastNames) {
  const ClaimFolder folder("measure = \"gap\"\narm = \"mxfp8\"\n");

  const ClaimPlan plan = ReadClaimPlan({.folder = folder.path()});

  const auto& arms = plan.study.cells.at(0).experiment.arms;
  ASSERT_EQ(arms.size(), 2u);
  EXPECT_EQ(arms[0].name, "bf16");
  EXPECT_EQ(arms[1].name, "mxfp8");
}

TEST(ClaimPlan, RefusesWhatTheExperimentLacks) {
  EXPECT_NE(RefusalOf("measure = \"gap\"\narm = \"mxfp9\"\n")
                .find("names arm mxfp9, but the experiment has bf16, unused, "
                      "mxfp8"),
            std::string::npos);
  EXPECT_NE(RefusalOf("measure = \"gap\"\narm = \"mxfp8\"\nat = 0.75\n")
                .find("at step 30 of 40, but they are measured every 20 steps"),
            std::string::npos);
}

TEST(ClaimPlan, SaysWhatFewerSeedsCantShow) {
  const ClaimFolder folder("measure = \"divergence\"\narm = \"mxfp8\"\n");

  const ClaimPlan own = ReadClaimPlan({.folder = folder.path(), .seeds = 4});
  const ClaimPlan fewer = ReadClaimPlan({.folder = folder.path(), .seeds = 3});

  EXPECT_TRUE(own.notes.empty());
  // 1 / binomial(6, 3) = 0.05 lies above 0.025.
  ASSERT_EQ(fewer.notes.size(), 1u);
  EXPECT_NE(fewer.notes[0].find("p is 0.05 at best"), std::string::npos);
}

}  // namespace
}  // namespace isoloss::studies
