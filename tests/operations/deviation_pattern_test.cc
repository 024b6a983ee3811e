// Planted patterns are told, and chance is not.
#include "isoloss/operations/deviation_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::operations::deviation_pattern_test {
namespace {

using oracle::Grid;

constexpr int64_t kElements = int64_t{1} << 20;

/// Draws the places and values of one arrangement.
class Draws {
 public:
  explicit Draws(uint64_t stream) : rng_(47, stream) {}

  size_t Below(size_t bound) { return rng_.Below(index_++, bound); }
  /// Returns a number of [1, 2) or its negative, of random bits of the grid.
  float Value(Grid grid) {
    const auto word = static_cast<uint32_t>(rng_.Bits(index_++));
    const uint32_t kept = grid == Grid::kFp32   ? 0x807FFFFF
                          : grid == Grid::kFp16 ? 0x807FE000
                                                : 0x807F0000;
    return std::bit_cast<float>((word & kept) | 0x3F800000);
  }

 private:
  CounterRng rng_;
  uint64_t index_ = 0;
};

constexpr uint32_t kBit21 = 1u << 21;

float Changed(float value, uint32_t mask) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ mask);
}
float Flipped(float value, size_t bit) {
  return Changed(value, uint32_t{1} << bit);
}

struct Planted {
  size_t count = 20;
  size_t rows = 1024;
  size_t columns = 1024;
  /// Says whether a place has the pattern.
  std::function<bool(size_t row, size_t column)> has = nullptr;
};

/// Returns deviations in the bits of `mask` at random places of the pattern.
Deviations Plant(const Planted& planted, uint32_t mask = kBit21,
                 uint64_t stream = 0) {
  Draws draws(stream);
  Deviations deviations(Grid::kFp32, planted.rows, planted.columns);
  while (deviations.count() < static_cast<int64_t>(planted.count)) {
    const size_t row = draws.Below(planted.rows);
    const size_t column = draws.Below(planted.columns);
    if (planted.has != nullptr && !planted.has(row, column)) continue;
    const float predicted = draws.Value(Grid::kFp32);
    deviations.Add(row, column, Changed(predicted, mask), predicted);
  }
  return deviations;
}

void ExpectShortSentences(const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(". ", begin), text.size());
    const std::string sentence = text.substr(begin, end - begin);
    EXPECT_LE(std::ranges::count(sentence, ' ') + 1, 30) << sentence;
    begin = end == text.size() ? end : end + 2;
  }
}

std::string TextOf(const Planted& planted) {
  const std::string text = PatternText(
      Plant(planted), static_cast<int64_t>(planted.rows * planted.columns));
  ExpectShortSentences(text);
  return text;
}

/// Expects this end of the sentence on 20 elements of a result of 1024 x 1024.
void ExpectPlaces(const std::function<bool(size_t, size_t)>& has,
                  const std::string& places) {
  EXPECT_EQ(TextOf({.has = has}),
            "20 elements of 1,048,576 differ from the predicted bits, all in "
            "bit 21" +
                places);
}

TEST(DeviationPattern, IsEmptyWithoutDeviations) {
  EXPECT_EQ(PatternText(Deviations(Grid::kBf16, 4, 4), 16), "");
}

TEST(DeviationPattern, TellsPlaceAndBitOfOneElement) {
  Deviations one(Grid::kBf16, 1024, 1024);
  one.Add(5, 7, -1.0f, 1.0f);

  EXPECT_EQ(PatternText(one, kElements),
            "1 element of 1,048,576 differs from the predicted bits, in bit "
            "15, from 0 to 1, at row 5, column 7.");
}

TEST(DeviationPattern, TellsUnitAndBitsOfOneElement) {
  // The FP16 numbers 1 and the one below are 0x3C00 and 0x3BFF.
  Deviations one(Grid::kFp16, 8, 8);
  one.Add(1, 2, 1.0f, 1.0f - 0x1p-11f);

  EXPECT_EQ(PatternText(one, 64),
            "1 element of 64 differs from the predicted bits, in 11 bits up to "
            "bit 10, at row 1, column 2. It differs by one unit in the last "
            "place, which may be another order of sums, and no sick GPU.");
}

TEST(DeviationPattern, ThreeElementsHaveOneBitByNoChance) {
  Deviations three(Grid::kFp32, 1024, 1024);
  for (const size_t place : {3, 500, 812}) {
    three.Add(place, 1000 - place, Flipped(1.5f, 21), 1.5f);
  }

  EXPECT_EQ(PatternText(three, kElements),
            "3 elements of 1,048,576 differ from the predicted bits, all in "
            "bit 21. Their places (row, column) follow no pattern: (3, 997), "
            "(500, 500) and (812, 188).");
}

TEST(DeviationPattern, TellsRowsAndColumnsOfTiles) {
  ExpectPlaces([](size_t row, size_t) { return row % 64 / 8 == 1; },
               ", in rows 8 to 15 of tiles of 64.");
  ExpectPlaces([](size_t row, size_t) { return row % 8 == 3; },
               ", in rows 3, 11, 19, ... (every 8th).");
  ExpectPlaces([](size_t, size_t column) { return column % 32 == 31; },
               ", in columns 31, 63, 95, ... (every 32nd).");
  ExpectPlaces([](size_t, size_t column) { return column % 128 / 16 == 5; },
               ", in columns 80 to 95 of tiles of 128.");
}

TEST(DeviationPattern, TellsOneLaneOfAFragment) {
  // Lane 13 of a warp has these elements of each 8 x 8 part of a result of
  // `mma.m16n8`: row 13 / 4, columns 2 * (13 % 4) and the next.
  ExpectPlaces(
      [](size_t row, size_t column) {
        return row % 8 == 3 && column % 8 / 2 == 1;
      },
      ", in rows 3, 11, 19, ... (every 8th) and columns 2 to 3 of tiles of 8.");
}

TEST(DeviationPattern, TellsRowsColumnsAndTiles) {
  ExpectPlaces([](size_t row, size_t) { return row == 77; }, ", in row 77.");
  ExpectPlaces([](size_t, size_t column) { return column == 0; },
               ", in column 0.");
  ExpectPlaces(
      [](size_t row, size_t) { return row == 5 || row == 90 || row == 1023; },
      ", in rows 5, 90 and 1023.");
  ExpectPlaces([](size_t row, size_t) { return row / 64 == 3; },
               ", in rows 192 to 255.");
  ExpectPlaces([](size_t row,
                  size_t column) { return row / 32 == 2 && column / 32 == 31; },
               ", in the tile of 32 x 32 at (row, column) (64, 992).");
  ExpectPlaces(
      [](size_t row, size_t column) {
        return row / 128 == column / 128 && row / 128 % 4 == 1;
      },
      ", in 2 tiles of 128 x 128, at (row, column) (128, 128) and (640, 640).");
}

TEST(DeviationPattern, TellsARangeThatIsNoTile) {
  // 300 rows are drawn often enough that the first and the last one are known.
  const std::string text =
      TextOf({.count = 4000, .has = [](size_t row, size_t) {
                return row >= 100 && row < 400;
              }});

  EXPECT_NE(text.find(", in rows 100 to 399."), std::string::npos) << text;
}

TEST(DeviationPattern, TellsALaneInOneTile) {
  ExpectPlaces(
      [](size_t row, size_t column) {
        return row / 128 == 2 && column / 128 == 7 && row % 8 == 6;
      },
      ", in rows 6, 14, 22, ... (every 8th). All lie in the tile of 128 x 128 "
      "at (row, column) (256, 896).");
}

TEST(DeviationPattern, FewElementsTellWhatTheyCan) {
  // Seven are enough for one row of eight: p^n S / w = 8^-7 * 14 * 10 is below
  // 1e-3 / 5; six are not.
  const auto lane = [](size_t row, size_t) { return row % 8 == 1; };
  EXPECT_NE(TextOf({.count = 7, .has = lane}).find("(every 8th). They are at"),
            std::string::npos);
  EXPECT_NE(TextOf({.count = 6, .has = lane}).find("follow no pattern"),
            std::string::npos);
  // Three are enough for one row of 1024, 1024^-2 * 24 < 1e-3 / 5; two are not.
  const auto row = [](size_t r, size_t) { return r == 99; };
  EXPECT_NE(TextOf({.count = 3, .has = row}).find(", in row 99."),
            std::string::npos);
  EXPECT_NE(TextOf({.count = 2, .has = row}).find("follow no pattern"),
            std::string::npos);
}

/// Returns `count` deviations whose pairs of values `change` makes.
std::string BitsText(
    Grid grid, size_t count,
    const std::function<float(float predicted, Draws& draws)>& change,
    uint64_t stream = 1) {
  Draws draws(stream);
  Deviations deviations(grid, 1024, 1024);
  while (deviations.count() < static_cast<int64_t>(count)) {
    const float predicted = draws.Value(grid);
    const size_t row = draws.Below(1024);
    deviations.Add(row, draws.Below(1024), change(predicted, draws), predicted);
  }
  const std::string text = PatternText(deviations, kElements);
  ExpectShortSentences(text);
  return text;
}

constexpr char kHundred[] =
    "100 elements of 1,048,576 differ from the predicted bits";

TEST(DeviationPattern, TellsAStuckBit) {
  const auto stuck = [](float predicted, Draws&) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(predicted) | 1u << 20);
  };

  // Bit 20 of FP32 is bit 4 of BF16 and bit 7 of FP16.
  EXPECT_EQ(BitsText(Grid::kFp32, 100, stuck),
            std::string(kHundred) +
                ", all in bit 20, always from 0 to 1. They are spread over the "
                "result.");
  EXPECT_NE(BitsText(Grid::kBf16, 100, stuck).find("bit 4, always from 0 to 1"),
            std::string::npos);
  EXPECT_NE(BitsText(Grid::kFp16, 100, stuck).find("bit 7, always from 0 to 1"),
            std::string::npos);
}

TEST(DeviationPattern, TellsTheBitOfMost) {
  size_t number = 0;
  const std::string text =
      BitsText(Grid::kFp32, 100, [&](float predicted, Draws&) {
        return number++ % 20 == 0 ? std::nextafter(predicted, 0.0f)
                                  : Flipped(predicted, 18);
      });

  EXPECT_EQ(text, std::string(kHundred) +
                      ", 95 of them in bit 18 alone. They are spread over the "
                      "result.");
}

TEST(DeviationPattern, TellsFlipsOfSingleBits) {
  EXPECT_EQ(BitsText(Grid::kFp32, 100,
                     [](float predicted, Draws& draws) {
                       return Flipped(predicted, draws.Below(31));
                     }),
            std::string(kHundred) +
                ", each in exactly one bit. They are spread over the result.");
}

TEST(DeviationPattern, CutsALongSentence) {
  Draws draws(3);
  Deviations deviations(Grid::kFp32, 1024, 1024);
  for (size_t bit = 0; bit < 20; ++bit) {
    deviations.Add(8 * draws.Below(128) + 3, 8 * draws.Below(128) + 5,
                   Flipped(1.5f, bit), 1.5f);
  }

  EXPECT_EQ(PatternText(deviations, kElements),
            "20 elements of 1,048,576 differ from the predicted bits, each in "
            "exactly one bit. All lie in rows 3, 11, 19, ... (every 8th) and "
            "columns 5, 13, 21, ... (every 8th).");
}

TEST(DeviationPattern, TellsOneUnitApartFromASickGpu) {
  EXPECT_EQ(BitsText(Grid::kBf16, 100,
                     [](float predicted, Draws& draws) {
                       return oracle::Neighbour(Grid::kBf16, predicted,
                                                draws.Below(2) == 0);
                     }),
            std::string(kHundred) +
                ". They are spread over the result. All differ by one unit in "
                "the last place, which may be another order of sums, and no "
                "sick GPU.");
}

/// Counts the arrangements, of 1000, whose text has none of `parts`.
int CountWithout(const std::vector<std::string>& parts,
                 const std::function<std::string(uint64_t stream)>& text) {
  int count = 0;
  for (uint64_t stream = 0; stream < 1000; ++stream) {
    const std::string found = text(stream);
    ExpectShortSentences(found);
    count += std::ranges::none_of(parts, [&](const std::string& part) {
      return found.find(part) != std::string::npos;
    });
  }
  return count;
}

// A wrong statement has a probability of at most 1e-3, so that 1000
// arrangements have 1 on average. Poisson's law gives 8 or more with 1e-5.
constexpr int kMostWrong = 7;

TEST(DeviationPattern, ChancePlacesAreNoPattern) {
  struct Size {
    size_t rows;
    size_t columns;
  };
  for (const Size& size : {Size{16, 64}, {129, 40}, {1024, 3}, {4096, 16384}}) {
    for (const size_t count : {2, 3, 9, 60}) {
      const int wrong = CountWithout(
          {"follow no pattern", "spread over"}, [&](uint64_t stream) {
            return PatternText(
                Plant({count, size.rows, size.columns}, kBit21, stream),
                kElements);
          });
      EXPECT_LE(wrong, kMostWrong)
          << size.rows << " x " << size.columns << ", " << count;
    }
  }
}

TEST(DeviationPattern, ChanceBitsAreNoPattern) {
  // A sum moves by a unit of some partial sum: each is half as frequent as the
  // one below.
  const auto moved = [](float predicted, Draws& draws) {
    const int units = std::countr_zero(draws.Below(size_t{1} << 20) | 1u << 20);
    const auto word = std::bit_cast<uint32_t>(predicted);
    const uint32_t change = uint32_t{1} << units;
    return std::bit_cast<float>(draws.Below(2) == 0 ? word + change
                                                    : word - change);
  };
  const auto flipped = [](float predicted, Draws& draws) {
    return Flipped(predicted, draws.Below(32));
  };
  for (const size_t count : {2, 3, 10}) {
    for (const auto& change :
         {std::function<float(float, Draws&)>(moved), {flipped}}) {
      const int same = CountWithout(
          {"bits, all in bit", "bits, 1", "bits, 5"}, [&](uint64_t stream) {
            return BitsText(Grid::kFp32, count, change, stream);
          });
      EXPECT_GE(same, 1000 - kMostWrong) << count;
    }
    const int single = CountWithout({"each in exactly"}, [&](uint64_t stream) {
      return BitsText(Grid::kFp32, count, moved, stream);
    });
    EXPECT_GE(single, 1000 - kMostWrong) << count;
  }
}

TEST(DeviationPattern, TasksAndTheirOrderChangeNothing) {
  const auto has = [](size_t row, size_t) { return row % 8 == 3; };
  std::vector<Deviations> parts;
  for (uint64_t stream = 0; stream < 5; ++stream) {
    parts.push_back(Plant({.count = 4, .has = has}, kBit21, stream));
  }
  Deviations up(Grid::kFp32, 1024, 1024);
  Deviations down = up;
  for (size_t i = 0; i < parts.size(); ++i) {
    up.Merge(parts[i]);
    down.Merge(parts[parts.size() - 1 - i]);
  }

  EXPECT_EQ(up.count(), 20);
  EXPECT_EQ(PatternText(up, kElements), PatternText(down, kElements));
  EXPECT_NE(PatternText(up, kElements).find("(every 8th)"), std::string::npos);
}

TEST(DeviationPattern, EqualNumbersAreNoDeviations) {
  Deviations deviations(Grid::kFp32, 8, 8);
  deviations.Add(0, 0, 0.0f, -0.0f);
  deviations.Add(0, 1, 2.0f, 2.0f);
  deviations.Add(0, 2, std::nanf("1"), -std::nanf("2"));

  EXPECT_EQ(deviations.count(), 0);
}

TEST(DeviationPattern, TakesResultsOfAnySize) {
  constexpr size_t kHuge = size_t{1} << 31;
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  Deviations deviations(Grid::kFp32, kHuge, kHuge);
  for (size_t i = 0; i < 100'000; ++i) {
    deviations.Add(kHuge - 1 - i % 3, kHuge - 1 - i * 20'011,
                   i % 2 == 0 ? kInfinite : std::nanf(""), 1.0f);
  }

  const std::string text =
      PatternText(deviations, std::numeric_limits<int64_t>::max());

  ExpectShortSentences(text);
  EXPECT_EQ(text,
            "100,000 elements of 9,223,372,036,854,775,807 differ from the "
            "predicted bits, all in rows 2147483645 to 2147483647.");
}

TEST(DeviationPattern, TakesResultsInWhichAllDiffer) {
  Deviations deviations(Grid::kBf16, 100, 300);
  for (size_t row = 0; row < 100; ++row) {
    for (size_t column = 0; column < 300; ++column) {
      deviations.Add(row, column, 3.0f, 7.5f);
    }
  }

  EXPECT_EQ(PatternText(deviations, 30'000),
            "30,000 elements of 30,000 differ from the predicted bits. They "
            "are spread over the result.");
}

TEST(DeviationPattern, SeveralProductsShareALane) {
  // Four elements of one row of eight may be chance; eight are not.
  const auto has = [](size_t row, size_t) { return row % 8 == 3; };
  const Deviations first =
      Plant({.count = 4, .rows = 100, .has = has}, kBit21, 1);
  const Deviations second =
      Plant({.count = 4, .rows = 2048, .columns = 64, .has = has}, kBit21, 2);
  const Deviations none(Grid::kBf16, 10, 10);
  const std::vector<const Deviations*> all = {&none, &first, &second};

  EXPECT_EQ(PatternText(first, kElements).find("(every"), std::string::npos);
  EXPECT_EQ(CommonPatternText(all, kElements),
            "8 elements of 1,048,576 in 2 products differ from the predicted "
            "bits, all in bit 21, in rows 3, 11, 19, ... (every 8th).");
}

TEST(DeviationPattern, SeveralProductsShareNothingByChance) {
  const int silent = CountWithout({"differ"}, [](uint64_t stream) {
    std::vector<Deviations> results;
    for (const size_t rows : {20, 129, 300}) {
      results.push_back(Plant({5, rows, 48}, 3 * kBit21, 1000 * rows + stream));
    }
    const std::vector<const Deviations*> all = {&results[0], &results[1],
                                                &results[2]};
    return CommonPatternText(all, kElements);
  });

  EXPECT_GE(silent, 1000 - kMostWrong);
}

TEST(DeviationPattern, OneProductSharesNothing) {
  const Deviations one = Plant({});
  const std::vector<const Deviations*> all = {&one};

  EXPECT_EQ(CommonPatternText(all, kElements), "");
}

}  // namespace
}  // namespace isoloss::operations::deviation_pattern_test
