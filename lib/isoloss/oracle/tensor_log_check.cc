// What a step's log says of tensors: digests and statistics, from the values
// that the step announced, one element after the other in double precision.
// Blocks are those of docs/run-log.md; scalar formats quantise them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/oracle/figure_comparison.h"
#include "isoloss/oracle/log_check.h"

namespace isoloss::oracle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A row of a tensor, and where it stands in the whole batch's.
struct Row {
  size_t row;
  uint64_t group;
  uint64_t segment;
  uint64_t position;
};

/// Rows of one segment of one group.
using Segment = std::vector<Row>;

/// Without the rows that fill up experts' lists, which `token_of_row` knows if
/// the tensor has as many rows.
std::vector<Segment> SegmentsOf(const RecordedTensor& tensor,
                                const ExpertRows* lists) {
  std::vector<Segment> segments;
  if (!tensor.of_experts) {
    // Sequences: blocks down columns start anew, rows are numbered on.
    std::vector<size_t> ends = tensor.segment_ends;
    if (ends.empty()) ends.push_back(tensor.values.rows());
    size_t row = 0;
    for (const size_t end : ends) {
      Segment& segment = segments.emplace_back();
      for (; row < end; ++row) segment.push_back({row, 0, 0, row});
    }
    return segments;
  }
  const size_t groups = tensor.begins.size() - 1;
  const size_t per_group = std::max<size_t>(
      1, groups == 0 ? 1 : tensor.segment_ends.size() / groups);
  for (size_t g = 0; g < groups; ++g) {
    size_t row = tensor.begins[g];
    for (size_t s = 0; s < per_group; ++s) {
      const size_t end =
          tensor.segment_ends.empty()
              ? tensor.begins[g + 1]
              : tensor.begins[g] + tensor.segment_ends[g * per_group + s];
      Segment& segment = segments.emplace_back();
      for (uint64_t position = 0; row < end; ++row) {
        if (lists != nullptr && lists->token_of_row[row] < 0) continue;
        segment.push_back({row, g, s, position++});
      }
    }
  }
  return segments;
}

// ---- digests ---------------------------------------------------------------

/// SplitMix64's finaliser (docs/run-log.md, Tensors).
uint64_t Finalize(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t DigestOfTensor(const RecordedTensor& tensor,
                        const std::vector<Segment>& segments) {
  constexpr uint64_t kStage = 0x9e3779b97f4a7c15u;
  uint64_t sum = 0;
  for (const Segment& segment : segments) {
    for (const Row& row : segment) {
      std::vector<float> values(
          tensor.values.Row(row.row),
          tensor.values.Row(row.row) + tensor.values.cols());
      for (float& value : values) {
        if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
      }
      uint64_t place = Finalize(row.group + kStage);
      place = Finalize((place ^ row.segment) + kStage);
      place = Finalize((place ^ row.position) + kStage);
      sum += Finalize(DigestOf(values.data(), values.size() * sizeof(float)) +
                      place);
    }
  }
  const uint64_t digest = Finalize(sum + kStage);
  return digest == 0 ? 1 : digest;
}

// ---- statistics ------------------------------------------------------------

struct Moments {
  double numel = 0, nonfinite = 0, zeros = 0;
  double min = kInfinity, max = -kInfinity, smallest = kInfinity;
  double sum = 0, magnitudes = 0, squares = 0;

  void Add(double x) {
    ++numel;
    if (!std::isfinite(x)) {
      ++nonfinite;
      return;
    }
    zeros += x == 0 ? 1 : 0;
    min = std::min(min, x);
    max = std::max(max, x);
    if (x != 0) smallest = std::min(smallest, std::fabs(x));
    sum += x;
    magnitudes += std::fabs(x);
    squares += x * x;
  }
};

/// Of the blocks in one direction.
struct Blocks {
  double range = 0;  ///< worst block's, as a quotient; 0: no block
  double underflows = 0, saturated = 0, nan_blocks = 0, pairs = 0;
  double scale_min = kNan, scale_max = kNan;
  double errors = 0, products = 0, quantized = 0, squares = 0;
  std::array<int64_t, 256> bytes = {};  ///< blocks with each scale byte
  /// Full blocks by the place of their largest magnitude.
  std::array<double, formats::kMxBlockSize> places = {};

  void Add(std::span<const float> block, const formats::Quantization* spec) {
    double largest = 0;
    double smallest = kInfinity;
    size_t place = 0;
    for (size_t i = 0; i < block.size(); ++i) {
      const double size = std::fabs(static_cast<double>(block[i]));
      if (!std::isfinite(size) || size == 0) continue;
      if (size > largest) place = i;
      largest = std::max(largest, size);
      smallest = std::min(smallest, size);
    }
    range = std::max(range, largest > 0 ? largest / smallest : 1.0);
    if (spec == nullptr) return;
    if (largest > 0 && block.size() == places.size()) ++places[place];
    Quantize(block, *spec);
  }

  /// Entropy of the places over its largest value; NaN without full blocks.
  double Spread() const {
    double all = 0;
    for (const double count : places) all += count;
    if (all == 0) return kNan;
    double nats = 0;
    for (const double count : places) {
      if (count > 0) nats -= count / all * portable::Log(count / all);
    }
    return nats / portable::Log(static_cast<double>(places.size()));
  }

 private:
  void Quantize(std::span<const float> block,
                const formats::Quantization& spec) {
    const uint8_t scale = formats::MxScale(block, spec);
    ++bytes[scale];
    nan_blocks += scale == 255 ? 1 : 0;
    if (scale > 0) scale_min = std::fmin(scale_min, scale);
    scale_max = std::fmax(scale_max, scale);
    const double limit =
        static_cast<double>(formats::MaxFinite(*spec.element)) *
        static_cast<double>(formats::DecodeE8m0(scale));
    std::array<float, formats::kMxBlockSize> out{};
    formats::QuantizeDequantizeBlock(block, spec,
                                     std::span(out).first(block.size()));
    for (size_t i = 0; i < block.size(); ++i) {
      const auto x = static_cast<double>(block[i]);
      const auto q = static_cast<double>(out[i]);
      if (std::isfinite(x) && std::fabs(x) > limit) ++saturated;
      if (!std::isfinite(x) || !std::isfinite(q)) continue;
      ++pairs;
      underflows += x != 0 && q == 0 ? 1 : 0;
      errors += (x - q) * (x - q);
      products += x * q;
      quantized += q * q;
      squares += x * x;
    }
  }
};

Blocks AlongRows(const RecordedTensor& tensor,
                 const std::vector<Segment>& segments) {
  Blocks blocks;
  const size_t cols = tensor.values.cols();
  for (const Segment& segment : segments) {
    for (const Row& row : segment) {
      for (size_t j = 0; j < cols; j += formats::kMxBlockSize) {
        blocks.Add({tensor.values.Row(row.row) + j,
                    std::min(formats::kMxBlockSize, cols - j)},
                   tensor.quantized_rowwise ? &tensor.rowwise : nullptr);
      }
    }
  }
  return blocks;
}

Blocks DownColumns(const RecordedTensor& tensor,
                   const std::vector<Segment>& segments) {
  Blocks blocks;
  std::vector<float> block;
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.size(); i += formats::kMxBlockSize) {
      const size_t end = std::min(i + formats::kMxBlockSize, segment.size());
      for (size_t j = 0; j < tensor.values.cols(); ++j) {
        block.clear();
        for (size_t k = i; k < end; ++k) {
          block.push_back(tensor.values(segment[k].row, j));
        }
        blocks.Add(block,
                   tensor.quantized_columnwise ? &tensor.columnwise : nullptr);
      }
    }
  }
  return blocks;
}

/// Compares the statistics of one tensor.
class StatisticsCheck {
 public:
  StatisticsCheck(const runlog::TensorColumns& tensors, size_t place,
                  FigureComparison& comparison)
      : tensors_(tensors), place_(place), comparison_(comparison) {}

  void CheckMoments(const Moments& m) {
    const double finite = m.numel - m.nonfinite;
    Check(runlog::kStat_numel, m.numel);
    Check(runlog::kStat_nonfinite_num, m.nonfinite);
    Check(runlog::kStat_zeros_num, m.zeros);
    Check(runlog::kStat_sum, m.sum, m.magnitudes);
    Check(runlog::kStat_l1_norm, m.magnitudes);
    Check(runlog::kStat_l2_norm, std::sqrt(m.squares));
    if (finite == 0) return;
    Check(runlog::kStat_mean, m.sum / finite, m.magnitudes / finite);
    Check(runlog::kStat_min, m.min);
    Check(runlog::kStat_max, m.max);
    const double amax = std::max(std::fabs(m.min), std::fabs(m.max));
    Check(runlog::kStat_cur_amax, amax);
    Check(runlog::kStat_dynamic_range,
          amax > 0 ? portable::Log2(amax / m.smallest) : kNan);
    if (finite < 2) return;
    const double variance =
        std::max(0.0, m.squares - m.sum * m.sum / finite) / (finite - 1);
    Check(runlog::kStat_variance, variance, m.squares / (finite - 1));
    // Where nearly all cancels, a variance of the squares' last bits.
    const double deviation = Logged(runlog::kStat_std);
    comparison_.AddReal(deviation * deviation, variance,
                        m.squares / (finite - 1));
  }

  /// `offset`: between the statistics of the two directions.
  void CheckBlocks(const Blocks& b, bool quantized, const Moments& moments,
                   size_t range, size_t offset) {
    Check(range, b.range > 0 ? portable::Log2(b.range) : kNan, 1.0);
    if (!quantized) return;
    const double numel = moments.numel;
    CheckScaleBytes(b, offset == 0 ? tensors_.e8m0_histogram
                                   : tensors_.e8m0_histogram_columnwise);
    // What counts as the largest beside infinity is nobody's business.
    if (moments.nonfinite == 0) {
      Check(runlog::kStat_block_argmax_spread + offset, b.Spread(), 1.0);
    }
    Check(runlog::kStat_underflows_num + offset, b.underflows);
    Check(runlog::kStat_underflows + offset, 100 * b.underflows / numel);
    Check(runlog::kStat_saturated_num + offset, b.saturated);
    Check(runlog::kStat_saturated + offset, 100 * b.saturated / numel);
    Check(runlog::kStat_nan_blocks + offset, b.nan_blocks);
    Check(runlog::kStat_scale_inv_min + offset, b.scale_min);
    Check(runlog::kStat_scale_inv_max + offset, b.scale_max);
    Check(runlog::kStat_mse + offset, b.errors / b.pairs);
    Check(runlog::kStat_signed_gain + offset, b.products / b.squares);
    if (b.squares > 0) {
      Check(runlog::kStat_sqnr + offset,
            10 * portable::Log10(b.squares / b.errors), 1.0);
      const double norms = std::sqrt(b.squares * b.quantized);
      Check(runlog::kStat_cosine + offset,
            norms > 0 ? b.products / norms : kNan);
    }
  }

 private:
  void CheckScaleBytes(const Blocks& b, const std::vector<int32_t>& histogram) {
    if (histogram.empty()) return;
    for (size_t byte = 0; byte < b.bytes.size(); ++byte) {
      comparison_.AddCount(histogram[place_ * b.bytes.size() + byte],
                           b.bytes[byte]);
    }
  }
  double Logged(size_t statistic) const {
    return tensors_.statistics[statistic][place_];
  }
  void Check(size_t statistic, double expected, double scale = 0.0) {
    comparison_.AddReal(Logged(statistic), expected, scale);
  }

  const runlog::TensorColumns& tensors_;
  const size_t place_;
  FigureComparison& comparison_;
};

void CheckStatistics(const RecordedTensor& tensor,
                     const std::vector<Segment>& segments, size_t place,
                     const runlog::TensorColumns& tensors,
                     FigureComparison& comparison, ReportSink& sink) {
  // A tensor without statistics at this step.
  if (std::isnan(tensors.statistics[runlog::kStat_numel][place])) return;
  Moments moments;
  for (const Segment& segment : segments) {
    for (const Row& row : segment) {
      for (size_t j = 0; j < tensor.values.cols(); ++j) {
        moments.Add(static_cast<double>(tensor.values(row.row, j)));
      }
    }
  }
  if (moments.numel == 0) return;
  StatisticsCheck check(tensors, place, comparison);
  check.CheckMoments(moments);
  // What blocks of other descriptions lose has no statement here: such figures
  // are not checked, and the sink says so.
  const bool rowwise = !tensor.quantized_rowwise || tensor.rowwise.is_mx();
  const bool columnwise =
      !tensor.quantized_columnwise ||
      (tensor.columnwise.is_mx() && !tensor.columnwise_again);
  if (rowwise) {
    check.CheckBlocks(AlongRows(tensor, segments), tensor.quantized_rowwise,
                      moments, runlog::kStat_max_blockwise_dynamic_range, 0);
  }
  if (columnwise) {
    check.CheckBlocks(
        DownColumns(tensor, segments), tensor.quantized_columnwise, moments,
        runlog::kStat_max_blockwise_dynamic_range_columnwise,
        runlog::kStat_underflows_num_columnwise - runlog::kStat_underflows_num);
  }
  if (!rowwise || !columnwise) sink.AddUnchecked(tensor.name);
}

/// The lists whose rows the tensor has; null if it is none of a layer's rows.
const ExpertRows* ListsOf(const StepInputs& inputs,
                          const RecordedTensor& tensor) {
  const bool rows_of_lists = tensor.kind == model::TensorKind::kActivation ||
                             tensor.kind == model::TensorKind::kOutput ||
                             tensor.kind == model::TensorKind::kGradient ||
                             tensor.kind == model::TensorKind::kDgrad;
  if (!tensor.of_experts || !rows_of_lists) return nullptr;
  for (size_t layer = 0; layer < inputs.expert_rows.size(); ++layer) {
    const std::string moe =
        "layers." + std::to_string(layer + inputs.config.n_dense_layers) +
        ".moe.";
    if (tensor.name.starts_with(moe) &&
        inputs.expert_rows[layer].rows() == tensor.values.rows()) {
      return &inputs.expert_rows[layer];
    }
  }
  return nullptr;
}

}  // namespace

void CheckLoggedTensors(const StepInputs& inputs,
                        const runlog::TensorColumns& tensors,
                        ReportSink& sink) {
  FigureComparison digests(std::string(kLogPrefix) + "/tensors/digest", sink);
  FigureComparison statistics(std::string(kLogPrefix) + "/tensors/statistics",
                              sink);
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    const RecordedTensor* tensor = inputs.record.Find(tensors.names[i]);
    if (tensor == nullptr) continue;  // a router's choice has a digest only
    const std::vector<Segment> segments =
        SegmentsOf(*tensor, ListsOf(inputs, *tensor));
    if (!tensors.digest.empty()) {
      digests.AddDigest(tensors.digest[i], DigestOfTensor(*tensor, segments));
    }
    if (!tensors.statistics[runlog::kStat_numel].empty()) {
      CheckStatistics(*tensor, segments, i, tensors, statistics, sink);
    }
  }
}

}  // namespace isoloss::oracle
