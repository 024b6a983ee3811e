// Statistics of operands that are no MX blocks, against plain loops over what
// formats::Quantize makes of each segment.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/scaling.h"
#include "isoloss/probes/tensor_accumulator.h"

namespace isoloss::probes::operand_statistics_test {
namespace {

using formats::Quantization;
using kernels::OperandState;
using namespace runlog;  // NOLINT(google-build-using-namespace): kStat_…

constexpr size_t kRows = 90;
constexpr size_t kCols = 44;

/// Rows of three experts in two dispatch units each; some have none.
const std::vector<size_t> kBegins = {0, 40, 40, 90};
const std::vector<size_t> kEnds = {33, 40, 0, 0, 17, 50};

Matrix<float> Noise(size_t rows, size_t cols) {
  const CounterRng rng(7, rows);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto uniform = static_cast<float>(rng.Uniform(2 * i) - 0.5);
    const auto binade = static_cast<int>(rng.Bits(2 * i + 1) % 15);
    values.data()[i] = std::ldexp(uniform, binade - 9);
  }
  return values;
}

std::vector<OperandState> States(uint64_t stream) {
  std::vector<OperandState> states(3);
  for (OperandState& state : states) {
    state.common = {.history = 3.0f,
                    .seed = 5,
                    .stream = stream++,
                    .transform_key = stream * 77};
    state.first_tensor = 4;
  }
  return states;
}

struct Sample {
  explicit Sample(const std::string& format)
      : quantization(formats::QuantizationByName(format)),
        values(Noise(kRows, kCols)) {
    tensor.values = values.view();
    tensor.rows.begins = kBegins;
    tensor.rows.segment_ends = kEnds;
    tensor.rowwise = &quantization;
    tensor.columnwise = &quantization;
    tensor.rowwise_states = rowwise_states;
    tensor.columnwise_states = columnwise_states;
  }

  Quantization quantization;
  Matrix<float> values;
  std::vector<OperandState> rowwise_states = States(100);
  std::vector<OperandState> columnwise_states = States(200);
  model::Tensor tensor;
};

TensorStatistics StatisticsOf(const model::Tensor& tensor, int threads = 1) {
  Executor executor(threads);
  TensorAccumulator accumulator;
  accumulator.Add(tensor, executor);
  return accumulator.Finish();
}

/// The part [begin, end) of the rows as an operand's tensor.
Matrix<float> Part(const Matrix<float>& values, size_t begin, size_t end,
                   bool columnwise) {
  const size_t count = end - begin;
  Matrix<float> part(columnwise ? values.cols() : count,
                     columnwise ? count : values.cols());
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      (columnwise ? part(j, i) : part(i, j)) = values(begin + i, j);
    }
  }
  return part;
}

struct Expected {
  double error = 0, squares = 0, products = 0, norms = 0;
  double underflows = 0, saturated = 0, nan = 0;
  double least = std::numeric_limits<double>::infinity();
  double largest = 0;
  double cells = 0;
};

/// Plain sums over the codes of one tensor.
void Add(const Matrix<float>& part, const Quantization& q,
         const formats::TensorState& state, Expected& sums) {
  const formats::QuantizedTensor quantized =
      formats::Quantize(part.view(), q, state);
  const Matrix<float> x = formats::Transformed(part.view(), q, state);
  const Matrix<float> codes = formats::CodeValues(quantized, q);
  const size_t cell_rows = q.cell.rows == 0 ? x.rows() : q.cell.rows;
  const size_t cell_cols = q.cell.cols == 0 ? x.cols() : q.cell.cols;
  for (size_t i = 0; i < x.rows(); ++i) {
    for (size_t j = 0; j < x.cols(); ++j) {
      const double scale =
          double{quantized.scales(i / cell_rows, j / cell_cols)} *
          double{quantized.tensor_scale};
      // Rounded as products compute it.
      const double value =
          double{codes(i, j) * quantized.scales(i / cell_rows, j / cell_cols) *
                 quantized.tensor_scale};
      const double element = double{x(i, j)};
      sums.error += (element - value) * (element - value);
      sums.squares += element * element;
      sums.products += element * value;
      sums.norms += value * value;
      if (j >= part.cols()) continue;
      sums.underflows += element != 0 && value == 0 ? 1 : 0;
      const double over =
          std::fabs(element) / (double{formats::MaxFinite(*q.element)} * scale);
      // None is so near to the limit that FP32 scales matter.
      EXPECT_TRUE(over <= 1 + 0x1p-22 || over > 1 + 0x1p-18) << over;
      sums.saturated += over > 1 + 0x1p-20 ? 1 : 0;
    }
  }
  for (size_t i = 0; i < quantized.scales.size(); ++i) {
    const double scale = double{quantized.scales.data()[i]};
    sums.cells += 1;
    sums.largest = std::max(sums.largest, scale);
    if (scale > 0) sums.least = std::min(sums.least, scale);
  }
}

/// Over the segments that have rows; their numbers count those that have none.
Expected ExpectedOf(const Sample& sample, bool columnwise) {
  Expected sums;
  const size_t segments[][4] = {
      {0, 33, 0, 0}, {33, 40, 0, 1}, {40, 57, 2, 0}, {57, 90, 2, 1}};
  for (const auto& [begin, end, group, number] : segments) {
    const auto& states =
        columnwise ? sample.columnwise_states : sample.rowwise_states;
    Add(Part(sample.values, begin, end, columnwise), sample.quantization,
        states[group].Of(number), sums);
  }
  return sums;
}

class OperandStatistics : public ::testing::TestWithParam<const char*> {};

TEST_P(OperandStatistics, EqualThoseOfTheCodesOfEachSegment) {
  const Sample sample(GetParam());
  const TensorStatistics statistics = StatisticsOf(sample.tensor);
  for (const bool columnwise : {false, true}) {
    const size_t offset =
        columnwise ? kStat_underflows_num_columnwise - kStat_underflows_num : 0;
    const auto stat = [&](size_t index) {
      return statistics.values[offset + index];
    };
    const Expected expected = ExpectedOf(sample, columnwise);
    constexpr double kCount = kRows * kCols;
    // Sums of at most 2^13 terms, each rounded to 53 bits.
    constexpr double kBound = 0x1p-40;
    EXPECT_EQ(stat(kStat_underflows_num), expected.underflows);
    EXPECT_EQ(stat(kStat_saturated_num), expected.saturated);
    EXPECT_EQ(stat(kStat_nan_blocks), 0);
    EXPECT_NEAR(stat(kStat_mse) * kCount / expected.error, 1, kBound);
    EXPECT_NEAR(stat(kStat_sqnr),
                10 * std::log10(expected.squares / expected.error), 1e-9);
    EXPECT_NEAR(stat(kStat_signed_gain), expected.products / expected.squares,
                kBound);
    EXPECT_NEAR(
        stat(kStat_cosine),
        expected.products / std::sqrt(expected.squares * expected.norms),
        kBound);
    const auto& histogram = columnwise ? statistics.e8m0_histogram_columnwise
                                       : statistics.e8m0_histogram;
    double blocks = 0;
    for (const int32_t count : histogram) blocks += count;
    const auto format = sample.quantization.scale_format;
    if (format == formats::ScaleFormat::kNone) {
      EXPECT_TRUE(std::isnan(stat(kStat_scale_inv_min)));
      EXPECT_TRUE(std::isnan(stat(kStat_scale_inv_max)));
      EXPECT_EQ(blocks, 0);
    } else if (format == formats::ScaleFormat::kE8m0) {
      EXPECT_EQ(stat(kStat_scale_inv_min), std::log2(expected.least) + 127);
      EXPECT_EQ(stat(kStat_scale_inv_max), std::log2(expected.largest) + 127);
      EXPECT_EQ(blocks, expected.cells);
    } else {
      EXPECT_EQ(stat(kStat_scale_inv_min), expected.least);
      EXPECT_EQ(stat(kStat_scale_inv_max), expected.largest);
      EXPECT_EQ(blocks, 0);
    }
    const bool has_blocks = format == formats::ScaleFormat::kE8m0 &&
                            sample.quantization.cell == formats::Cell{};
    EXPECT_EQ(std::isnan(stat(kStat_block_argmax_spread)), !has_blocks);
  }
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

TEST_P(OperandStatistics, NeitherThreadsNorProcessesShow) {
  const Sample sample(GetParam());
  const auto expected = Bits(StatisticsOf(sample.tensor));
  EXPECT_EQ(Bits(StatisticsOf(sample.tensor, 3)), expected);

  // The last expert is another process's, which has the first unit only; a
  // third one has its second unit.
  model::Tensor low = sample.tensor;
  low.values = sample.tensor.values.Rows(0, 40);
  low.rows.begins = std::span(kBegins).first(3);
  low.rows.segment_ends = std::span(kEnds).first(4);
  std::vector<int64_t> sums;
  std::vector<double> maxima;
  const auto merge = [&](const model::Tensor& part) {
    Executor executor(1);
    TensorAccumulator accumulator;
    accumulator.Add(part, executor);
    std::vector<int64_t> of_part;
    std::vector<double> most;
    accumulator.Pack(of_part, most);
    sums.resize(of_part.size(), 0);
    maxima.resize(most.size(), -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += of_part[i];
    for (size_t i = 0; i < maxima.size(); ++i) {
      maxima[i] = std::max(maxima[i], most[i]);
    }
  };
  merge(low);
  for (const size_t unit : {size_t{0}, size_t{1}}) {
    const std::vector<size_t> begins = {0, unit == 0 ? size_t{17} : 33};
    model::Tensor high = sample.tensor;
    high.values = sample.tensor.values.Rows(40 + 17 * unit, begins[1]);
    high.rows = {.begins = begins,
                 .segment_ends = std::span(begins).last(1),
                 .first_group = 2,
                 .first_segment = unit};
    std::vector<OperandState> rowwise = {sample.rowwise_states[2]};
    std::vector<OperandState> columnwise = {sample.columnwise_states[2]};
    rowwise[0].first_tensor += unit;
    columnwise[0].first_tensor += unit;
    high.rowwise_states = rowwise;
    high.columnwise_states = columnwise;
    merge(high);
  }
  TensorAccumulator merged;
  std::span<const int64_t> rest_of_sums(sums);
  std::span<const double> rest_of_maxima(maxima);
  merged.Unpack(rest_of_sums, rest_of_maxima);
  EXPECT_EQ(Bits(merged.Finish()), expected);
}

TEST_P(OperandStatistics, RowsThatFillSegmentsUpAreInNoFigure) {
  const Sample sample(GetParam());
  const std::vector<size_t> begins = {0, 96, 96, 192};
  const std::vector<size_t> ends = {64, 96, 0, 0, 32, 96};
  const std::vector<size_t> used = {33, 7, 0, 0, 17, 33};
  Matrix<float> with_padding(192, kCols);
  const size_t places[][3] = {
      {0, 0, 33}, {33, 64, 7}, {40, 96, 17}, {57, 128, 33}};
  for (const auto& [from, to, count] : places) {
    std::copy_n(sample.values.Row(from), count * kCols, with_padding.Row(to));
  }
  model::Tensor padded = sample.tensor;
  padded.values = with_padding.view();
  padded.rows = {.begins = begins, .segment_ends = ends, .segment_rows = used};

  EXPECT_EQ(Bits(StatisticsOf(padded)), Bits(StatisticsOf(sample.tensor)));
}

INSTANTIATE_TEST_SUITE_P(
    Descriptions, OperandStatistics,
    ::testing::Values("nvfp4", "e2m1.torchao.e4m3.1x16.two_level",
                      "e4m3.te.fp32.0x0", "e4m3.te.fp32.0x0.delayed.history4",
                      "e4m3.deepgemm.fp32.1x128", "e4m3.te.pow2.128x128",
                      "e5m2.torchao.fp32.1x0", "int8.rceil", "e4m3.floor.0x0",
                      "e4m3.rceil.stochastic8", "fp16.none",
                      "e2m1.te.e4m3.1x16.two_level.stochastic4.hadamard16_"
                      "random",
                      "e4m3.rceil.hadamard16"),
    [](const auto& of) {
      std::string name = of.param;
      std::ranges::replace(name, '.', '_');
      return name;
    });

TEST(OperandTensors, MxBlocksAreTheSameByDefinition) {
  // Only the fast path takes MX; the other one is asked for it here.
  Sample sample("e4m3.floor");
  const TensorStatistics fast = StatisticsOf(sample.tensor);
  DirectionSums sums;
  for (const RowRun& run : RunsOf(sample.tensor.rows, kRows)) {
    AddOperandTensor(sample.tensor, Direction::kRowwise, run, sums);
  }

  EXPECT_EQ(static_cast<double>(sums.underflows),
            fast.values[kStat_underflows_num]);
  EXPECT_EQ(static_cast<double>(sums.blocks.saturated),
            fast.values[kStat_saturated_num]);
  EXPECT_GT(sums.blocks.saturated, 0);
  EXPECT_EQ(sums.errors.Value() / static_cast<double>(sums.pairs),
            fast.values[kStat_mse]);
  for (size_t byte = 0; byte < kScaleBytes; ++byte) {
    EXPECT_EQ(sums.blocks.bytes[byte], fast.e8m0_histogram[byte]) << byte;
  }
}

TEST(OperandTensors, DownColumnsWhatWasMadeAlongRowsIsQuantisedAgain) {
  Sample sample("e4m3.rceil");
  const Quantization coarse = formats::QuantizationByName("e2m1.floor");
  sample.tensor.rowwise = &coarse;
  sample.tensor.columnwise_again = true;
  double error = 0;
  for (const auto& [begin, end] :
       {std::pair<size_t, size_t>(0, 33), {33, 40}, {40, 57}, {57, 90}}) {
    const Matrix<float> rows = Part(sample.values, begin, end, false);
    const Matrix<float> once =
        formats::Dequantize(formats::Quantize(rows.view(), coarse), coarse);
    const Matrix<float> down = Part(once, 0, end - begin, true);
    const Matrix<float> twice =
        formats::Dequantize(formats::Quantize(down.view(), sample.quantization),
                            sample.quantization);
    for (size_t i = 0; i < rows.rows(); ++i) {
      for (size_t j = 0; j < rows.cols(); ++j) {
        error += std::pow(double{rows(i, j)} - double{twice(j, i)}, 2);
      }
    }
  }

  const double mse = StatisticsOf(sample.tensor).values[kStat_mse_columnwise];
  // As above.
  EXPECT_NEAR(mse * kRows * kCols / error, 1, 0x1p-40);
}

TEST(OperandTensors, NonFiniteCellsAreCounted) {
  Sample sample("e4m3.te.fp32.1x16");
  sample.values(3, 17) = std::numeric_limits<float>::quiet_NaN();
  sample.values(4, 40) = std::numeric_limits<float>::infinity();
  sample.values(5, 40) = -std::numeric_limits<float>::infinity();

  const auto values = StatisticsOf(sample.tensor).values;

  EXPECT_EQ(values[kStat_nan_blocks], 3);
  // Both infinities stand in one cell down the column.
  EXPECT_EQ(values[kStat_nan_blocks_columnwise], 2);
  EXPECT_TRUE(std::isfinite(values[kStat_scale_inv_max]));
  EXPECT_TRUE(std::isfinite(values[kStat_mse]));
}

}  // namespace
}  // namespace isoloss::probes::operand_statistics_test
