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
