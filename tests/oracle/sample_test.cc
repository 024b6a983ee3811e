// A sample misses no more wrong elements than its number of draws promises.
#include "isoloss/oracle/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/matrix.h"

namespace isoloss::oracle::sample_test {
namespace {

using Places = std::vector<Place>;

Places Seen(const Sample& sample) {
  Places places;
  sample.ForEach([&](size_t row, size_t column) {
    places.push_back({row, column});
  });
  return places;
}

TEST(Sample, SeesAllElementsIfThereAreNoMoreThanDraws) {
  const CounterRng rng(1, 2);
  for (const Sample& sample : {Sample(3, 4), Sample(3, 4, 12, rng)}) {
    EXPECT_TRUE(sample.all());
    EXPECT_EQ(sample.draws(), 0);
    EXPECT_EQ(sample.seen(), 12);
    const Places places = Seen(sample);
    ASSERT_EQ(places.size(), 12);
    EXPECT_EQ(places[5], (Place{1, 1}));
    EXPECT_TRUE(sample.Sees(2));
    EXPECT_TRUE(sample.Sees(2, 3));
  }
  EXPECT_FALSE(Sample(3, 4, 11, rng).all());
}

TEST(Sample, SeesEachDrawnElementOnceInTheOrderOfRows) {
  const Sample sample(50, 7, 200, CounterRng(1, 2));

  const Places places = Seen(sample);

  EXPECT_EQ(sample.draws(), 200);
  EXPECT_EQ(sample.size(), 350);
  EXPECT_EQ(sample.seen(), places.size());
  EXPECT_LT(places.size(), 200) << "some are drawn twice";
  for (size_t i = 1; i < places.size(); ++i) {
    EXPECT_LT(places[i - 1], places[i]);
  }
  Places by_row;
  Places looked_up;
  for (size_t row = 0; row < 50; ++row) {
    EXPECT_EQ(sample.Sees(row), !sample.In(row, row + 1).empty());
    sample.ForEachIn(row, [&](size_t at, size_t column) {
      by_row.push_back({at, column});
    });
    for (size_t column = 0; column < 7; ++column) {
      if (sample.Sees(row, column)) looked_up.push_back({row, column});
    }
  }
  EXPECT_EQ(by_row, places);
  EXPECT_EQ(looked_up, places);
  const auto some = sample.In(10, 20);
  EXPECT_TRUE(std::ranges::all_of(some, [](const Place& place) {
    return place.row >= 10 && place.row < 20;
  }));
  EXPECT_EQ(sample.In(0, 10).size() + some.size() + sample.In(20, 50).size(),
            places.size());
}

TEST(Sample, FollowsFromItsRandomNumbersAlone) {
  const auto places = [](uint64_t seed, uint64_t stream) {
    return Seen(Sample(100, 100, 50, CounterRng(seed, stream)));
  };
  EXPECT_EQ(places(1, 2), places(1, 2));
  EXPECT_NE(places(1, 2), places(1, 3));
  EXPECT_NE(places(1, 2), places(2, 2));
}

TEST(Sample, DrawsAllElementsEquallyOften) {
  constexpr int kSamples = 20000;
  Matrix<int> counts(4, 5);
  for (int i = 0; i < kSamples; ++i) {
    const Sample sample(4, 5, 1, CounterRng(3, static_cast<uint64_t>(i)));
    sample.ForEach([&](size_t row, size_t column) { ++counts(row, column); });
  }
  const double expected = kSamples / 20.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_NEAR(counts.data()[i], expected, 5 * std::sqrt(expected));
  }
}

/// Returns how many of 2000 samples miss all wrong elements.
int Misses(size_t draws, bool (*is_wrong)(size_t row, size_t column)) {
  int misses = 0;
  for (uint64_t stream = 0; stream < 2000; ++stream) {
    bool found = false;
    Sample(300, 200, draws, CounterRng(4, stream))
        .ForEach([&](size_t row, size_t column) {
          found = found || is_wrong(row, column);
        });
    misses += found ? 0 : 1;
  }
  return misses;
}

// (1 - 1 / 100)^230 = 0.0991, and 688 draws miss them with a chance of 0.001.
TEST(Sample, MissesEachHundredthElementAsOftenAsPromised) {
  const auto each_hundredth = [](size_t row, size_t column) {
    return (row * 200 + column) % 100 == 7;
  };
  const auto three_rows = [](size_t row, size_t) { return row >= 297; };
  const auto two_columns = [](size_t, size_t column) { return column < 2; };
  for (const auto& is_wrong : {+each_hundredth, +three_rows, +two_columns}) {
    EXPECT_NEAR(Misses(230, is_wrong), 198, 5 * std::sqrt(198));
    EXPECT_LE(Misses(688, is_wrong), 10);
  }
}

}  // namespace
}  // namespace isoloss::oracle::sample_test
