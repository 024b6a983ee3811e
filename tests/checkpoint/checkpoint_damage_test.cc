// Every flipped byte and every cut is found, and an older checkpoint taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "samples.h"

namespace isoloss::checkpoint::checkpoint_damage_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Steps 10 and 20, of which 20 gets damaged.
class DamageTest : public testing::Test {
 protected:
  DamageTest() {
    WriteSample(folder_.path(), 10);
    WriteSample(folder_.path(), 20);
  }

  fs::path newest() const { return folder_.path() / "step-000020"; }

  /// Expects step 10 instead, and a note.
  void ExpectOlder(const std::string& damage) {
    const Found found = FindNewest(folder_.path());
    ASSERT_TRUE(found.checkpoint) << damage;
    EXPECT_EQ(found.checkpoint->step(), 10) << damage;
    EXPECT_FALSE(found.notes.empty()) << damage;
    ExpectSample(*found.checkpoint);
  }

  void FlipEveryByteOf(const char* file) {
    const std::string bytes = ReadBytes(newest() / file);
    ASSERT_FALSE(bytes.empty());
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int mask : {0x01, 0x80}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ mask);
        WriteBytes(newest() / file, damaged);
        ExpectOlder(std::string(file) + " byte " + std::to_string(i));
        if (HasFailure()) return;
      }
    }
  }

  void CutEverywhere(const char* file) {
    const std::string bytes = ReadBytes(newest() / file);
    for (size_t size = 0; size < bytes.size(); ++size) {
      WriteBytes(newest() / file, bytes.substr(0, size));
      ExpectOlder(std::string(file) + " cut to " + std::to_string(size));
      if (HasFailure()) return;
    }
    WriteBytes(newest() / file, bytes + '\0');
    ExpectOlder(std::string(file) + " with a byte more");
  }

  TestFolder folder_;
};

TEST_F(DamageTest, EveryFlippedByteOfTheManifestIsFound) {
  FlipEveryByteOf("manifest.json");
}

TEST_F(DamageTest, EveryFlippedByteOfHeaderAndTensorsIsFound) {
  FlipEveryByteOf("tensors.safetensors");
}

TEST_F(DamageTest, EveryCutIsFound) {
  CutEverywhere("manifest.json");
  WriteSample(folder_.path(), 20);
  CutEverywhere("tensors.safetensors");
}

TEST_F(DamageTest, MissingFilesAreFound) {
  fs::remove(newest() / "manifest.json");
  ExpectOlder("no manifest");
  WriteSample(folder_.path(), 20);
  fs::remove(newest() / "tensors.safetensors");
  ExpectOlder("no tensors");
  fs::create_directory(newest() / "tensors.safetensors");
  ExpectOlder("a folder for a file");
}

TEST_F(DamageTest, DamagedTensorIsNamed) {
  std::string bytes = ReadBytes(newest() / "tensors.safetensors");
  bytes[bytes.size() - 3] ^= 4;
  WriteBytes(newest() / "tensors.safetensors", bytes);

  const Found found = FindNewest(folder_.path());

  EXPECT_THAT(found.notes, testing::Contains(testing::AllOf(
                               HasSubstr("step-000020/tensors.safetensors"),
                               HasSubstr("tensor `counts` has digest"))));
}

TEST_F(DamageTest, WhateverLatestSaysAWholeOneIsTakenAndItIsNoted) {
  const fs::path latest = folder_.path() / "LATEST";
  const std::string bytes = ReadBytes(latest);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int mask = 1; mask < 256; ++mask) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      WriteBytes(latest, damaged);
      const Found found = FindNewest(folder_.path());
      ASSERT_TRUE(found.checkpoint);
      EXPECT_FALSE(found.notes.empty()) << i << " " << mask;
      ExpectSample(*found.checkpoint);
    }
  }
  for (const char* text :
       {"", "\n", "step-000020\n\n", "step-20", "step--00020", "../step-000020",
        "step-99999999999999999999"}) {
    WriteBytes(latest, text);
    const Found found = FindNewest(folder_.path());
    EXPECT_EQ(found.checkpoint->step(), 20) << text;
    EXPECT_EQ(found.notes.size(), 1u) << text;
  }
  fs::remove(latest);
  EXPECT_EQ(FindNewest(folder_.path()).notes.size(), 1u);
}

TEST_F(DamageTest, NothingIsFoundIfAllAreDamagedAndEachIsNoted) {
  fs::remove(newest() / "manifest.json");
  WriteBytes(folder_.path() / "step-000010" / "manifest.json", "{}");

  const Found found = FindNewest(folder_.path());

  EXPECT_FALSE(found.checkpoint);
  EXPECT_EQ(found.notes.size(), 2u);
}

}  // namespace
}  // namespace isoloss::checkpoint::checkpoint_damage_test
