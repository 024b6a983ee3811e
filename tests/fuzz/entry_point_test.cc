// Runs an entry point of libFuzzer without libFuzzer, so that it never rots.
#include "fuzz/entry_point.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "isoloss/base/rng.h"

__attribute__((weak)) std::vector<std::string> FuzzSeeds() { return {}; }

namespace isoloss::entry_point_test {
namespace {

void RunOne(const std::string& input) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(
                reinterpret_cast<const uint8_t*>(input.data()), input.size()),
            0);
}

TEST(EntryPoint, TakesItsSeeds) {
  const std::vector<std::string> seeds = FuzzSeeds();
  const char* folder = std::getenv("ISOLOSS_FUZZ_SEEDS");

  for (size_t i = 0; i < seeds.size(); ++i) {
    RunOne(seeds[i]);
    if (folder == nullptr) continue;
    std::filesystem::create_directories(folder);
    std::ofstream(std::filesystem::path(folder) / std::to_string(i),
                  std::ios::binary)
        << seeds[i];
  }
}

#ifdef ISOLOSS_FUZZ_CORPUS
TEST(EntryPoint, TakesItsCorpus) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ISOLOSS_FUZZ_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    RunOne(content.str());
    ++count;
  }
  EXPECT_GT(count, 0);
}
#endif

TEST(EntryPoint, TakesFlipsAndCutsOfItsSeeds) {
  std::vector<std::string> seeds = FuzzSeeds();
  seeds.push_back(std::string(64, '\0'));
  const CounterRng rng(30, StreamId("flips and cuts of seeds"));

  for (uint64_t trial = 0; trial < 2000; ++trial) {
    std::string input = seeds[trial % seeds.size()];
    const auto draw = [&](uint64_t index, uint64_t bound) {
      return static_cast<size_t>(rng.Below(16 * trial + index, bound));
    };
    for (uint64_t flip = 0; flip < trial % 7 && !input.empty(); ++flip) {
      char& byte = input[draw(flip, input.size())];
      byte = static_cast<char>(byte ^ (1 << draw(8 + flip, 8)));
    }
    if (trial % 3 == 0) input.resize(draw(15, input.size() + 1));
    RunOne(input);
  }
}

TEST(EntryPoint, TakesBytesAtRandom) {
  const CounterRng rng(31, StreamId("bytes at random"));

  for (uint64_t trial = 0; trial < 1000; ++trial) {
    std::string input(trial % 200, '\0');
    for (size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<char>(rng.Bits(1000 * trial + i));
    }
    RunOne(input);
  }
}

}  // namespace
}  // namespace isoloss::entry_point_test
