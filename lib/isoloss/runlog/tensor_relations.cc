#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/relations.h"
#include "isoloss/runlog/tensor_entry.h"

namespace isoloss::runlog {
namespace {

/// Programs with FP32 buffers round some ten times; ours are good to 1e-15.
constexpr double kTolerance = 1e-5;
/// A ratio of squares has this tolerance: 10 log10(1 + 2e-5) = 9e-5 dB, and
/// some for a program that logs decibels in FP32.
constexpr double kDecibel = 1e-3;

/// Does the same as ForEachEntry, but only for tensors with elements.
template <typename Find>
std::string ForEachFilled(const RunLog& log, const Find& find) {
  return ForEachEntry(log, [&](const TensorEntry& entry) -> std::string {
    return entry[kStat_numel] > 0 ? find(entry) : "";
  });
}

/// True if |a - b| is beyond the rounding of numbers as large as `scale`, or
/// one of them is infinite. NaN stands for a number that was not recorded.
bool Apart(double a, double b, double scale) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(scale)) return false;
  const double allowed = kTolerance * std::abs(scale);
  return !(std::isfinite(allowed) && std::abs(a - b) <= allowed);
}

/// Checks that the m of n elements that are not zero lie between the smallest
/// magnitude and the largest one: their number and dynamic ranges fit the
/// norms.
std::string RangesOf(const TensorEntry& e) {
  const double n = e.finite();
  const double zeros = e[kStat_zeros_num];
  const double nonzero = n - zeros;
  const double amax = e[kStat_cur_amax];
  const double l1 = e[kStat_l1_norm];
  const double l2 = e[kStat_l2_norm];
  const auto two = [&](size_t a, size_t b) {
    return fmt::format("{}, but {} of {} elements", e.Shown(a), e.Shown(b), n);
  };
  // Columns that the log lacks are NaN, and comparisons with NaN are false.
  if ((amax == 0 && nonzero > 0) || (amax > 0 && nonzero <= 0)) {
    return two(kStat_zeros_num, kStat_cur_amax);
  }
  if (zeros > 0 && e[kStat_min] > 0) return two(kStat_zeros_num, kStat_min);
  if (zeros > 0 && e[kStat_max] < 0) return two(kStat_zeros_num, kStat_max);
  // The m nonzero elements obey |x|_1 <= m |x|_max, and |x|_1 <= sqrt(m) |x|_2.
  constexpr double kMore = 1 + kTolerance;
  if (l1 > nonzero * amax * kMore) return two(kStat_zeros_num, kStat_l1_norm);
  if (l1 > std::sqrt(nonzero) * l2 * kMore) {
    return two(kStat_zeros_num, kStat_l2_norm);
  }
  const double range = e[kStat_dynamic_range];
  // The range is at most 277 bits and in FP32 good to 277 * 2^-24, of which 2^
  // makes 1.2e-5.
  constexpr double kBits = 1 + 10 * kTolerance;
  if (nonzero * amax * portable::Pow(2.0, -range) > l1 * kBits) {
    return two(kStat_dynamic_range, kStat_l1_norm);
  }
  for (const size_t blockwise :
       {kStat_max_blockwise_dynamic_range,
        kStat_max_blockwise_dynamic_range_columnwise}) {
    if (e[blockwise] > range + kTolerance * std::max(range, 1.0) ||
        (amax == 0 && e[blockwise] != 0 && e.Defined(blockwise))) {
      return two(blockwise, kStat_dynamic_range);
    }
  }
  return "";
}

std::string Two(const TensorEntry& e, size_t a, size_t b) {
  return fmt::format("{}, but {}", e.Shown(a), e.Shown(b));
}

std::string NormsOf(const TensorEntry& e) {
  const double n = e.finite();
  const double l1 = e[kStat_l1_norm];
  const double l2 = e[kStat_l2_norm];
  // The commonest error of a merge over ranks or buffers, the square of the
  // means' distance with the wrong sign, breaks this
  // (NVIDIA/TransformerEngine, pull request 3044).
  const double mean = e[kStat_mean];
  const double merged = (n - 1) * e[kStat_variance] + n * mean * mean;
  if (n > 1 && Apart(l2 * l2, merged, l2 * l2)) {
    return fmt::format(
        "{}, {} and {} of {} elements, but l2_norm^2 must be (n - 1) variance "
        "+ n mean^2: statistics of parts were merged wrongly",
        e.Shown(kStat_l2_norm), e.Shown(kStat_mean), e.Shown(kStat_variance),
        n);
  }
  // Any tensor has |x|_2 <= |x|_1 <= sqrt(n) |x|_2 and |x|_max <= |x|_2.
  if (l2 > l1 * (1 + kTolerance) || l1 > std::sqrt(n) * l2 * (1 + kTolerance)) {
    return Two(e, kStat_l1_norm, kStat_l2_norm);
  }
  if (e[kStat_cur_amax] > l2 * (1 + kTolerance)) {
    return Two(e, kStat_cur_amax, kStat_l2_norm);
  }
  return "";
}

std::string MomentsOf(const TensorEntry& e) {
  const double n = e.finite();
  const double amax = e[kStat_cur_amax];
  // Columns that the log lacks are NaN, and comparisons with NaN are false.
  if (e[kStat_zeros_num] > n) return Two(e, kStat_zeros_num, kStat_numel);
  if (e[kStat_nonfinite_num] > e[kStat_numel]) {
    return Two(e, kStat_nonfinite_num, kStat_numel);
  }
  if (e[kStat_min] > e[kStat_max]) return Two(e, kStat_min, kStat_max);
  for (const size_t end : {kStat_min, kStat_max}) {
    const double past =
        end == kStat_max ? e[kStat_mean] - e[end] : e[end] - e[kStat_mean];
    if (past > kTolerance * amax) return Two(e, kStat_mean, end);
  }
  if (Apart(amax, std::max(-e[kStat_min], e[kStat_max]), amax)) {
    return Two(e, kStat_cur_amax, kStat_max);
  }
  if (Apart(e[kStat_std] * e[kStat_std], e[kStat_variance],
            e[kStat_variance])) {
    return Two(e, kStat_std, kStat_variance);
  }
  if (Apart(e[kStat_mean] * n, e[kStat_sum], e[kStat_l1_norm])) {
    return Two(e, kStat_mean, kStat_sum);
  }
  const std::string norms = NormsOf(e);
  return norms.empty() ? RangesOf(e) : norms;
}

std::string SharesOf(const TensorEntry& e) {
  for (const size_t direction : {size_t{0}, kColumnwise}) {
    for (const auto& [number, share] :
         {std::pair(kStat_underflows_num, kStat_underflows),
          std::pair(kStat_saturated_num, kStat_saturated)}) {
      const double found = e[direction + number];
      const double percent = 100 * found / e[kStat_numel];
      if (found > e[kStat_numel]) {
        return fmt::format("{} of {} elements", e.Shown(direction + number),
                           e[kStat_numel]);
      }
      if (Apart(e[direction + share], percent, percent)) {
        return fmt::format("{}, but {} of {} elements",
                           e.Shown(direction + share),
                           e.Shown(direction + number), e[kStat_numel]);
      }
    }
  }
  return "";
}

/// Compares the histogram of one direction, blocks by scale byte, with the
/// statistics if the log has it. Says which of its places do not fit.
std::string PlacesOf(const TensorEntry& e, size_t direction,
                     std::span<const int32_t> counts) {
  const size_t smallest = direction + kStat_scale_inv_min;
  size_t first = 1;
  while (first < kScaleBytes && counts[first] == 0) ++first;
  size_t last = kScaleBytes - 1;
  while (last > 0 && counts[last] == 0) --last;
  for (const auto& [statistic, expected] :
       {std::pair(direction + kStat_nan_blocks,
                  static_cast<double>(counts[255])),
        std::pair(smallest, static_cast<double>(first)),
        std::pair(direction + kStat_scale_inv_max,
                  static_cast<double>(last))}) {
    const bool none = statistic == smallest && first == kScaleBytes;
    if (!e.Has(statistic) || Count(counts) == 0 || e[statistic] == expected ||
        (none && !e.Defined(statistic))) {
      continue;
    }
    return fmt::format("{}, by the histogram {}", e.Shown(statistic), expected);
  }
  return "";
}

std::string HistogramOf(const TensorEntry& e, size_t direction) {
  const OperandScales& scales = e.Scales(direction);
  const std::span<const int32_t> counts = e.Blocks(direction);
  if (counts.empty() || !e.Has(direction + kStat_underflows_num)) return "";
  const double blocks = Count(counts);
  const bool quantised =
      e.Defined(direction + kStat_underflows_num) && scales.e8m0;
  const double numel = e[kStat_numel];
  // A block has 1 to 32 elements; a cell of another shape has at least one.
  const bool of_32 = scales.blocks && !scales.transformed;
  const double most = scales.transformed ? kBlockSize * numel : numel;
  if (quantised ? (blocks > most || (of_32 && kBlockSize * blocks < numel))
                : blocks != 0) {
    return fmt::format("the histogram of {} counts {} blocks of {} elements",
                       direction == 0 ? "rows" : "columns", blocks, numel);
  }
  if (!quantised) return "";
  // An element of at least 2^-100 has a scale byte above 0 in every format.
  const double smallest_magnitude =
      e[kStat_cur_amax] * portable::Pow(2.0, -e[kStat_dynamic_range]);
  if (!scales.transformed && smallest_magnitude > 0x1p-100 &&
      e[kStat_zeros_num] < counts[0]) {
    return fmt::format("{}, but {} blocks have scale byte 0",
                       e.Shown(kStat_zeros_num), counts[0]);
  }
  return PlacesOf(e, direction, counts);
}

std::string ScalesOf(const TensorEntry& e, size_t direction) {
  const size_t smallest = direction + kStat_scale_inv_min;
  const size_t largest = direction + kStat_scale_inv_max;
  if (e[smallest] > e[largest]) {
    return fmt::format("{}, but {}", e.Shown(smallest), e.Shown(largest));
  }
  for (const size_t scale : {smallest, largest}) {
    const double value = e[scale];
    const bool byte = value == std::floor(value) && value <= 255;
    if (e.Scales(direction).e8m0 && e.Defined(scale) && !byte) {
      return fmt::format("{}, but scales are bytes of E8M0", e.Shown(scale));
    }
  }
  return HistogramOf(e, direction);
}

std::string ErrorsOf(const TensorEntry& e, size_t direction) {
  const double squares = e[kStat_l2_norm] * e[kStat_l2_norm];
  if (!e.Clean(direction) || !(squares > 0)) return "";
  const double mse = e[direction + kStat_mse];
  const double share = mse * e[kStat_numel] / squares;
  const double decibels = e[direction + kStat_sqnr];
  const bool exact = share == 0;
  if (exact != std::isinf(decibels) ||
      (!exact && std::abs(decibels + 10 * portable::Log10(share)) > kDecibel)) {
    if (!std::isnan(share) && !std::isnan(decibels)) {
      return fmt::format("{}, but {} and {}", e.Shown(direction + kStat_sqnr),
                         e.Shown(direction + kStat_mse),
                         e.Shown(kStat_l2_norm));
    }
  }
  const double gain = e[direction + kStat_signed_gain];
  const double cosine = e[direction + kStat_cosine];
  if (std::isnan(share) || std::isnan(gain) || std::isnan(cosine)) return "";
  // The error is |x - q|^2 = |x|^2 - 2 <x, q> + |q|^2, over |x|^2. If the
  // cosine is 0, so is the inner product, and |q| is unknown; else |q| / |x| is
  // their ratio.
  const double ratio = cosine == 0 ? 0 : gain / cosine;
  const double merged = 1 - 2 * gain + ratio * ratio;
  const bool fits =
      cosine == 0
          ? gain == 0 && share >= 1 - kTolerance
          : ratio >= 0 &&
                !Apart(share, merged, 1 + 2 * std::abs(gain) + ratio * ratio);
  if (!fits) {
    return fmt::format("{}, but {} and {}", e.Shown(direction + kStat_mse),
                       e.Shown(direction + kStat_cosine),
                       e.Shown(direction + kStat_signed_gain));
  }
  return "";
}

}  // namespace

std::string WrongDigests(const RunLog& log) {
  const TensorColumns& tensors = log.tensors;
  const size_t count = tensors.names.size();
  if (tensors.digest.empty()) return "";
  const Recording recording(log.provenance);
  const bool known = recording.missing_keys().empty();
  for (size_t row = 0; row < tensors.step.size(); ++row) {
    const auto* first = tensors.digest.data() + row * count;
    const auto none =
        static_cast<size_t>(std::count(first, first + count, int64_t{0}));
    const bool due =
        known ? recording.HasDigests(tensors.step[row]) : none < count;
    if (none == (due ? 0 : count)) continue;
    const auto* wrong = std::find_if(
        first, first + count, [due](int64_t x) { return (x == 0) == due; });
    return fmt::format("/tensors/digest is {} for {} at step {} {} digests",
                       *wrong,
                       tensors.names[static_cast<size_t>(wrong - first)],
                       tensors.step[row], due ? "with" : "without");
  }
  return "";
}

std::string WrongMoments(const RunLog& log) {
  return ForEachFilled(log, &MomentsOf);
}

std::string WrongShares(const RunLog& log) {
  return ForEachFilled(log, &SharesOf);
}

std::string WrongScales(const RunLog& log) {
  return ForEachFilled(log, [](const TensorEntry& entry) -> std::string {
    std::string text = ScalesOf(entry, 0);
    return text.empty() ? ScalesOf(entry, kColumnwise) : text;
  });
}

std::string WrongErrors(const RunLog& log) {
  return ForEachFilled(log, [](const TensorEntry& entry) -> std::string {
    std::string text = ErrorsOf(entry, 0);
    return text.empty() ? ErrorsOf(entry, kColumnwise) : text;
  });
}

}  // namespace isoloss::runlog
