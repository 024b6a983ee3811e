// What is written is what is read.
#include "isoloss/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "isoloss/base/error.h"
#include "samples.h"

namespace isoloss::checkpoint::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Checkpoint, GivesBackEveryBitAndFact) {
  const TestFolder folder;
  WriteSample(folder.path() / "deep" / "er", 120);

  const Checkpoint read(folder.path() / "deep" / "er" / "step-000120");

  EXPECT_EQ(read.step(), 120);
  EXPECT_THAT(
      read.facts(),
      ElementsAre(Pair("experiment", "name = \"trial\"\n"), Pair("seed", "7")));
  ASSERT_EQ(read.tensors().size(), 3u);
  EXPECT_EQ(read.tensors()[1].name, "none");
  EXPECT_EQ(read.tensors()[1].shape, (std::vector<size_t>{0, 4}));
  ExpectSample(read);
}

TEST(Checkpoint, StateDigestIsThatOfTheTensorsOnly) {
  const TestFolder folder;
  const auto digest_of = [&](const char* name, const char* type, size_t rows,
                             float value, const char* fact, int64_t step) {
    const fs::path path = folder.path() / std::to_string(std::rand());
    Writer writer(path, step,
                  {{.name = name,
                    .type = *type == 'F' ? DataType::kF32 : DataType::kI64,
                    .shape = {rows, 4 / rows}}},
                  {{"fact", fact}});
    if (*type == 'F') {
      writer.Add(std::vector<float>(4, value));
    } else {
      writer.Add(std::vector<int64_t>(4, static_cast<int64_t>(value)));
    }
    const uint64_t digest = writer.Commit();
    EXPECT_EQ(FindNewest(path).checkpoint->state_digest(), digest);
    return digest;
  };

  const uint64_t digest = digest_of("a", "F32", 1, 0.0F, "x", 1);

  EXPECT_EQ(digest_of("a", "F32", 1, 0.0F, "other", 2), digest);
  EXPECT_NE(digest_of("b", "F32", 1, 0.0F, "x", 1), digest);
  EXPECT_NE(digest_of("a", "I64", 1, 0.0F, "x", 1), digest);
  EXPECT_NE(digest_of("a", "F32", 2, 0.0F, "x", 1), digest);
  EXPECT_NE(digest_of("a", "F32", 1, -0.0F, "x", 1), digest);
}

TEST(Checkpoint, RefusesWhatItDoesNotHold) {
  const TestFolder folder;
  WriteSample(folder.path(), 1);
  const Checkpoint read(folder.path() / "step-000001");
  std::vector<float> six(6);
  std::vector<int64_t> integers(6);
  const std::array<size_t, 2> shape = {2, 3};
  const auto kind_of = [](auto&& call) -> std::optional<ErrorKind> {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  };

  EXPECT_EQ(kind_of([&] { read.Read("weights.b", shape, six); }),
            ErrorKind::kFormat);
  EXPECT_EQ(kind_of([&] { read.Read("weights.a", shape, integers); }),
            ErrorKind::kFormat);
  EXPECT_EQ(kind_of([&] {
              read.Read("weights.a", std::array<size_t, 2>{3, 2}, six);
            }),
            ErrorKind::kFormat);
  EXPECT_EQ(
      kind_of([&] { read.Read("weights.a", shape, std::span(six).first(5)); }),
      ErrorKind::kShape);
  EXPECT_EQ(kind_of([&] { read.Read("weights.a", shape, six); }), std::nullopt);
}

TEST(Checkpoint, IsReadableAfterItsFolderWasRemovedButNotAfterItChanged) {
  const TestFolder folder;
  WriteSample(folder.path(), 1);
  const Checkpoint read(folder.path() / "step-000001");
  const fs::path tensors = read.folder() / "tensors.safetensors";
  const std::string bytes = ReadBytes(tensors);

  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  WriteBytes(tensors, changed);
  std::vector<int64_t> counts(2);
  EXPECT_THROW(read.Read("counts", std::array<size_t, 1>{2}, counts), Error);

  WriteBytes(tensors, bytes);
  fs::remove_all(read.folder());
  ExpectSample(read);
}

TEST(Checkpoint, NothingIsFoundWhereThereIsNothing) {
  const TestFolder folder;

  for (const fs::path& path : {folder.path(), folder.path() / "missing"}) {
    EXPECT_FALSE(FindNewest(path).checkpoint);
    EXPECT_TRUE(FindNewest(path).notes.empty());
    EXPECT_FALSE(FindNewestUpTo(path, 5).checkpoint);
  }
}

TEST(Checkpoint, NewestUpToAStepIsTheLastBeforeOrAtIt) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  WriteSample(folder.path(), 20);
  const auto step_up_to = [&](int64_t step) {
    const Found found = FindNewestUpTo(folder.path(), step);
    EXPECT_TRUE(found.notes.empty());
    return found.checkpoint ? found.checkpoint->step() : -1;
  };

  EXPECT_EQ(step_up_to(9), -1);
  EXPECT_EQ(step_up_to(10), 10);
  EXPECT_EQ(step_up_to(19), 10);
  EXPECT_EQ(step_up_to(20), 20);
  EXPECT_EQ(step_up_to(1000), 20);
  EXPECT_EQ(FindNewest(folder.path()).checkpoint->step(), 20);
}

TEST(Checkpoint, FolderUnderAnotherStepsNameIsRefused) {
  const TestFolder folder;
  WriteSample(folder.path(), 10);
  fs::rename(folder.path() / "step-000010", folder.path() / "step-000011");

  const Found found = FindNewestUpTo(folder.path(), 100);

  EXPECT_FALSE(found.checkpoint);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_THAT(found.notes[0], HasSubstr("is that of step 10"));
}

}  // namespace
}  // namespace isoloss::checkpoint::checkpoint_test
