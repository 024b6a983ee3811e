// Small checkpoints whose every value is known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/checkpoint/checkpoint.h"

namespace isoloss::checkpoint {

/// A folder of the running test, empty at first, removed at the end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<TensorInfo> SampleTensors();
/// Values that differ from step to step.
std::vector<float> SampleMatrix(int64_t step);    // "weights.a" [2, 3]
std::vector<int64_t> SampleCounts(int64_t step);  // "counts" [2]

/// Writes SampleTensors (an empty one between the two) as step `step`.
void WriteSample(const std::filesystem::path& checkpoints, int64_t step);
/// Expects SampleTensors with the values of its step.
void ExpectSample(const Checkpoint& checkpoint);

std::string ReadBytes(const std::filesystem::path& path);
void WriteBytes(const std::filesystem::path& path, std::string_view bytes);

/// Names of all entries, sorted.
std::vector<std::string> NamesIn(const std::filesystem::path& folder);

}  // namespace isoloss::checkpoint
