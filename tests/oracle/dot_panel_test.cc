// Many dot products at once are those that Dot() defines, to the bit, and what
// is left out of a comparison changes nothing of it.
#include "isoloss/oracle/dot_panel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "same_row.h"

namespace isoloss::oracle::dot_panel_test {
namespace {

constexpr size_t kDepth = 45;  // no multiple of a vector or a block

/// What rows are made of.
struct Numbers {
  const char* name;
  Grid grid;
  int least_binade;
  int binades;
  std::vector<float> some;  ///< one in eight elements is one of these
};

std::vector<Numbers> AllNumbers() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kTiniest = std::numeric_limits<float>::denorm_min();
  return {
      {"bf16", Grid::kBf16, -2, 5, {}},
      {"fp32", Grid::kFp32, -2, 5, {}},
      {"wide", Grid::kBf16, -40, 80, {0.0f}},
      {"one binade, whose sums tie", Grid::kBf16, 0, 1, {0x1p24f, -0x1p24f}},
      {"few bits", Grid::kBf16, 0, 1, {1.0f, -1.0f, 0.0f}},
      {"zero", Grid::kBf16, -200, 1, {0.0f, -0.0f}},
      {"products are subnormal", Grid::kFp32, -70, 9, {0x1p-75f}},
      {"subnormal", Grid::kFp32, -148, 20, {kTiniest, -kTiniest}},
      {"sums overflow", Grid::kFp32, 60, 4, {kMost, -kMost}},
      {"next to overflow", Grid::kFp32, 59, 2, {0x1p63f}},
      {"infinite", Grid::kFp32, -2, 5, {kInfinity, -kInfinity}},
      {"nan", Grid::kFp32, -2, 5, {std::nanf("")}},
  };
}

Matrix<float> Rows(size_t rows, const Numbers& numbers, uint64_t stream) {
  const CounterRng rng(5, stream);
  Matrix<float> result(rows, kDepth);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto bits = rng.Block(i);
    const double uniform = static_cast<double>(bits[0]) * 0x1p-31 - 1.0;
    const int binade =
        numbers.least_binade +
        static_cast<int>(bits[1] % static_cast<uint32_t>(numbers.binades));
    result.data()[i] = RoundTo(numbers.grid, std::ldexp(uniform, binade));
    if (!numbers.some.empty() && bits[2] % 8 == 0) {
      result.data()[i] = numbers.some[bits[3] % numbers.some.size()];
    }
  }
  return result;
}

void ExpectSame(const Estimate& a, const Estimate& b, const std::string& what) {
  ExpectSameBits(a.exact, b.exact, what + ", exact");
  ExpectSameBits(a.bound, b.bound, what + ", bound");
  ExpectSameBits(a.noise, b.noise, what + ", noise");
}

/// Two rows more than tiles and panels have.
constexpr size_t kLeft = 3 * kDotRows + 2;
constexpr size_t kRight = kDotLanes + 2;

/// On one instruction set, for the time that it exists.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) { kernels::ForceTarget(name); }
  ~ForcedTarget() { kernels::ForceTarget(""); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

class DotPanelOf
    : public testing::TestWithParam<std::tuple<std::string, Numbers>> {
 protected:
  static const Numbers& Param() { return std::get<1>(GetParam()); }

  const ForcedTarget target_{std::get<0>(GetParam())};
  const Matrix<float> left_ = Rows(kLeft, Param(), 1);
  const Matrix<float> right_ = Rows(kRight, Param(), 2);
  const DotSide a_{left_.view()};
  const DotSide b_{right_.view()};
  DotPanel panel_;

  Estimate DotOf(size_t i, size_t j) const {
    return Dot(left_.Row(i), right_.Row(j), kDepth);
  }
  void ExpectSameComparison(const Matrix<float>& addend);
};

TEST_P(DotPanelOf, DotsAreThoseOfDot) {
  DotEstimates out;
  for (size_t first = 0; first < kRight; first += kDotLanes) {
    panel_.Pack(b_, first);
    for (size_t i = 0; i < kLeft; ++i) {
      if (i % kDotRows == 0) panel_.Dots(a_, i, out);
      for (size_t j = 0; j < panel_.count(); ++j) {
        ExpectSame(out[i % kDotRows][j], DotOf(i, first + j), Param().name);
      }
    }
  }
}

TEST_P(DotPanelOf, DotsOfSomeStepsAreThoseOfDot) {
  constexpr size_t kBegin = 3;
  constexpr size_t kEnd = 24;
  DotEstimates out;
  panel_.Pack(b_, 0, kBegin, kEnd);
  panel_.Dots(a_, 0, out);
  for (size_t i = 0; i < kDotRows; ++i) {
    for (size_t j = 0; j < panel_.count(); ++j) {
      ExpectSame(
          out[i][j],
          Dot(left_.Row(i) + kBegin, right_.Row(j) + kBegin, kEnd - kBegin),
          Param().name);
    }
  }
}

TEST_P(DotPanelOf, RoundedDotsRoundToTheSame) {
  std::vector<Estimate> out;
  for (size_t first = 0; first < kRight; first += kDotLanes) {
    panel_.Pack(b_, first);
    panel_.RoundedDots(a_, 1, kLeft, out);
    for (size_t i = 1; i < kLeft; ++i) {
      for (size_t j = 0; j < panel_.count(); ++j) {
        const Estimate& got = out[(i - 1) * kDotLanes + j];
        const Estimate rounded = RoundedOnTheWay(Grid::kBf16, got);
        const Estimate want = RoundedOnTheWay(Grid::kBf16, DotOf(i, first + j));
        ExpectSame(rounded, want, Param().name);
        ExpectSameBits(rounded.jump, want.jump, "jump");
        ExpectSameBits(rounded.jump_probability, want.jump_probability,
                       "its probability");
      }
    }
  }
}

TEST_P(DotPanelOf, MultiplesHaveNoLowerBit) {
  for (size_t i = 0; i < kLeft; ++i) {
    const float* a = left_.Row(i);
    const float* b = right_.Row(i);
    // Each depth ends a vector elsewhere.
    for (size_t depth = 0; depth <= kDepth; ++depth) {
      double lowest = HUGE_VAL;
      double largest = 0.0;
      for (size_t k = 0; k < depth; ++k) {
        const double term =
            static_cast<double>(a[k]) * static_cast<double>(b[k]);
        lowest = std::min(lowest, LowestBit(term));
        largest = std::max(largest, std::fabs(term));
      }
      if (lowest == 0.0 || largest > 0x1p51 * lowest) break;
      const double unit = std::isinf(lowest) ? 1.0 : lowest;
      EXPECT_TRUE(AreMultiples(unit, a, b, depth)) << Param().name;
      EXPECT_EQ(AreMultiples(2.0 * unit, a, b, depth), std::isinf(lowest))
          << Param().name;
    }
  }
}

/// Flips, a wrong value and right ones, without and with an addend.
TEST_P(DotPanelOf, WhatIsNotUncertainIsEqualWithoutAFlip) {
  ExpectSameComparison(Matrix<float>());
  Matrix<float> addend(kLeft, kRight);
  for (size_t i = 0; i < kLeft; ++i) {
    for (size_t j = 0; j < kRight; ++j) {
      // Some cancel the product or leave it in the last bits.
      constexpr double kFactors[] = {0.0, 0.37, -1.0, -0.99, 0x1p-9, 0x1p9};
      const double factor = kFactors[(i + 2 * j) % std::size(kFactors)];
      addend(i, j) = RoundTo(Grid::kBf16, factor * DotOf(i, j).exact);
    }
  }
  ExpectSameComparison(addend);
}

/// Compares what FindUncertain leaves out and finds with all elements.
void DotPanelOf::ExpectSameComparison(const Matrix<float>& addend) {
  const auto sum = [&](size_t i, size_t j, const Estimate& dot) {
    if (addend.size() == 0) return dot;
    const Estimate before = Exactly(static_cast<double>(addend(i, j)));
    return Rounded32(RoundedOnTheWay(Grid::kBf16, dot) + before);
  };
  Matrix<float> values(kLeft, kRight);
  for (size_t i = 0; i < kLeft; ++i) {
    for (size_t j = 0; j < kRight; ++j) {
      values(i, j) = RoundTo(Grid::kBf16, sum(i, j, DotOf(i, j)).exact);
      const size_t kind = (i * kRight + j) % 5;
      if (kind == 0) values(i, j) = Neighbour(Grid::kBf16, values(i, j), true);
      if (kind == 1) values(i, j) += 0x1p-20f * values(i, j);
    }
  }
  Comparison all(Grid::kBf16);
  Comparison uncertain(Grid::kBf16);
  size_t certain = kLeft * kRight;
  DotPairs some;
  std::vector<DotPairs::Pair> pairs;
  std::vector<Estimate> dots;
  for (size_t first = 0; first < kRight; first += kDotLanes) {
    panel_.Pack(b_, first);
    panel_.FindUncertain(a_, values.view(), addend.view(), pairs);
    some.Dots(a_, b_, 0, kDepth, pairs, dots);
    for (size_t n = 0; n < pairs.size(); ++n) {
      const auto [i, j] = pairs[n];
      ExpectSame(dots[n], DotOf(i, j), Param().name);
      uncertain.Add(i, j, values(i, j), sum(i, j, dots[n]));
    }
    certain -= pairs.size();
    for (size_t i = 0; i < kLeft; ++i) {
      for (size_t j = first; j < first + panel_.count(); ++j) {
        all.Add(i, j, values(i, j), sum(i, j, DotOf(i, j)));
      }
    }
  }
  uncertain.AddEqual(certain);

  ExpectSameRow(all.Row(), uncertain.Row(), Param().name);
}

INSTANTIATE_TEST_SUITE_P(
    Targets, DotPanelOf,
    testing::Combine(testing::ValuesIn(kernels::SupportedTargets()),
                     testing::ValuesIn(AllNumbers())),
    [](const auto& param) {
      return fmt::format("{}_{}", std::get<0>(param.param), param.index);
    });

// Otherwise the tests above would say nothing of what is left out. The addend
// is the product itself.
TEST(FindUncertain, LeavesOutMostOfAnOrdinaryProduct) {
  const Numbers numbers = AllNumbers()[0];
  const Matrix<float> left = Rows(64, numbers, 3);
  const Matrix<float> right = Rows(kDotLanes, numbers, 4);
  Matrix<float> values(64, kDotLanes);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < kDotLanes; ++j) {
      values(i, j) =
          RoundTo(Grid::kBf16, Dot(left.Row(i), right.Row(j), kDepth).exact);
    }
  }
  const DotSide a(left.view());
  const DotSide b(right.view());
  DotPanel panel;
  std::vector<DotPairs::Pair> uncertain;

  panel.Pack(b, 0);
  panel.FindUncertain(a, values.view(), {}, uncertain);
  EXPECT_LT(uncertain.size(), values.size() / 8);

  Matrix<float> sums(64, kDotLanes);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double twice = 2.0 * static_cast<double>(values.data()[i]);
    sums.data()[i] = RoundTo(Grid::kBf16, twice);
  }
  panel.FindUncertain(a, sums.view(), values.view(), uncertain);
  EXPECT_LT(uncertain.size(), values.size() / 8);
}

}  // namespace
}  // namespace isoloss::oracle::dot_panel_test
