// How often ladders whose law is known are called safe. ladder_simulation
// prints the same with more ladders and laws.
#include "simulated_ladder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/estimators/size_text.h"

namespace isoloss::estimators::simulated_ladder_test {
namespace {

constexpr size_t kLadders = 1000;
constexpr double kMargin = 0.25;

SimulatedLadder Default(size_t seeds) {
  return {
      .sizes = DefaultSizes(),
      .seeds = seeds,
      .question = {.sizes = {ParseSize("16B@50B")}, .margin_percent = kMargin}};
}

/// Returns four standard errors of a share of kLadders.
double FourErrors(double share) {
  return 4 * std::sqrt(share * (1 - share) / static_cast<double>(kLadders));
}

// These are the bars of a ladder that can answer. The true shares are 99.9,
// 98.7, 89.8 and 99.9 %, so that each lies more than four errors above its bar.
TEST(ShareOfVerdicts, DecidesWithTwelveSizesOf32Seeds) {
  const SimulatedLadder ladder = Default(32);
  const auto shares = [&](double gap) {
    return ShareOfVerdicts(ladder, EverywhereLaw(gap), kLadders, 1);
  };

  EXPECT_GE(shares(0).safe, 0.95);
  EXPECT_GE(shares(0.05).safe, 0.95);
  EXPECT_GE(shares(0.1).safe, 0.85);
  EXPECT_GE(shares(0.5).unsafe, 0.95);
}

// More seeds make SAFE of a gap inside the margin no rarer. A difference of two
// shares has at most sqrt(2) times the errors of one share of a half.
TEST(ShareOfVerdicts, IsConsistent) {
  for (const double gap : {0.0, 0.1, 0.2}) {
    double fewer = 0;
    for (const size_t seeds : {8, 32, 128}) {
      const double safe =
          ShareOfVerdicts(Default(seeds), EverywhereLaw(gap), kLadders, seeds)
              .safe;
      EXPECT_GE(safe, fewer - std::sqrt(2.0) * FourErrors(0.5))
          << gap << " " << seeds;
      fewer = safe;
    }
    // The error at 128 seeds is 0.026 %, so that 0.2 % lies 1.9 errors inside
    // the margin: P(z > 1.65 - 1.9) = 0.6.
    EXPECT_GE(fewer, gap < 0.2 ? 1 - FourErrors(0.01) : 0.6 - FourErrors(0.6))
        << gap;
  }
}

// At the margin each error has 5 %, whatever the slope, the seeds and their
// spread.
TEST(ShareOfVerdicts, ErrsSeldomOnTheMargin) {
  const double most = 0.05 + FourErrors(0.05);
  for (const size_t seeds : {8, 32}) {
    for (const double growth : {0.25, 1.0, 4.0}) {
      for (const SeedNoise noise :
           {SeedNoise::kNormal, SeedNoise::kStudentT3}) {
        SimulatedLadder ladder = Default(seeds);
        ladder.spread_growth = growth;
        ladder.noise = noise;
        const RelativeLaw law =
            LineLaw(ladder.sizes, 0, ladder.question.sizes.front(), kMargin);

        const VerdictShares found = ShareOfVerdicts(ladder, law, kLadders, 3);

        EXPECT_LE(found.safe, most) << seeds << " " << growth;
        EXPECT_LE(found.unsafe, most) << seeds << " " << growth;
      }
    }
  }
}

// A test of the margin that never errs would hold its bars, too: with a spread
// of a quarter at the top the interval fits into the margin, and one in twenty
// ladders is safe.
TEST(ShareOfVerdicts, ErrsAsOftenAsItMay) {
  SimulatedLadder ladder = Default(32);
  ladder.spread_growth = 0.25;

  const double safe =
      ShareOfVerdicts(ladder, EverywhereLaw(kMargin), kLadders, 4).safe;

  EXPECT_GE(safe, 0.05 - FourErrors(0.05));
}

// The number of seeds that a ladder of eight names makes an arm without a gap
// safe in about 90 %. The spread is estimated, which takes some 2 % (Jensen).
TEST(ShareOfVerdicts, KnowsHowManySeedsDo) {
  std::mt19937_64 random(5);
  double safe = 0;
  for (size_t i = 0; i < kLadders; ++i) {
    SimulatedLadder ladder = Default(8);
    ladder.seeds =
        StateLadder("name", "bf16",
                    {{.name = "a",
                      .recipe = "",
                      .cells = DrawCells(ladder, EverywhereLaw(0), random)}},
                    ladder.question)
            .arms[0]
            .sizes[0]
            .seeds_without_gap;
    safe += ShareOfVerdicts(ladder, EverywhereLaw(0), 1, random()).safe;
  }

  EXPECT_NEAR(safe / static_cast<double>(kLadders), 0.9,
              0.02 + FourErrors(0.9));
}

}  // namespace
}  // namespace isoloss::estimators::simulated_ladder_test
