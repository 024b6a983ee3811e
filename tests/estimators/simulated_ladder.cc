#include "simulated_ladder.h"

#include <algorithm>
#include <cmath>

namespace isoloss::estimators {
namespace {

constexpr double kPercent = 100;

/// Draws a number of standard deviation 1.
double DrawNoise(SeedNoise noise, std::mt19937_64& random) {
  if (noise == SeedNoise::kNormal) {
    return std::normal_distribution<double>()(random);
  }
  // The variance of Student's t with 3 degrees of freedom is 3.
  return std::student_t_distribution<double>(3)(random) / std::sqrt(3.0);
}

}  // namespace

std::vector<Size> DefaultSizes() {
  std::vector<Size> sizes;
  for (const double parameters : {0.34e6, 1.3e6, 3e6, 6.7e6}) {
    for (const double ratio : {1, 4, 20}) {
      sizes.push_back({parameters, ratio * parameters, parameters * 2 / 3});
    }
  }
  return sizes;
}

double UsualLoss(const Size& size) {
  return 1.2 + 20 * std::pow(size.parameters, -0.34) +
         80 * std::pow(size.tokens, -0.3);
}

std::vector<GapCell> DrawCells(const SimulatedLadder& ladder,
                               const RelativeLaw& law,
                               std::mt19937_64& random) {
  const auto [least, most] = std::ranges::minmax(
      ladder.sizes, {}, [](const Size& size) { return size.Flops(); });
  std::vector<GapCell> cells;
  for (const Size& size : ladder.sizes) {
    const double loss = UsualLoss(size);
    const double gap = law(size, random) / kPercent * loss;
    const double share = std::log(size.Flops() / least.Flops()) /
                         std::log(most.Flops() / least.Flops());
    const double spread =
        ladder.spread_nats * std::pow(ladder.spread_growth, share);
    GapCell cell{.name = std::to_string(cells.size()),
                 .size = size,
                 .gaps = {},
                 .baseline = {}};
    for (size_t seed = 0; seed < ladder.seeds; ++seed) {
      cell.gaps.push_back(gap + spread * DrawNoise(ladder.noise, random));
      cell.baseline.push_back(loss + spread * DrawNoise(ladder.noise, random));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

VerdictShares ShareOfVerdicts(const SimulatedLadder& ladder,
                              const RelativeLaw& law, size_t ladders,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t safe = 0;
  size_t unsafe = 0;
  for (size_t i = 0; i < ladders; ++i) {
    const LadderStatement found =
        StateLadder("simulated", "baseline",
                    {{.name = "arm",
                      .recipe = "",
                      .cells = DrawCells(ladder, law, random)}},
                    ladder.question);
    const ScaleVerdict verdict = found.arms[0].sizes[0].verdict;
    safe += verdict == ScaleVerdict::kSafe ? 1 : 0;
    unsafe += verdict == ScaleVerdict::kUnsafe ? 1 : 0;
  }
  const auto count = static_cast<double>(ladders);
  return {static_cast<double>(safe) / count,
          static_cast<double>(unsafe) / count};
}

RelativeLaw EverywhereLaw(double percent) {
  return [percent](const Size&, std::mt19937_64&) { return percent; };
}

RelativeLaw LineLaw(const std::vector<Size>& sizes, double first,
                    const Size& at, double last) {
  double least = at.Flops();
  for (const Size& size : sizes) least = std::min(least, size.Flops());
  const double slope = (last - first) / std::log10(at.Flops() / least);
  return [=](const Size& size, std::mt19937_64&) {
    return first + slope * std::log10(size.Flops() / least);
  };
}

}  // namespace isoloss::estimators
