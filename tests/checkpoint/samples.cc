#include "samples.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

namespace isoloss::checkpoint {

namespace fs = std::filesystem;

TestFolder::TestFolder() {
  // Memory where there is such a folder: thousands of small files are synced.
  const fs::path memory = "/dev/shm";
  const fs::path parent =
      ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  std::string pattern = (parent / "isoloss-checkpoint-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<TensorInfo> SampleTensors() {
  return {{.name = "weights.a", .type = DataType::kF32, .shape = {2, 3}},
          {.name = "none", .type = DataType::kF32, .shape = {0, 4}},
          {.name = "counts", .type = DataType::kI64, .shape = {2}}};
}

std::vector<float> SampleMatrix(int64_t step) {
  return {static_cast<float>(step),
          -0.0F,
          std::numeric_limits<float>::denorm_min(),
          1.0F / 3,
          std::numeric_limits<float>::max(),
          -2.5F};
}

std::vector<int64_t> SampleCounts(int64_t step) {
  return {step, std::numeric_limits<int64_t>::min()};
}

void WriteSample(const fs::path& checkpoints, int64_t step) {
  Writer writer(checkpoints, step, SampleTensors(),
                {{"experiment", "name = \"trial\"\n"}, {"seed", "7"}});
  writer.Add(SampleMatrix(step));
  writer.Add(std::vector<float>());
  writer.Add(SampleCounts(step));
  const uint64_t digest = writer.Commit();
  EXPECT_NE(digest, 0u);
}

void ExpectSample(const Checkpoint& checkpoint) {
  std::vector<float> matrix(6);
  std::vector<int64_t> counts(2);
  checkpoint.Read("weights.a", std::array<size_t, 2>{2, 3}, matrix);
  checkpoint.Read("counts", std::array<size_t, 1>{2}, counts);
  // All values differ from NaN and -0 is told by its sign.
  EXPECT_EQ(matrix, SampleMatrix(checkpoint.step()));
  EXPECT_TRUE(std::signbit(matrix[1]));
  EXPECT_EQ(counts, SampleCounts(checkpoint.step()));
}

std::string ReadBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace isoloss::checkpoint
