#include "isoloss/base/new_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::new_folder_test {
namespace {

namespace fs = std::filesystem;

class NewFolderTest : public ::testing::Test {
 protected:
  const test_support::TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(NewFolderTest, GoesAwayWithAllThatItMadeIfNothingWasWritten) {
  {
    const NewFolder folder(root_ / "a" / "b" / "c", "");
    EXPECT_TRUE(fs::is_directory(root_ / "a" / "b" / "c"));
  }

  EXPECT_FALSE(fs::exists(root_ / "a"));
  EXPECT_TRUE(fs::exists(root_));
}

TEST_F(NewFolderTest, StaysWithWhatWasWritten) {
  {
    const NewFolder folder(root_ / "a" / "b", "");
    std::ofstream(root_ / "a" / "b" / "file") << "text";
  }

  EXPECT_TRUE(fs::exists(root_ / "a" / "b" / "file"));
}

TEST_F(NewFolderTest, LeavesWhatWasThereBefore) {
  fs::create_directories(root_ / "empty");

  { const NewFolder folder(root_ / "empty", ""); }

  EXPECT_TRUE(fs::exists(root_ / "empty"));
}

TEST_F(NewFolderTest, SaysWhatIsInTheWay) {
  std::ofstream(root_ / "file") << "text";

  try {
    const NewFolder folder(root_ / "file" / "below", "Choose another one.");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("file/below"),
                                 ::testing::HasSubstr("can't be made"),
                                 ::testing::EndsWith("Choose another one.")));
  }
}

}  // namespace
}  // namespace isoloss::new_folder_test
