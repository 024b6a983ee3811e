// What is far from flips as a Reach gives the same result as an Estimate.
#include "isoloss/oracle/reach.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "same_row.h"

namespace isoloss::oracle::reach_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Draws numbers of a few kinds. Half of them are ordinary.
class Numbers {
 public:
  uint64_t Below(uint64_t n) { return rng_.Below(next_++, n); }

  Estimate Draw() {
    // No element is far from flips if many inputs are odd.
    if (Below(2) == 0) return Exactly(Ordinary());
    const double exact = Below(4) == 0 ? Odd() : Ordinary();
    Estimate a = {.exact = exact};
    a.noise = std::fabs(exact) * OneOf({0.0, 0x1p-26, 0x1p-20, 0x1p-12});
    a.bound = a.noise * OneOf({1.0, 10.0, 1000.0});
    if (Below(20) == 0) a.bound = OneOf({kInfinity, kNan, 0x1p127});
    if (Below(10) == 0) {
      a.jump_probability = OneOf({1e-9, 0.25});
      a.jump = exact * 0x1p-8;
    }
    return a;
  }

 private:
  double OneOf(const std::vector<double>& values) {
    return values[Below(values.size())];
  }
  /// Numbers of few bits are often near a tie of BF16.
  double Ordinary() {
    const double few = static_cast<double>(Below(1 << 9)) - 200.0;
    return Below(2) == 0 ? few : few * 0x1p-8 + rng_.Uniform(next_++) * 0x1p-12;
  }
  double Odd() {
    return OneOf({0.0, -0.0, 1.0 + 0x1p-8, 1.0 + 0x1p-8 + 0x1p-30, 0x1p-133,
                  -0x1p-149, 0x1p-118, 0x1p119, 0x1.fffffep127, -0x1p128,
                  kInfinity, -kInfinity, kNan});
  }

  const CounterRng rng_{11, 3};
  uint64_t next_ = 0;
};

/// A formula is a random chain of operations of random inputs.
struct Chain {
  static constexpr size_t kOperations = 4;

  explicit Chain(Numbers& numbers) {
    for (Estimate& input : inputs) input = numbers.Draw();
    for (uint64_t& operation : operations) operation = numbers.Below(6);
  }

  template <typename Number>
  Number operator()() const {
    estimates += std::is_same_v<Number, Estimate> ? 1 : 0;
    Number x = inputs[kOperations];
    for (size_t n = 0; n < kOperations; ++n) {
      const Number y = inputs[n];
      switch (operations[n]) {
        case 0:
          x = x + y;
          break;
        case 1:
          x = Difference(x, y);
          break;
        case 2:
          x = Product(x, y);
          break;
        case 3:
          x = x * inputs[n].exact;
          break;
        case 4:
          x = Rounded32(x);
          break;
        default:
          x = RoundedOnTheWay(Grid::kBf16, Rounded32(x));
      }
    }
    return Rounded32(x);
  }

  std::array<Estimate, kOperations + 1> inputs;
  std::array<uint64_t, kOperations> operations;
  mutable int estimates = 0;
};

constexpr int kChains = 100'000;

TEST(Reach, FollowsTheEstimateWhereItIsCertain) {
  Numbers numbers;
  int certain = 0;
  for (int n = 0; n < kChains; ++n) {
    const Chain chain(numbers);
    const auto reach = chain.operator()<Reach>();
    if (!reach.certain) continue;
    ++certain;
    const auto estimate = chain.operator()<Estimate>();
    ExpectSameBits(reach.exact, estimate.exact, "exact");
    EXPECT_EQ(estimate.jump_probability, 0.0);
    // Each of a dozen operations of double rounds by 2^-53.
    EXPECT_GE(reach.reach * (1.0 + 0x1p-48), 8.0 * estimate.noise);
  }
  EXPECT_GT(certain, kChains / 4) << "else the test says little";
}

/// Values are right, next to it, elsewhere or no numbers.
TEST(Reach, AddsElementsAsEstimatesDo) {
  Numbers numbers;
  Comparison by_formulas(Grid::kBf16);
  Comparison by_estimates(Grid::kBf16);
  int shortcuts = 0;
  for (int n = 0; n < kChains; ++n) {
    const Chain chain(numbers);
    const auto expected = chain.operator()<Estimate>();
    const float want = RoundTo(Grid::kBf16, expected.exact);
    const float values[] = {want,
                            want,
                            want,
                            want,
                            Neighbour(Grid::kBf16, want, true),
                            Neighbour(Grid::kBf16, want, false),
                            want * (1.0f + 0x1p-20f),
                            -want,
                            0.0f,
                            std::numeric_limits<float>::infinity(),
                            std::nanf("")};
    const float value = values[numbers.Below(std::size(values))];
    const auto row = static_cast<size_t>(n);
    chain.estimates = 0;
    by_formulas.AddResult(row, 0, value, chain);
    shortcuts += chain.estimates == 0 ? 1 : 0;
    by_estimates.Add(row, 0, value, expected);
  }
  ExpectSameRow(by_formulas.Row(), by_estimates.Row(), "bf16");
  EXPECT_GT(by_estimates.Row().expected_flips, 0.0);
  EXPECT_GT(by_estimates.Row().flips, 0);
  EXPECT_GT(shortcuts, kChains / 10) << "else it saves nothing";
}

TEST(Reach, IsNoShortcutOnOtherGrids) {
  const auto formula = []<typename Number>() -> Number {
    EXPECT_FALSE((std::is_same_v<Number, Reach>));
    return Exactly(1.0);
  };
  for (const Grid grid : {Grid::kFp32, Grid::kFp16}) {
    Comparison comparison(grid);
    comparison.AddResult(0, 0, 1.0f, formula);
    EXPECT_EQ(comparison.Row().equal, 1);
    EXPECT_FALSE(RoundedOnTheWay(grid, Reach(Exactly(1.0))).certain);
  }
}

// One example each of what must not be certain.
TEST(Reach, EndsNextToABoundary) {
  const double tie = 1.5 + 0x1p-8;
  const auto is_far = [](float value, const Estimate& expected) {
    return IsFarFromFlips(value, Rounded32(Reach(expected)));
  };
  EXPECT_TRUE(is_far(1.5f, Exactly(tie - 0x1p-20)));
  EXPECT_FALSE(is_far(1.5f, Exactly(tie - 0x1p-21)));
  EXPECT_FALSE(is_far(1.5f, Exactly(tie)));
  EXPECT_TRUE(is_far(1.5f, {.exact = tie - 0x1p-12, .noise = 0x1p-16}));
  EXPECT_FALSE(is_far(1.5f, {.exact = tie - 0x1p-12, .noise = 0x1p-15}));
  // Below a power of two numbers lie half as far apart.
  EXPECT_TRUE(is_far(1.0f, Exactly(1.0 - 0x1p-10)));
  EXPECT_FALSE(is_far(1.0f, Exactly(1.0 - 0x1p-9 + 0x1p-22)));
}

TEST(Reach, IsUncertainOfJumpsAndOfWhatMayOverflow) {
  EXPECT_FALSE(IsFarFromFlips(1.0f, Reach(1.0, 0.0, /*surely=*/false)));
  for (const Estimate& a :
       {Estimate{.exact = 1.0, .jump_probability = 1e-12},
        Estimate{.exact = 1.0, .bound = kInfinity},
        Estimate{.exact = 1.0, .bound = kNan}, Estimate{.exact = 0x1p121},
        Estimate{.exact = kNan}, Estimate{.exact = -kInfinity}}) {
    EXPECT_FALSE(Rounded32(Reach(a)).certain) << a.exact;
    EXPECT_FALSE(Rounded32(Reach(Exactly(1.0)) + a).certain) << a.exact;
  }
  for (const float value : {0.0f, 0x1p-130f, 0x1p121f}) {
    const Reach exact = Exactly(static_cast<double>(value));
    EXPECT_FALSE(IsFarFromFlips(value, exact)) << value;
  }
}

}  // namespace
}  // namespace isoloss::oracle::reach_test
