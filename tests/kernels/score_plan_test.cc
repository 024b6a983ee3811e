#include "isoloss/kernels/score_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace isoloss::kernels::score_plan_test {
namespace {

using testing::ElementsAre;

/// Returns one number of each block of a wave.
std::vector<size_t> Each(const ScoreWave& wave, size_t ScoreBlock::*of) {
  std::vector<size_t> result;
  for (const ScoreBlock& block : wave.blocks) result.push_back(block.*of);
  return result;
}

TEST(ScorePlan, ListsBlocksByFirstQueryInWaves) {
  const std::vector<size_t> ends = {70, 70, 71, 201};
  ScorePlan plan(kHostMemory);

  plan.List({ends, 1, false, 15'000});

  ASSERT_EQ(plan.size(), 2u);
  const ScoreWave wave = plan.Wave(0);
  EXPECT_EQ(wave.there, wave.blocks.data());
  EXPECT_THAT(Each(wave, &ScoreBlock::number), ElementsAre(0, 2, 3, 0));
  EXPECT_THAT(Each(wave, &ScoreBlock::begin), ElementsAre(0, 70, 71, 0));
  EXPECT_THAT(Each(wave, &ScoreBlock::first), ElementsAre(0, 0, 0, 64));
  EXPECT_THAT(Each(wave, &ScoreBlock::rows), ElementsAre(64, 1, 64, 6));
  EXPECT_THAT(Each(wave, &ScoreBlock::place), ElementsAre(0, 4096, 4112, 8208));
  EXPECT_THAT(Each(wave, &ScoreBlock::next), ElementsAre(3, 0, 0, 0));
  EXPECT_THAT(Each(wave, &ScoreBlock::rows_end), ElementsAre(64, 65, 129, 135));
  EXPECT_THAT(Each(wave, &ScoreBlock::score_tiles_end),
              ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(Each(wave, &ScoreBlock::key_tiles_end), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(wave.scores(), 8208u + 6 * 70);
  // Keys before its blocks are those of the first block.
  const ScoreWave rest = plan.Wave(1);
  EXPECT_THAT(Each(rest, &ScoreBlock::first), ElementsAre(64, 128));
  EXPECT_THAT(Each(rest, &ScoreBlock::first_of), ElementsAre(0, 128));
  EXPECT_THAT(Each(rest, &ScoreBlock::key_tiles_end), ElementsAre(2, 3));
  EXPECT_EQ(plan.most_scores(), wave.scores());
}

TEST(ScorePlan, AWholeDocumentIsOneBlock) {
  const std::vector<size_t> ends = {130, 150};
  ScorePlan plan(kHostMemory);

  plan.List({ends, 2, true, 1});

  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan.Wave(1).blocks.front().head, 1u);
  EXPECT_EQ(plan.Wave(1).blocks.front().rows, 130u);
  EXPECT_EQ(plan.Wave(1).blocks.front().key_tiles_end, 3u);
  EXPECT_EQ(plan.Wave(3).blocks.front().keys(), 20u);
}

TEST(ScorePlan, ListsAnewIfTheBatchDiffers) {
  std::vector<size_t> ends = {5, 9};
  ScorePlan plan(kHostMemory);
  plan.List({ends, 1, false, 70});
  const auto lengths = [&plan] {
    return Each(plan.Wave(0), &ScoreBlock::length);
  };
  EXPECT_THAT(lengths(), ElementsAre(5, 4));

  plan.List({ends, 1, false, 70});
  EXPECT_THAT(lengths(), ElementsAre(5, 4));
  plan.List({ends, 2, false, 70});
  EXPECT_THAT(lengths(), ElementsAre(5, 5));
  plan.List({ends, 2, false, 200});
  EXPECT_THAT(lengths(), ElementsAre(5, 5, 4, 4));
  ends = {2, 9};
  plan.List({ends, 2, false, 200});
  EXPECT_THAT(lengths(), ElementsAre(2, 2, 7, 7));
  plan.List({{}, 2, false, 200});
  EXPECT_EQ(plan.size(), 0u);
}

}  // namespace
}  // namespace isoloss::kernels::score_plan_test
