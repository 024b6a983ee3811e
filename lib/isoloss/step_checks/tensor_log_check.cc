// Verifies a step's log of tensors: digests and statistics. They follow from
// the announced values, one element after another in double precision. Blocks
// and cells are those of docs/run-log.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/step_checks/figure_comparison.h"
#include "isoloss/step_checks/log_check.h"
#include "isoloss/step_checks/operand_figures.h"

namespace isoloss::step_checks {
namespace {

const std::string kLoggedDigests =
    std::string(runlog::kLogPrefix) + "/tensors/digest";
const std::string kLoggedStatistics =
    std::string(runlog::kLogPrefix) + "/tensors/statistics";

constexpr double kUndefinedStatistic = std::numeric_limits<double>::quiet_NaN();
constexpr double kUnboundedStatistic = std::numeric_limits<double>::infinity();

// ---- digests ---------------------------------------------------------------

/// This is SplitMix64's finaliser (docs/run-log.md, Tensors).
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
    uint64_t position = segment.first_position;
    for (const size_t row : segment.rows) {
      std::vector<float> values(tensor.values.Row(row),
                                tensor.values.Row(row) + tensor.values.cols());
      for (float& value : values) {
        if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
      }
      uint64_t place = Finalize(segment.group + kStage);
      place =
          Finalize((place ^ (tensor.of_experts ? segment.number : 0)) + kStage);
      place = Finalize((place ^ position++) + kStage);
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
  double min = kUnboundedStatistic, max = -kUnboundedStatistic,
         smallest = kUnboundedStatistic;
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

/// A block has 32 elements along a row or down a column, whatever the cells
/// are.
constexpr size_t kBlock = 32;

/// Computes the largest magnitude over the smallest other than zero. It is 1 if
/// all are zero.
class Range {
 public:
  void Add(float element) {
    const double size = std::fabs(static_cast<double>(element));
    const bool counts = size > 0 && size < kUnboundedStatistic;
    largest_ = std::max(largest_, counts ? size : 0);
    smallest_ = std::min(smallest_, counts ? size : kUnboundedStatistic);
  }
  double Quotient() const { return largest_ > 0 ? largest_ / smallest_ : 1.0; }

 private:
  double largest_ = 0;
  double smallest_ = kUnboundedStatistic;
};

/// Returns the range of the worst block, or 0 if there is no block.
double WorstRange(const RecordedTensor& tensor,
                  const std::vector<Segment>& segments, bool down) {
  double worst = 0;
  const size_t cols = tensor.values.cols();
  const size_t height = down ? kBlock : 1;
  const size_t width = down ? 1 : kBlock;
  std::vector<Range> blocks;  // side by side
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.rows.size(); i += height) {
      blocks.assign((cols + width - 1) / width, {});
      for (size_t k = i; k < std::min(i + height, segment.rows.size()); ++k) {
        const float* row = tensor.values.Row(segment.rows[k]);
        for (size_t j = 0; j < cols; j += width) {
          Range& block = blocks[j / width];
          const size_t end = std::min(j + width, cols);
          for (size_t l = j; l < end; ++l) block.Add(row[l]);
        }
      }
      for (const Range& block : blocks) {
        worst = std::max(worst, block.Quotient());
      }
    }
  }
  return worst;
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
          amax > 0 ? portable::Log2(amax / m.smallest) : kUndefinedStatistic);
    if (finite < 2) return;
    const double variance =
        std::max(0.0, m.squares - m.sum * m.sum / finite) / (finite - 1);
    Check(runlog::kStat_variance, variance, m.squares / (finite - 1));
    // If nearly everything cancels, the variance has only the squares' last
    // bits.
    const double deviation = Logged(runlog::kStat_std);
    comparison_.AddReal(deviation * deviation, variance,
                        m.squares / (finite - 1));
  }

  void CheckRange(double worst, size_t statistic) {
    Check(statistic, worst > 0 ? portable::Log2(worst) : kUndefinedStatistic,
          1.0);
  }

  /// `offset` is the distance between the statistics of the two directions.
  void CheckOperand(const OperandFigures& figures, const Moments& moments,
                    size_t offset) {
    const double numel = moments.numel;
    CheckScaleBytes(figures, offset == 0 ? tensors_.e8m0_histogram
                                         : tensors_.e8m0_histogram_columnwise);
    // A block with an infinity has no defined largest element.
    if (moments.nonfinite == 0) {
      Check(runlog::kStat_block_argmax_spread + offset, figures.Spread(), 1.0);
    }
    Check(runlog::kStat_underflows_num + offset, figures.underflows);
    Check(runlog::kStat_underflows + offset, 100 * figures.underflows / numel);
    Check(runlog::kStat_saturated_num + offset, figures.saturated);
    Check(runlog::kStat_saturated + offset, 100 * figures.saturated / numel);
    Check(runlog::kStat_nan_blocks + offset, figures.nan_scales);
    Check(runlog::kStat_scale_inv_min + offset, figures.scale_min);
    Check(runlog::kStat_scale_inv_max + offset, figures.scale_max);
    Check(runlog::kStat_mse + offset, figures.errors / figures.pairs);
    Check(runlog::kStat_signed_gain + offset,
          figures.products / figures.squares);
    Check(runlog::kStat_sqnr + offset,
          figures.squares > 0
              ? 10 * portable::Log10(figures.squares / figures.errors)
              : kUndefinedStatistic,
          1.0);
    const double norms = std::sqrt(figures.squares * figures.quantized);
    Check(runlog::kStat_cosine + offset,
          norms > 0 ? figures.products / norms : kUndefinedStatistic);
  }

 private:
  void CheckScaleBytes(const OperandFigures& figures,
                       const std::vector<int32_t>& histogram) {
    if (histogram.empty()) return;
    for (size_t byte = 0; byte < figures.bytes.size(); ++byte) {
      comparison_.AddCount(histogram[place_ * figures.bytes.size() + byte],
                           figures.bytes[byte]);
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
                     FigureComparison& comparison) {
  // The tensor has no statistics at this step.
  if (std::isnan(tensors.statistics[runlog::kStat_numel][place])) return;
  Moments moments;
  for (const Segment& segment : segments) {
    for (const size_t row : segment.rows) {
      for (size_t j = 0; j < tensor.values.cols(); ++j) {
        moments.Add(static_cast<double>(tensor.values(row, j)));
      }
    }
  }
  if (moments.numel == 0) return;
  StatisticsCheck check(tensors, place, comparison);
  check.CheckMoments(moments);
  check.CheckRange(WorstRange(tensor, segments, /*down=*/false),
                   runlog::kStat_max_blockwise_dynamic_range);
  check.CheckRange(WorstRange(tensor, segments, /*down=*/true),
                   runlog::kStat_max_blockwise_dynamic_range_columnwise);
  if (tensor.quantized_rowwise) {
    check.CheckOperand(FiguresOf(tensor, segments, /*down=*/false), moments, 0);
  }
  if (tensor.quantized_columnwise) {
    check.CheckOperand(
        FiguresOf(tensor, segments, /*down=*/true), moments,
        runlog::kStat_underflows_num_columnwise - runlog::kStat_underflows_num);
  }
}

/// Returns the experts' lists whose rows the tensor has, or null if it has
/// none.
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

/// Returns how many statistics the log has of a tensor, and bins of histograms.
int64_t LoggedFigures(const runlog::TensorColumns& tensors, size_t place,
                      const RecordedTensor& tensor) {
  int64_t figures = std::ranges::count_if(
      tensors.statistics, [place](const std::vector<double>& column) {
        return !column.empty() && !std::isnan(column[place]);
      });
  if (figures == 0) return 0;
  if (tensor.quantized_rowwise && !tensors.e8m0_histogram.empty()) {
    figures += static_cast<int64_t>(runlog::kScaleBytes);
  }
  if (tensor.quantized_columnwise &&
      !tensors.e8m0_histogram_columnwise.empty()) {
    figures += static_cast<int64_t>(runlog::kScaleBytes);
  }
  return figures;
}

/// Compares digest and statistics number `place` of the log.
void CheckLoggedTensor(const StepInputs& inputs,
                       const runlog::TensorColumns& tensors, size_t place,
                       const oracle::Sample& of_statistics, ReportSink& sink) {
  const RecordedTensor* tensor = inputs.record.Find(tensors.names[place]);
  if (tensor == nullptr) return;  // a router's choice: only a digest
  const std::vector<Segment> segments =
      SegmentsOf(*tensor, ListsOf(inputs, *tensor));
  if (!tensors.digest.empty()) {
    FigureComparison(kLoggedDigests, sink, place)
        .AddDigest(tensors.digest[place], DigestOfTensor(*tensor, segments));
  }
  if (tensors.statistics[runlog::kStat_numel].empty()) return;
  FigureComparison statistics(kLoggedStatistics, sink, place);
  if (of_statistics.Sees(place)) {
    CheckStatistics(*tensor, segments, place, tensors, statistics);
    return;
  }
  const int64_t unseen = LoggedFigures(tensors, place, *tensor);
  if (unseen == 0) return;
  statistics.AddUnseen(unseen, static_cast<int64_t>(of_statistics.draws()));
}

}  // namespace

void AddLoggedTensorParts(const StepInputs& inputs,
                          const runlog::TensorColumns& tensors,
                          std::vector<CheckPart>& parts) {
  const oracle::Sample of_statistics = inputs.sampling.Few(
      kLoggedStatistics, tensors.names.size(), 1, kStatisticsDraws);
  for (size_t place = 0; place < tensors.names.size(); ++place) {
    parts.emplace_back([&tensors, place, of_statistics](const StepInputs& step,
                                                        ReportSink& sink) {
      CheckLoggedTensor(step, tensors, place, of_statistics, sink);
    });
  }
}

}  // namespace isoloss::step_checks
