// What a writer leaves, whole or not.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "samples.h"

namespace isoloss::checkpoint::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Writer, KeepsTheNewestTwo) {
  const TestFolder folder;
  for (const int64_t step : {10, 20, 30, 40}) WriteSample(folder.path(), step);

  EXPECT_THAT(NamesIn(folder.path()),
              ElementsAre("LATEST", "step-000030", "step-000040"));
}

TEST(Writer, ARunThatWentBackLeavesTheLaterOnesUntilItGetsThere) {
  const TestFolder folder;
  for (const int64_t step : {10, 20, 30}) WriteSample(folder.path(), step);

  WriteSample(folder.path(), 15);

  EXPECT_THAT(
      NamesIn(folder.path()),
      ElementsAre("LATEST", "step-000015", "step-000020", "step-000030"));
  const Found found = FindNewest(folder.path());
  EXPECT_EQ(found.checkpoint->step(), 15);
  EXPECT_EQ(found.notes.size(), 2u);
  for (const int64_t step : {20, 30}) WriteSample(folder.path(), step);
  EXPECT_THAT(NamesIn(folder.path()),
              ElementsAre("LATEST", "step-000020", "step-000030"));
}

TEST(Writer, ReplacesOneOfTheSameStep) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  Writer writer(folder.path(), 10, {{.name = "other", .shape = {1}}}, {});
  writer.Add(std::vector<float>{1.5F});
  writer.Commit();

  const Found found = FindNewest(folder.path());

  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->tensors()[0].name, "other");
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("LATEST", "step-000010"));
}

TEST(Writer, LeavesNothingIfItIsNotCommitted) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  {
    Writer writer(folder.path(), 20, SampleTensors(), {});
    writer.Add(SampleMatrix(20));
    EXPECT_EQ(NamesIn(folder.path()).size(), 3u);
  }

  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("LATEST", "step-000010"));
}

TEST(Writer, RemovesWhatTheDeadLeftAndOnlyThat) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  const fs::path dead = folder.path() / ".step-000020.tmp-1";
  const fs::path alive = folder.path() / ".step-000020.tmp-2";
  fs::create_directory(dead);
  WriteBytes(dead / "tensors.safetensors", "torn");
  WriteBytes(folder.path() / ".LATEST.1-0.tmp", "step");
  fs::create_directory(alive);
  const int lock = ::open(alive.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);

  WriteSample(folder.path(), 20);

  EXPECT_THAT(NamesIn(folder.path()),
              ElementsAre(".step-000020.tmp-2", "LATEST", "step-000010",
                          "step-000020"));
  ::close(lock);
}

TEST(Writer, ACheckpointThatWasSetAsideIsFoundAndThenRemoved) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  WriteSample(folder.path(), 20);
  fs::rename(folder.path() / "step-000020",
             folder.path() / ".step-000020.old-1");

  const Found found = FindNewest(folder.path());

  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->step(), 20);
  EXPECT_EQ(found.notes.size(), 2u);
  WriteSample(folder.path(), 20);
  EXPECT_THAT(NamesIn(folder.path()),
              ElementsAre("LATEST", "step-000010", "step-000020"));
}

TEST(Writer, RefusesWhatWasNotAnnounced) {
  const TestFolder folder;
  Writer writer(folder.path(), 1, SampleTensors(), {});

  EXPECT_THAT(
      ErrorOf(ErrorKind::kShape, [&] { writer.Add(std::vector<float>(5)); }),
      HasSubstr("`weights.a` was announced with 24 bytes"));
  EXPECT_THAT(
      ErrorOf(ErrorKind::kShape, [&] { writer.Add(std::vector<int64_t>(3)); }),
      HasSubstr("24 of another type"));
  writer.Add(SampleMatrix(1));
  EXPECT_THAT(ErrorOf(ErrorKind::kShape, [&] { writer.Commit(); }),
              HasSubstr("3 tensors were announced, but 1 were given"));
  ErrorOf(ErrorKind::kFormat, [&] {
    Writer twice(folder.path(), 2,
                 {{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}},
                 {});
  });
}

TEST(Writer, SaysWhereAndWhyAFolderCannotBeUsed) {
  const TestFolder folder;
  WriteBytes(folder.path() / "file", "");

  EXPECT_THAT(
      ErrorOf(ErrorKind::kIo,
              [&] { WriteSample(folder.path() / "file" / "x", 1); }),
      testing::AllOf(HasSubstr("file/x"), HasSubstr("Not a directory")));
}

TEST(Writer, AFullDiskIsFoundBeforeAnythingIsWrittenAndHarmsNothing) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  constexpr rlim_t kLimit = 4096;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full = {.rlim_cur = kLimit, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);

  const std::string error = ErrorOf(ErrorKind::kIo, [&] {
    Writer writer(folder.path(), 20, {{.name = "large", .shape = {kLimit}}},
                  {});
  });
  // Tensors that fit, and a manifest that does not.
  const std::string later = ErrorOf(ErrorKind::kIo, [&] {
    Writer writer(folder.path(), 20, {{.name = "small", .shape = {1}}},
                  {{"text", std::string(kLimit, 'x')}});
    writer.Add(std::vector<float>(1));
    writer.Commit();
  });

  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("tensors.safetensors: can't reserve its space: "
                               "File too large. Make room"));
  EXPECT_THAT(later, HasSubstr("manifest.json: can't write: File too large"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("LATEST", "step-000010"));
  ExpectSample(*FindNewest(folder.path()).checkpoint);
}

}  // namespace
}  // namespace isoloss::checkpoint::checkpoint_writer_test
