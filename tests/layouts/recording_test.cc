// Meshes and the files of a run.
#include "isoloss/layouts/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::layouts::recording_test {
namespace {

using ::testing::ElementsAre;

TEST(Recording, ReadsAxesOfAMesh) {
  const auto mesh = MeshOf("dp_shard=2 tp=4", "f");

  ASSERT_EQ(mesh.size(), 2U);
  EXPECT_EQ(mesh[1].name, "tp");
  EXPECT_EQ(mesh[1].size, 4U);
  for (const char* bad : {"tp", "tp=", "=2", "tp=0", "tp=2x", "tp=99999999"}) {
    EXPECT_THROW(MeshOf(bad, "f"), Error) << bad;
  }
}

TEST(Recording, PlacementsNeedAWordForEachAxis) {
  const auto mesh = MeshOf("dp=2 tp=2", "f");
  operations::Floats tensor;
  tensor.placements = "Replicate Shard(1)";
  EXPECT_THAT(PlacementsOf(tensor, mesh), ElementsAre("Replicate", "Shard(1)"));
  tensor.placements = "Replicate";
  EXPECT_TRUE(PlacementsOf(tensor, mesh).empty());
}

TEST(Recording, OfAFolderIsOneRun) {
  const test_support::TemporaryFolder folder;
  const auto touch = [&](const std::string& name) {
    std::ofstream(folder.path() / name) << "x";
    return folder.path() / name;
  };
  const auto first = touch("a.rank-0.operations-000001.h5");
  touch("a.h5");
  EXPECT_THAT(FilesOf(folder.path()), ElementsAre(first));

  const auto other = touch("b.rank-0.operations-000001.h5");
  EXPECT_THROW(FilesOf(folder.path()), Error);
  EXPECT_THAT(FilesOf(folder.path() / "b"), ElementsAre(other));
  EXPECT_THAT(FilesOf(folder.path() / "b.h5"), ElementsAre(other));
  EXPECT_THROW(FilesOf(folder.path() / "c"), Error);
}

}  // namespace
}  // namespace isoloss::layouts::recording_test
