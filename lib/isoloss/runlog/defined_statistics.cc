// Decides which statistics of a tensor have a meaning, and so a value.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/relations.h"
#include "isoloss/runlog/tensor_entry.h"

namespace isoloss::runlog {
namespace {

/// Tells for each tensor whether it has a segment of rows for each expert's
/// tokens; true also if the log's layout does not say.
std::vector<bool> MayBeOfExperts(const RunLog& log) {
  std::vector<bool> of_experts(log.tensors.names.size(), true);
  if (log.provenance.graph.empty()) return of_experts;
  const GraphIndex graph(log.provenance.graph);
  for (size_t i = 0; i < of_experts.size(); ++i) {
    const auto place = graph.Find(log.tensors.names[i]);
    of_experts[i] = place && graph.tensors().rows_of[*place] == "expert_tokens";
  }
  return of_experts;
}

/// True if some full block has an element other than 0, false if none has. The
/// log knows elements n and blocks b, of which f are full and the rest have 1
/// to 31 elements: f >= n - 31 b, and f <= (n - b) / 31.
std::optional<bool> HasFullBlock(const TensorEntry& entry, size_t direction,
                                 bool of_experts) {
  const std::span<const int32_t> histogram = entry.Blocks(direction);
  if (histogram.empty() || !entry.Defined(kStat_zeros_num) ||
      entry.finite() != entry[kStat_numel]) {
    return std::nullopt;
  }
  const double n = entry[kStat_numel];
  const double zeros = entry[kStat_zeros_num];
  const double blocks = Count(histogram);
  constexpr double kPartial = kBlockSize - 1;
  if (n == zeros || n - blocks < kPartial) return false;
  double full = std::max(0.0, n - kPartial * blocks);
  const size_t spread = direction + kStat_block_argmax_spread;
  // A tensor of as many elements and blocks at another step shows that there
  // are some. A hundred steps are enough to look at. But the rows of experts
  // are divided anew in each step: 114 rows may be 4 blocks as 57 + 57, or as
  // 31 + 30 + 28 + 25.
  const bool divided_anew = direction == kColumnwise && of_experts;
  const size_t rows = divided_anew ? 0 : std::min<size_t>(entry.rows(), 100);
  for (size_t row = 0; row < rows && full == 0; ++row) {
    const TensorEntry other = entry.InRow(row);
    const bool alike = other.Defined(spread) && other[kStat_numel] == n &&
                       Count(other.Blocks(direction)) == blocks;
    if (alike) full = 1;
  }
  const bool all_zero =
      zeros >= kBlockSize * full && n - zeros <= kPartial * (blocks - full);
  return all_zero ? std::nullopt : std::optional(true);
}

/// Returns true if a statistic must have a value, false if it must be NaN, and
/// nothing if it may be either.
std::optional<bool> DueOfQuantisation(const TensorEntry& entry,
                                      size_t statistic, size_t direction,
                                      bool of_experts) {
  const bool quantised = entry.Defined(direction + kStat_underflows_num);
  if (!quantised) return false;
  const bool clean = entry.Clean(direction);
  const OperandScales& scales = entry.Scales(direction);
  switch (statistic - direction) {
    case kStat_underflows_num:
    case kStat_saturated_num:
    case kStat_nan_blocks:
      return true;
    case kStat_underflows:
    case kStat_saturated:
      return entry[kStat_numel] > 0;
    case kStat_scale_inv_max:
      if (scales.none) return false;
      // A NaN is a byte of E8M0, but no other number.
      return scales.e8m0 || entry[direction + kStat_nan_blocks] == 0
                 ? std::optional(entry[kStat_numel] > 0)
                 : std::nullopt;
    case kStat_mse:
      return clean ? std::optional(true) : std::nullopt;
    case kStat_sqnr:
    case kStat_signed_gain:
      return clean && entry.Has(kStat_l2_norm)
                 ? std::optional(entry[kStat_l2_norm] > 0)
                 : std::nullopt;
    case kStat_cosine:
      // The statistic needs a dequantised element that is not zero.
      return clean && !scales.transformed &&
                     entry[direction + kStat_underflows_num] +
                             entry[kStat_zeros_num] <
                         entry[kStat_numel]
                 ? std::optional(true)
                 : std::nullopt;
    case kStat_block_argmax_spread:
      if (scales.none || !scales.blocks) return false;
      return scales.e8m0 && !scales.transformed
                 ? HasFullBlock(entry, direction, of_experts)
                 : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<bool> Due(const TensorEntry& entry, size_t statistic,
                        bool of_experts) {
  if (!entry.Defined(kStat_numel)) return false;
  switch (statistic) {
    case kStat_numel:
    case kStat_nonfinite_num:
    case kStat_zeros_num:
    case kStat_sum:
    case kStat_l1_norm:
    case kStat_l2_norm:
      return true;
    case kStat_min:
    case kStat_max:
    case kStat_mean:
    case kStat_cur_amax:
      return entry.finite() > 0;
    case kStat_variance:
    case kStat_std:
      return entry.finite() > 1;
    case kStat_dynamic_range:
      return entry.Has(kStat_cur_amax)
                 ? std::optional(entry[kStat_cur_amax] > 0)
                 : std::nullopt;
    case kStat_max_blockwise_dynamic_range:
    case kStat_max_blockwise_dynamic_range_columnwise:
      return entry[kStat_numel] > 0;
    default:
      break;
  }
  const size_t direction =
      statistic >= kStat_underflows_num_columnwise ? kColumnwise : 0;
  // Another program may log other statistics of quantisation but not this one.
  if (!entry.Has(direction + kStat_underflows_num)) return std::nullopt;
  return DueOfQuantisation(entry, statistic, direction, of_experts);
}

/// Checks which steps have statistics and which have none.
std::string WrongStatisticSteps(const RunLog& log) {
  const TensorColumns& tensors = log.tensors;
  const auto& numel = tensors.statistics[kStat_numel];
  const Recording recording(log.provenance);
  if (numel.empty() || !recording.missing_keys().empty()) return "";
  const size_t count = tensors.names.size();
  for (size_t row = 0; row < tensors.step.size(); ++row) {
    const auto* first = numel.data() + row * count;
    const bool found = std::any_of(first, first + count,
                                   [](double x) { return !std::isnan(x); });
    if (found == recording.HasStatistics(tensors.step[row])) continue;
    return fmt::format("/tensors: numel is {} at step {}, {} statistics",
                       found ? "a number" : "NaN for all tensors",
                       tensors.step[row], found ? "without" : "with");
  }
  return "";
}

}  // namespace

std::string UndefinedStatistic(const RunLog& log) {
  std::string wrong = WrongStatisticSteps(log);
  if (!wrong.empty()) return wrong;
  const std::vector<bool> of_experts = MayBeOfExperts(log);
  return ForEachEntry(log, [&](const TensorEntry& entry) -> std::string {
    for (size_t i = 0; i < kTensorStatisticCount; ++i) {
      if (!entry.Has(i)) continue;
      const std::optional<bool> due = Due(entry, i, of_experts[entry.tensor()]);
      if (!due || *due == entry.Defined(i)) continue;
      return fmt::format("{} of {} elements", entry.Shown(i),
                         entry[kStat_numel]);
    }
    return "";
  });
}

}  // namespace isoloss::runlog
