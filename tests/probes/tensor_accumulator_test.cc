// Statistics of whole tensors against plain loops in extended precision, and
// that no division of the rows among threads and processes shows.
#include "isoloss/probes/tensor_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "reference_statistics.h"
#include "support/mx_elements.h"

namespace isoloss::probes::tensor_accumulator_test {
namespace {

using formats::NonFinitePolicy;
using formats::Quantization;
using formats::ScaleRule;
using namespace runlog;  // NOLINT(google-build-using-namespace): kStat_…

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
const float kNan = std::nanf("");

Quantization Spec(std::string_view element, ScaleRule mode = ScaleRule::kRceil,
                  NonFinitePolicy policy = NonFinitePolicy::kBlockNan) {
  return {&formats::FormatByName(element), mode, policy};
}

/// Full significands over eleven binades, zeros; `wild`: any bits in a tenth.
Matrix<float> Noise(size_t rows, size_t cols, bool wild = false) {
  const CounterRng rng(31, rows * 1000 + cols);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t choice = rng.Bits(2 * i + 1);
    const auto uniform = static_cast<float>(rng.Uniform(2 * i) - 0.5);
    values.data()[i] = std::ldexp(uniform, static_cast<int>(choice % 11) - 5);
    if (choice % 17 == 3) values.data()[i] = choice % 2 != 0 ? 0.0f : -0.0f;
    if (wild && choice % 10 == 7) {
      values.data()[i] =
          std::bit_cast<float>(static_cast<uint32_t>(choice >> 32));
    }
  }
  return values;
}

Matrix<float> Row(const std::vector<float>& elements) {
  Matrix<float> values(1, elements.size());
  std::copy(elements.begin(), elements.end(), values.data());
  return values;
}

model::Tensor TensorOf(const Matrix<float>& values,
                       const Quantization* rowwise = nullptr,
                       const Quantization* columnwise = nullptr) {
  model::Tensor tensor;
  tensor.values = values.view();
  tensor.rowwise = rowwise;
  tensor.columnwise = columnwise;
  return tensor;
}

TensorStatistics StatisticsOf(const model::Tensor& tensor, int threads = 1) {
  Executor executor(threads);
  TensorAccumulator accumulator;
  accumulator.Add(tensor, executor);
  return accumulator.Finish();
}

/// Every bit, but all NaN are one.
std::vector<uint64_t> Bits(const TensorStatistics& statistics) {
  std::vector<uint64_t> bits;
  for (const double value : statistics.values) {
    bits.push_back(std::isnan(value) ? ~uint64_t{0}
                                     : std::bit_cast<uint64_t>(value));
  }
  for (const int32_t n : statistics.e8m0_histogram) bits.push_back(n);
  for (const int32_t n : statistics.e8m0_histogram_columnwise) {
    bits.push_back(n);
  }
  return bits;
}

/// `starts` as in ReferenceOf.
void ExpectReference(const model::Tensor& tensor,
                     const std::vector<size_t>& starts,
                     const std::string& what) {
  const TensorStatistics actual = StatisticsOf(tensor);
  const ReferenceStatistics reference = ReferenceOf(tensor, starts);
  for (size_t i = 0; i < kTensorStatisticCount; ++i) {
    const auto value = static_cast<long double>(actual.values[i]);
    const auto found = reference.values.find(i);
    if (found == reference.values.end() || std::isnan(found->second.value)) {
      EXPECT_TRUE(std::isnan(value))
          << what << ": " << kTensorStatistics[i].name;
      continue;
    }
    const auto& [expected, bound] = found->second;
    EXPECT_TRUE(value == expected || std::fabs(value - expected) <= bound)
        << what << ": " << kTensorStatistics[i].name << " is " << value
        << ", expected " << expected << " +- " << bound;
  }
  for (size_t byte = 0; byte < kScaleBytes; ++byte) {
    EXPECT_EQ(actual.e8m0_histogram[byte], reference.bytes[byte])
        << what << byte;
    EXPECT_EQ(actual.e8m0_histogram_columnwise[byte],
              reference.bytes_columnwise[byte])
        << what << byte;
  }
}

TEST(TensorAccumulator, EqualsTheReferenceForEverySpec) {
  const Matrix<float> plain = Noise(70, 65);
  const Matrix<float> wild = Noise(45, 97, true);
  for (const formats::Format* element : formats::MxElements()) {
    for (const ScaleRule mode : {ScaleRule::kFloor, ScaleRule::kCeil,
                                 ScaleRule::kEven, ScaleRule::kRceil}) {
      for (const auto policy :
           {NonFinitePolicy::kBlockNan, NonFinitePolicy::kTe}) {
        const Quantization spec = {element, mode, policy};
        const std::string what =
            std::string(element->name) + " " +
            std::string(formats::ScaleRuleName(mode)) + " " +
            std::string(formats::NonFinitePolicyName(policy));
        ExpectReference(TensorOf(plain, &spec, &spec), {}, what);
        ExpectReference(TensorOf(wild, &spec, &spec), {}, what + ", wild");
      }
    }
  }
}

TEST(TensorAccumulator, EqualsTheReferenceForAwkwardShapes) {
  const Quantization spec = Spec("e4m3");
  const size_t shapes[][2] = {{0, 8},  {1, 1},    {2, 1},   {33, 1},
                              {1, 33}, {31, 32},  {32, 33}, {64, 64},
                              {5, 0},  {3, 1025}, {40, 300}};
  for (const auto& [rows, cols] : shapes) {
    const Matrix<float> values = Noise(rows, cols);
    const std::string what = std::to_string(rows) + "x" + std::to_string(cols);
    ExpectReference(TensorOf(values, &spec, &spec), {}, what);
    ExpectReference(TensorOf(values), {}, what + ", not quantised");
    ExpectReference(TensorOf(values, &spec), {}, what + ", rows only");
    ExpectReference(TensorOf(values, nullptr, &spec), {}, what + ", columns");
  }
}

TEST(TensorAccumulator, EqualsTheReferenceForSpecialValues) {
  const Quantization rows = Spec("e4m3");
  const Quantization te = Spec("e5m2", ScaleRule::kFloor, NonFinitePolicy::kTe);
  const std::vector<std::vector<float>> specials = {
      std::vector<float>(40, 0.0f),
      std::vector<float>(40, -0.0f),
      std::vector<float>(40, kNan),
      {kInf, -kInf, 1.0f},
      {kNan, 0.0f, 2.0f},
      std::vector<float>(33, kSubnormal),
      {kSubnormal, 0x1p-127f, -0x1p-126f, 0.0f},
      {0x1.fffffep127f, -0x1.fffffep127f, 1.0f},
      {1.0f},
      {0.0f},
      {kNan}};
  for (size_t i = 0; i < specials.size(); ++i) {
    const Matrix<float> values = Row(specials[i]);
    ExpectReference(TensorOf(values, &rows, &te), {}, std::to_string(i));
    ExpectReference(TensorOf(values, &te, &rows), {}, std::to_string(i));
  }
}

TEST(TensorAccumulator, BlocksDownColumnsStartAnewAtEachSegmentOfEachGroup) {
  const Quantization spec = Spec("e4m3");
  const Matrix<float> values = Noise(150, 40);
  model::Tensor tensor = TensorOf(values, &spec, &spec);
  // Groups of 70, 0 and 80 rows; two segments each, some empty.
  const std::vector<size_t> begins = {0, 70, 70, 150};
  const std::vector<size_t> ends = {33, 70, 0, 0, 80, 80};
  tensor.rows.begins = begins;
  ExpectReference(tensor, {70}, "groups");
  tensor.rows.segment_ends = ends;
  ExpectReference(tensor, {33, 70}, "segments");

  const double other =
      StatisticsOf(TensorOf(values, &spec, &spec)).values[kStat_mse_columnwise];
  EXPECT_NE(StatisticsOf(tensor).values[kStat_mse_columnwise], other);
}

TEST(TensorAccumulator, RowsThatFillSegmentsUpAreInNoFigure) {
  const Quantization spec = Spec("e4m3");
  const Matrix<float> values = Noise(150, 40);
  const std::vector<size_t> begins = {0, 70, 70, 150};
  const std::vector<size_t> ends = {33, 70, 0, 0, 80, 80};
  model::Tensor plain = TensorOf(values, &spec, &spec);
  plain.rows.begins = begins;
  plain.rows.segment_ends = ends;
  // Each segment filled up to a multiple of 32 rows: 64 + 64, none, 96 + 0.
  const std::vector<size_t> padded_begins = {0, 128, 128, 224};
  const std::vector<size_t> padded_ends = {64, 128, 0, 0, 96, 96};
  const std::vector<size_t> used = {33, 37, 0, 0, 80, 0};
  Matrix<float> with_padding(224, 40);
  std::fill_n(with_padding.data(), with_padding.size(), kNan);
  for (size_t i = 0; i < values.rows(); ++i) {
    const size_t row = i < 33 ? i : i < 70 ? i + 31 : i + 58;
    std::copy_n(values.Row(i), 40, with_padding.Row(row));
  }
  model::Tensor padded = TensorOf(with_padding, &spec, &spec);
  padded.rows = {.begins = padded_begins,
                 .segment_ends = padded_ends,
                 .segment_rows = used};

  EXPECT_EQ(Bits(StatisticsOf(padded)), Bits(StatisticsOf(plain)));
  EXPECT_EQ(Bits(StatisticsOf(padded, 3)), Bits(StatisticsOf(plain)));
}

TEST(TensorAccumulator, ViewOfAWiderMatrixGivesTheSame) {
  const Quantization spec = Spec("e4m3");
  const Matrix<float> narrow = Noise(40, 60);
  Matrix<float> wide(40, 70);
  for (size_t i = 0; i < 40; ++i) {
    std::copy_n(narrow.Row(i), 60, wide.Row(i) + 3);
  }
  model::Tensor view = TensorOf(wide, &spec, &spec);
  view.values = wide.cview().Cols(3, 60);

  EXPECT_EQ(Bits(StatisticsOf(view)),
            Bits(StatisticsOf(TensorOf(narrow, &spec, &spec))));
}

TEST(TensorAccumulator, NoThreadShows) {
  const Quantization spec = Spec("e4m3");
  const Matrix<float> values = Noise(200, 300, true);
  const model::Tensor tensor = TensorOf(values, &spec, &spec);
  const auto expected = Bits(StatisticsOf(tensor, 1));

  EXPECT_EQ(Bits(StatisticsOf(tensor, 2)), expected);
  EXPECT_EQ(Bits(StatisticsOf(tensor, 3)), expected);
}

/// What processes that hold some rows each make of a tensor.
TensorStatistics Merged(const std::vector<model::Tensor>& parts) {
  Executor executor(1);
  std::vector<int64_t> sums;
  std::vector<double> maxima;
  for (const model::Tensor& part : parts) {
    TensorAccumulator accumulator;
    accumulator.Add(part, executor);
    std::vector<int64_t> part_sums;
    std::vector<double> part_maxima;
    accumulator.Pack(part_sums, part_maxima);
    sums.resize(part_sums.size(), 0);
    maxima.resize(part_maxima.size(), -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part_sums[i];
    for (size_t i = 0; i < maxima.size(); ++i) {
      maxima[i] = std::max(maxima[i], part_maxima[i]);
    }
  }
  // More numbers follow, of the next tensor.
  sums.push_back(77);
  maxima.push_back(7.5);
  std::span<const int64_t> rest_of_sums(sums);
  std::span<const double> rest_of_maxima(maxima);
  TensorAccumulator merged;
  merged.Unpack(rest_of_sums, rest_of_maxima);
  EXPECT_EQ(rest_of_sums.size(), 1u);
  EXPECT_EQ(rest_of_maxima.size(), 1u);
  return merged.Finish();
}

TEST(TensorAccumulator, NoDivisionAmongProcessesShows) {
  // Segments of 40 rows, which no process divides.
  const Quantization spec = Spec("e4m3");
  const Quantization te = Spec("e5m2", ScaleRule::kEven, NonFinitePolicy::kTe);
  for (const bool wild : {false, true}) {
    const Matrix<float> values = Noise(240, 70, wild);
    const std::vector<size_t> ends = {40, 80, 120, 160, 200, 240};
    model::Tensor whole = TensorOf(values, &spec, &te);
    whole.rows.segment_ends = ends;
    const auto expected = Bits(StatisticsOf(whole));
    // Orders of six segments over processes of one, two and three of them, and
    // of none.
    const std::vector<std::vector<size_t>> orders = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}};
    for (const std::vector<size_t>& order : orders) {
      std::vector<model::Tensor> parts;
      for (const size_t segment : order) {
        model::Tensor part = whole;
        part.values = values.cview().Rows(40 * segment, 40);
        part.rows.segment_ends = std::span(ends).first(1);
        parts.push_back(part);
      }
      ASSERT_EQ(Bits(Merged(parts)), expected);
    }
    model::Tensor low = whole;
    low.values = values.cview().Rows(0, 80);
    low.rows.segment_ends = std::span(ends).first(2);
    model::Tensor none = whole;
    none.values = values.cview().Rows(0, 0);
    none.rows.segment_ends = {};
    model::Tensor replica = low;
    replica.rows.counts = false;
    model::Tensor high = whole;
    high.values = values.cview().Rows(80, 160);
    high.rows.segment_ends = std::span(ends).first(4);
    ASSERT_EQ(Bits(Merged({high, none, low, replica})), expected);
  }
}

TEST(TensorAccumulator, TransformerEnginesMergeOfVariancesIsWrong) {
  // Two halves with means 0 and 8: within them the variance is below 1, between
  // them 16. TransformerEngine subtracts what it should add.
  Matrix<float> values = Noise(64, 64);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] /= 32.0f;
    if (i >= values.size() / 2) values.data()[i] += 8.0f;
  }
  model::Tensor tensor = TensorOf(values);
  const auto whole = StatisticsOf(tensor).values;
  double te = 0;
  double chan = 0;
  std::vector<model::Tensor> parts(2, tensor);
  for (size_t half = 0; half < 2; ++half) {
    parts[half].values = values.cview().Rows(32 * half, 32);
    const auto part = StatisticsOf(parts[half]).values;
    const double n = part[kStat_numel];
    const double apart = part[kStat_mean] - whole[kStat_mean];
    te += n * (part[kStat_variance] - apart * apart) / whole[kStat_numel];
    chan += ((n - 1) * part[kStat_variance] + n * apart * apart) /
            (whole[kStat_numel] - 1);
  }

  EXPECT_NEAR(chan, whole[kStat_variance], 1e-12);
  EXPECT_LT(te, -14.0);
  EXPECT_EQ(Merged(parts).values[kStat_variance], whole[kStat_variance]);
}

TEST(TensorAccumulator, ConstantTensorHasNoVariance) {
  for (const float constant : {1.0f, 0.1f, -3.3333f, 1e-30f, 12345678.0f}) {
    for (const size_t rows : {1, 3, 7, 100}) {
      Matrix<float> values(rows, 77);
      std::fill_n(values.data(), values.size(), constant);

      EXPECT_EQ(StatisticsOf(TensorOf(values)).values[kStat_variance], 0.0)
          << constant << ' ' << rows;
    }
  }
}

TEST(TensorAccumulator, SumKeepsWhatCancellationLeaves) {
  // All in one of the 16 lanes, where 2^60 + 1 is rounded to 2^60.
  Matrix<float> values(1, 48);
  values(0, 0) = 0x1p60f;
  values(0, 16) = 1.0f;
  values(0, 32) = -0x1p60f;

  EXPECT_EQ(StatisticsOf(TensorOf(values)).values[kStat_sum], 1.0);
}

TEST(TensorAccumulator, VarianceSurvivesALargeMean) {
  // Mean 10^6, deviation 1. Sums of 1024 terms are off by 2^-86 of the squares,
  // the final ones rounded to twice 53 bits: 2^-80 * 10^12 = 8e-13 a square,
  // beside a variance of 1, which itself is rounded. The reference takes a mean
  // of 64 bits: 2^-64 * 10^6 squared is nothing, its sum 2^-50.
  Matrix<float> values(100, 100);
  const CounterRng rng(5, 5);
  long double mean = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double uniform = rng.Uniform(i) - 0.5;
    values.data()[i] = static_cast<float>(1e6 + uniform * std::sqrt(12.0));
    mean += static_cast<long double>(values.data()[i]);
  }
  mean /= static_cast<long double>(values.size());
  long double deviations = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const long double deviation =
        static_cast<long double>(values.data()[i]) - mean;
    deviations += deviation * deviation;
  }
  const auto expected = static_cast<double>(
      deviations / static_cast<long double>(values.size() - 1));

  EXPECT_NEAR(StatisticsOf(TensorOf(values)).values[kStat_variance], expected,
              8e-13 + 0x1p-50);
  EXPECT_NEAR(expected, 1.0, 0.05);
}

TEST(TensorAccumulator, SpreadIsZeroForOnePlaceAndOneForAllAlike) {
  // Place k is the largest of block k: all equally frequent.
  const Quantization spec = Spec("e4m3");
  Matrix<float> values(32, 32);
  for (size_t i = 0; i < values.size(); ++i) values.data()[i] = 1.0f;
  EXPECT_EQ(
      StatisticsOf(TensorOf(values, &spec)).values[kStat_block_argmax_spread],
      0.0);  // ties: the first place
  for (size_t i = 0; i < 32; ++i) values(i, i) = -2.0f;
  EXPECT_EQ(
      StatisticsOf(TensorOf(values, &spec)).values[kStat_block_argmax_spread],
      1.0);
}

TEST(TensorAccumulator, NoErrorIsInfinitelyGood) {
  const Quantization spec = Spec("e4m3");
  const Matrix<float> values = Row({1.0f, -2.0f, 0.5f, 0.0f});
  const auto statistics = StatisticsOf(TensorOf(values, &spec)).values;

  EXPECT_EQ(statistics[kStat_mse], 0.0);
  EXPECT_EQ(statistics[kStat_sqnr], std::numeric_limits<double>::infinity());
  EXPECT_EQ(statistics[kStat_cosine], 1.0);
  EXPECT_EQ(statistics[kStat_signed_gain], 1.0);
  EXPECT_EQ(statistics[kStat_underflows], 0.0);
  EXPECT_TRUE(std::isnan(statistics[kStat_mse_columnwise]));
}

TEST(TensorAccumulator, RowsThatDoNotCountAddNothing) {
  const Matrix<float> values = Noise(4, 4);
  model::Tensor tensor = TensorOf(values);
  tensor.rows.counts = false;

  EXPECT_EQ(StatisticsOf(tensor).values[kStat_numel], 0.0);
}

}  // namespace
}  // namespace isoloss::probes::tensor_accumulator_test
