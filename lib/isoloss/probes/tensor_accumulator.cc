#include "isoloss/probes/tensor_accumulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/quantize.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A part of every sum has this number of elements of a row. 32 such rows and
/// their quantised values stay in the second-level cache.
constexpr size_t kRun = 1024;

// Sums consist of exact sums, integers, and numbers of which the largest
// counts.
template <typename Sums>
auto ExactSumsOf(Sums& s) {
  return std::array{
      &s.sum,
      &s.magnitudes,
      &s.squares,
      &s.rowwise.errors,
      &s.rowwise.products,
      &s.rowwise.quantized,
      &s.rowwise.squares,
      &s.columnwise.errors,
      &s.columnwise.products,
      &s.columnwise.quantized,
      &s.columnwise.squares,
  };
}

template <typename Sums>
auto CountsOf(Sums& s) {
  const auto one = [](auto& count) { return std::span(&count, 1); };
  return std::array{
      one(s.elements),
      one(s.zeros),
      one(s.nonfinite),
      one(s.rowwise.pairs),
      one(s.rowwise.underflows),
      one(s.rowwise.nan_scales),
      one(s.rowwise.blocks.saturated),
      std::span(s.rowwise.blocks.places).subspan(0),
      std::span(s.rowwise.blocks.bytes).subspan(0),
      one(s.columnwise.pairs),
      one(s.columnwise.underflows),
      one(s.columnwise.nan_scales),
      one(s.columnwise.blocks.saturated),
      std::span(s.columnwise.blocks.places).subspan(0),
      std::span(s.columnwise.blocks.bytes).subspan(0),
  };
}

template <typename Sums>
auto MaximaOf(Sums& s) {
  return std::array{
      &s.max,
      &s.negated_min,
      &s.negated_smallest,
      &s.rowwise.is_quantized,
      &s.rowwise.blocks.range,
      &s.rowwise.largest_scale,
      &s.rowwise.negated_least_scale,
      &s.columnwise.is_quantized,
      &s.columnwise.blocks.range,
      &s.columnwise.largest_scale,
      &s.columnwise.negated_least_scale,
  };
}

/// These rows make one block down the columns.
struct RowBlock {
  size_t first;
  size_t count;
};

void AppendBlocks(size_t first, size_t end, std::vector<RowBlock>& blocks) {
  for (; first < end; first += formats::kMxBlockSize) {
    blocks.push_back({first, std::min(formats::kMxBlockSize, end - first)});
  }
}

/// Blocks start anew at each segment of each group.
std::vector<RowBlock> RowBlocksOf(std::span<const RowRun> runs) {
  std::vector<RowBlock> blocks;
  for (const RowRun& run : runs) AppendBlocks(run.begin, run.end, blocks);
  return blocks;
}

void AddMoments(std::span<const float> run, TensorSums& sums) {
  const kernels::Moments moments = kernels::MomentsOf(run);
  sums.elements += static_cast<int64_t>(run.size());
  sums.zeros += moments.zeros;
  sums.nonfinite += moments.nonfinite;
  sums.sum.Add(moments.sum.high);
  sums.sum.Add(moments.sum.low);
  sums.squares.Add(moments.squares.high);
  sums.squares.Add(moments.squares.low);
  sums.magnitudes.Add(moments.magnitudes);
  sums.max = std::max(sums.max, static_cast<double>(moments.max));
  sums.negated_min =
      std::max(sums.negated_min, -static_cast<double>(moments.min));
  sums.negated_smallest =
      std::max(sums.negated_smallest, -static_cast<double>(moments.smallest));
}

/// Returns the quantisation that packed kernels take; null if there is none.
const formats::Quantization* PackedOf(const model::Tensor& tensor,
                                      Direction direction) {
  return IsGeneral(tensor, direction) ? nullptr
                                      : QuantizationOf(tensor, direction);
}

/// Adds parts of rows that are one block down the columns.
void AddTile(const model::Tensor& tensor, MatrixView<const float> tile,
             Executor& alone, TensorSums& sums) {
  const auto* rowwise = PackedOf(tensor, Direction::kRowwise);
  const auto* columnwise = PackedOf(tensor, Direction::kColumnwise);
  for (size_t i = 0; i < tile.rows(); ++i) {
    const std::span<const float> run(tile.Row(i), tile.cols());
    AddMoments(run, sums);
    kernels::TallyBlocksAlong(run, rowwise, sums.rowwise.blocks);
  }
  kernels::TallyBlocksDown(tile, columnwise, sums.columnwise.blocks);
  // The scratch is kept from call to call.
  static thread_local Matrix<float> scratch(formats::kMxBlockSize, kRun);
  const auto quantized =
      scratch.view().Rows(0, tile.rows()).Cols(0, tile.cols());
  if (rowwise != nullptr) {
    kernels::QuantizeDequantize(tile, *rowwise, quantized, alone);
    AddErrors(tile, quantized, sums.rowwise);
  }
  if (columnwise != nullptr) {
    kernels::QuantizeDequantizeDown(tile, *columnwise, quantized);
    AddErrors(tile, quantized, sums.columnwise);
  }
}

void AddBlocks(const model::Tensor& tensor, std::span<const RowBlock> blocks,
               TensorSums& sums) {
  Executor alone(1);
  for (const RowBlock& block : blocks) {
    const auto rows = tensor.values.Rows(block.first, block.count);
    for (size_t j = 0; j < rows.cols(); j += kRun) {
      AddTile(tensor, rows.Cols(j, std::min(kRun, rows.cols() - j)), alone,
              sums);
    }
  }
}

/// Adds the quantisations that packed kernels do not take.
void AddGeneral(const model::Tensor& tensor, std::span<const RowRun> segments,
                Executor& executor, TensorSums& sums) {
  for (const auto& [direction, to] :
       {std::pair(Direction::kRowwise, &sums.rowwise),
        std::pair(Direction::kColumnwise, &sums.columnwise)}) {
    if (!IsGeneral(tensor, direction)) continue;
    std::vector<TensorSums> parts(segments.size());
    const Direction of = direction;
    executor.ParallelFor(segments.size(), [&](size_t i) {
      AddOperandTensor(
          tensor, of, segments[i],
          of == Direction::kRowwise ? parts[i].rowwise : parts[i].columnwise);
    });
    for (const TensorSums& part : parts) sums.Add(part);
  }
}

/// Computes (squares - sum^2 / count) / (count - 1). If the mean is large
/// beside the deviation nearly everything cancels, so numbers of twice 53 bits
/// are subtracted.
double Variance(const ExactSum& exact_sum, const ExactSum& exact_squares,
                double count) {
  if (count < 2) return kNan;
  const ExactSum::Parts sum = exact_sum.Split();
  const ExactSum::Parts squares = exact_squares.Split();
  const double square = sum.high * sum.high;
  const double square_low =
      std::fma(sum.high, sum.high, -square) + 2 * sum.high * sum.low;
  const double of_mean = square / count;
  const double of_mean_low =
      (std::fma(-of_mean, count, square) + square_low) / count;
  const double deviations =
      (squares.high - of_mean) + (squares.low - of_mean_low);
  return std::max(deviations, 0.0) / (count - 1);
}

/// Returns the entropy, divided by its largest value.
double Spread(std::span<const int64_t> places) {
  double all = 0;
  for (const int64_t count : places) all += static_cast<double>(count);
  if (all == 0) return kNan;
  double entropy = 0;
  for (const int64_t count : places) {
    const auto here = static_cast<double>(count);
    if (count > 0) entropy += here / all * portable::Log2(all / here);
  }
  return entropy / portable::Log2(static_cast<double>(places.size()));
}

double RangeInBits(const DirectionSums& sums) {
  return sums.blocks.range > 0 ? portable::Log2(sums.blocks.range) : kNan;
}

/// A statistic of the second direction follows that of the first at this
/// distance.
constexpr size_t kColumnwise =
    runlog::kStat_underflows_num_columnwise - runlog::kStat_underflows_num;
static_assert(runlog::kStat_block_argmax_spread_columnwise -
                  runlog::kStat_block_argmax_spread ==
              kColumnwise);

/// Sets the statistics of one direction, the first of which is at
/// values[offset + kStat_underflows_num].
void FinishErrors(const DirectionSums& sums, double elements, size_t offset,
                  TensorStatistics& out) {
  const auto stat = [&](size_t index) -> double& {
    return out.values[offset + index];
  };
  const auto underflows = static_cast<double>(sums.underflows);
  const auto saturated = static_cast<double>(sums.blocks.saturated);
  stat(runlog::kStat_underflows_num) = underflows;
  stat(runlog::kStat_underflows) = 100 * underflows / elements;
  stat(runlog::kStat_saturated_num) = saturated;
  stat(runlog::kStat_saturated) = 100 * saturated / elements;
  const double errors = sums.errors.Value();
  const double squares = sums.squares.Value();
  const double products = sums.products.Value();
  stat(runlog::kStat_mse) = errors / static_cast<double>(sums.pairs);
  stat(runlog::kStat_sqnr) =
      squares > 0 ? 10 * portable::Log10(squares / errors) : kNan;
  stat(runlog::kStat_signed_gain) = products / squares;
  // By Cauchy and Schwarz the cosine is at most 1, but for the rounding.
  const double norms = std::sqrt(squares * sums.quantized.Value());
  stat(runlog::kStat_cosine) =
      norms > 0 ? std::clamp(products / norms, -1.0, 1.0) : kNan;
}

void FinishScales(const DirectionSums& sums, size_t offset,
                  TensorStatistics& out) {
  const kernels::BlockTally& blocks = sums.blocks;
  auto& histogram =
      offset == 0 ? out.e8m0_histogram : out.e8m0_histogram_columnwise;
  double smallest = kNan;
  double largest = kNan;
  for (size_t byte = 0; byte < blocks.bytes.size(); ++byte) {
    histogram[byte] = static_cast<int32_t>(blocks.bytes[byte]);
    if (blocks.bytes[byte] == 0) continue;
    largest = static_cast<double>(byte);
    if (byte > 0 && std::isnan(smallest)) smallest = largest;
  }
  // Scales are either bytes or numbers.
  if (std::isfinite(sums.largest_scale)) largest = sums.largest_scale;
  if (std::isfinite(sums.negated_least_scale)) {
    smallest = -sums.negated_least_scale;
  }
  out.values[offset + runlog::kStat_nan_blocks] =
      static_cast<double>(blocks.bytes[255] + sums.nan_scales);
  out.values[offset + runlog::kStat_scale_inv_min] = smallest;
  out.values[offset + runlog::kStat_scale_inv_max] = largest;
  out.values[offset + runlog::kStat_block_argmax_spread] =
      Spread(blocks.places);
}

}  // namespace

void TensorSums::Add(const TensorSums& other) {
  const auto sums = ExactSumsOf(*this);
  const auto other_sums = ExactSumsOf(other);
  for (size_t i = 0; i < sums.size(); ++i) sums[i]->Add(*other_sums[i]);
  const auto counts = CountsOf(*this);
  const auto other_counts = CountsOf(other);
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t j = 0; j < counts[i].size(); ++j) {
      counts[i][j] += other_counts[i][j];
    }
  }
  const auto maxima = MaximaOf(*this);
  const auto other_maxima = MaximaOf(other);
  for (size_t i = 0; i < maxima.size(); ++i) {
    *maxima[i] = std::max(*maxima[i], *other_maxima[i]);
  }
}

void TensorAccumulator::Add(const model::Tensor& tensor, Executor& executor) {
  if (!tensor.rows.counts) return;
  sums_.rowwise.is_quantized = tensor.rowwise != nullptr ? 1 : 0;
  sums_.columnwise.is_quantized = tensor.columnwise != nullptr ? 1 : 0;
  const std::vector<RowRun> segments =
      RunsOf(tensor.rows, tensor.values.rows());
  AddGeneral(tensor, segments, executor, sums_);
  const std::vector<RowBlock> blocks = RowBlocksOf(segments);
  if (blocks.empty()) return;
  const size_t elements = tensor.values.rows() * tensor.values.cols();
  const size_t runs = std::clamp<size_t>(
      elements / kernels::kMinElementsPerRun, 1,
      std::min(blocks.size(), static_cast<size_t>(executor.size())));
  std::vector<TensorSums> parts(runs);
  executor.ParallelFor(runs, [&](size_t run) {
    const size_t first = blocks.size() * run / runs;
    const size_t end = blocks.size() * (run + 1) / runs;
    AddBlocks(tensor, std::span(blocks).subspan(first, end - first),
              parts[run]);
  });
  for (const TensorSums& part : parts) sums_.Add(part);
}

void TensorAccumulator::Pack(std::vector<int64_t>& sums,
                             std::vector<double>& maxima) const {
  for (const ExactSum* sum : ExactSumsOf(sums_)) sum->Pack(sums);
  for (const auto counts : CountsOf(sums_)) {
    sums.insert(sums.end(), counts.begin(), counts.end());
  }
  for (const double* number : MaximaOf(sums_)) maxima.push_back(*number);
}

void TensorAccumulator::Unpack(std::span<const int64_t>& sums,
                               std::span<const double>& maxima) {
  for (ExactSum* sum : ExactSumsOf(sums_)) {
    *sum = ExactSum::Unpack(sums.first<ExactSum::kLimbs>());
    sums = sums.subspan(ExactSum::kLimbs);
  }
  for (const auto counts : CountsOf(sums_)) {
    std::copy_n(sums.begin(), counts.size(), counts.begin());
    sums = sums.subspan(counts.size());
  }
  for (double* number : MaximaOf(sums_)) {
    *number = maxima.front();
    maxima = maxima.subspan(1);
  }
}

TensorStatistics TensorAccumulator::Finish() const {
  TensorStatistics out;
  out.values.fill(kNan);
  const auto stat = [&](size_t index) -> double& { return out.values[index]; };
  const auto elements = static_cast<double>(sums_.elements);
  const auto finite = static_cast<double>(sums_.elements - sums_.nonfinite);
  stat(runlog::kStat_numel) = elements;
  stat(runlog::kStat_nonfinite_num) = static_cast<double>(sums_.nonfinite);
  stat(runlog::kStat_zeros_num) = static_cast<double>(sums_.zeros);
  stat(runlog::kStat_sum) = sums_.sum.Value();
  stat(runlog::kStat_mean) = sums_.sum.Value() / finite;
  stat(runlog::kStat_variance) = Variance(sums_.sum, sums_.squares, finite);
  stat(runlog::kStat_std) = std::sqrt(stat(runlog::kStat_variance));
  stat(runlog::kStat_l1_norm) = sums_.magnitudes.Value();
  stat(runlog::kStat_l2_norm) = std::sqrt(sums_.squares.Value());
  if (finite > 0) {
    const double amax = std::max(sums_.max, sums_.negated_min);
    stat(runlog::kStat_min) = 0.0 - sums_.negated_min;
    stat(runlog::kStat_max) = sums_.max;
    stat(runlog::kStat_cur_amax) = amax;
    if (amax > 0) {
      stat(runlog::kStat_dynamic_range) =
          portable::Log2(amax / -sums_.negated_smallest);
    }
  }
  stat(runlog::kStat_max_blockwise_dynamic_range) = RangeInBits(sums_.rowwise);
  stat(runlog::kStat_max_blockwise_dynamic_range_columnwise) =
      RangeInBits(sums_.columnwise);
  for (const auto& [sums, offset] :
       {std::pair(&sums_.rowwise, size_t{0}),
        std::pair(&sums_.columnwise, kColumnwise)}) {
    if (sums->is_quantized == 0) continue;
    FinishErrors(*sums, elements, offset, out);
    FinishScales(*sums, offset, out);
  }
  return out;
}

}  // namespace isoloss::probes
