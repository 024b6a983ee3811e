#include "isoloss/runlog/tensor_relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "isoloss/base/portable_math.h"
#include "isoloss/runlog/operand_scales.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::runlog {
namespace {

/// Programs with FP32 buffers round some ten times; ours are good to 1e-15.
constexpr double kTolerance = 1e-5;
/// That tolerance of a ratio of squares, 10 log10(1 + 2e-5) = 9e-5 dB, and some
/// for a program that logs decibels in FP32.
constexpr double kDecibel = 1e-3;

/// Distance between the statistics of the two directions.
constexpr size_t kColumnwise =
    kStat_underflows_num_columnwise - kStat_underflows_num;

/// The statistics of one tensor at one step.
class Entry {
 public:
  /// `of_experts`: for each tensor, whether its rows are experts' tokens;
  /// empty: nobody knows.
  Entry(const TensorColumns& tensors, const std::vector<bool>& of_experts,
        const std::vector<std::array<OperandScales, 2>>& scales, size_t at)
      : tensors_(tensors), of_experts_(of_experts), scales_(scales), at_(at) {}

  const OperandScales& Scales(size_t direction) const {
    return scales_[at_ % scales_.size()][direction == 0 ? 0 : 1];
  }

  bool Has(size_t statistic) const {
    return !tensors_.statistics[statistic].empty();
  }
  /// NaN if the log does not have the column.
  double operator[](size_t statistic) const {
    return Has(statistic) ? tensors_.statistics[statistic][at_] : std::nan("");
  }
  bool Defined(size_t statistic) const {
    return !std::isnan((*this)[statistic]);
  }
  double finite() const {
    const double nonfinite = (*this)[kStat_nonfinite_num];
    return (*this)[kStat_numel] - (std::isnan(nonfinite) ? 0 : nonfinite);
  }
  /// Whether statistics of quantisation are of all elements.
  bool Clean(size_t direction) const {
    return finite() == (*this)[kStat_numel] && finite() > 0 &&
           (*this)[direction + kStat_nan_blocks] == 0 &&
           // A cast may make a finite element infinite.
           !(Scales(direction).none &&
             (*this)[direction + kStat_saturated_num] > 0);
  }
  std::string Shown(size_t statistic) const {
    const double value = (*this)[statistic];
    return fmt::format("{} is {}", kTensorStatistics[statistic].name,
                       std::isnan(value) ? "NaN" : fmt::format("{}", value));
  }
  size_t at() const { return at_; }
  /// The same tensor in another row.
  Entry InRow(size_t row) const {
    const size_t count = tensors_.names.size();
    return {tensors_, of_experts_, scales_, row * count + at_ % count};
  }
  size_t rows() const { return tensors_.step.size(); }
  /// Whether it has a segment of rows for each expert's tokens; also if the
  /// log's layout does not say.
  bool MayBeOfExpertsTokens() const {
    return of_experts_.empty() || of_experts_[at_ % of_experts_.size()];
  }
  /// How many blocks got each scale byte; empty if that was not recorded.
  std::span<const int32_t> Blocks(size_t direction) const {
    const auto& histogram = direction == 0 ? tensors_.e8m0_histogram
                                           : tensors_.e8m0_histogram_columnwise;
    if (histogram.empty() ||
        static_cast<size_t>(tensors_.scale_bytes) != kScaleBytes) {
      return {};
    }
    return std::span(histogram).subspan(at_ * kScaleBytes, kScaleBytes);
  }
  const TensorColumns& tensors() const { return tensors_; }

 private:
  const TensorColumns& tensors_;
  const std::vector<bool>& of_experts_;
  const std::vector<std::array<OperandScales, 2>>& scales_;
  size_t at_;
};

std::vector<bool> AreOfExperts(const RunLog& log) {
  std::vector<bool> of_experts;
  if (log.provenance.graph.empty()) return of_experts;
  const GraphIndex graph(log.provenance.graph);
  for (const std::string& name : log.tensors.names) {
    const auto place = graph.Find(name);
    of_experts.push_back(place &&
                         graph.tensors().rows_of[*place] == "expert_tokens");
  }
  return of_experts;
}

/// Calls find(entry) for each tensor and step until it returns a text.
template <typename Find>
std::string ForEachEntry(const RunLog& log, const Find& find) {
  const TensorColumns& tensors = log.tensors;
  const size_t count = tensors.names.size();
  // Without it nobody knows which tensors were logged.
  if (tensors.statistics[kStat_numel].empty()) return "";
  const std::vector<bool> of_experts = AreOfExperts(log);
  const auto scales = OperandScalesOf(log);
  for (size_t at = 0; at < tensors.step.size() * count; ++at) {
    const std::string text = find(Entry(tensors, of_experts, scales, at));
    if (text.empty()) continue;
    return fmt::format("/tensors: {} for {} at step {}", text,
                       tensors.names[at % count], tensors.step[at / count]);
  }
  return "";
}

/// As above, for tensors with elements.
template <typename Find>
std::string ForEachFilled(const RunLog& log, const Find& find) {
  return ForEachEntry(log, [&](const Entry& entry) -> std::string {
    return entry[kStat_numel] > 0 ? find(entry) : "";
  });
}

constexpr double kBlockSize = 32;

double Count(std::span<const int32_t> blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), 0.0);
}

/// Whether some full block has an element other than 0. The log knows elements
/// n and blocks b, of which f are full and the others have 1 to 31 elements:
/// f >= n - 31 b, and f <= (n - b) / 31.
std::optional<bool> HasFullBlock(const Entry& entry, size_t direction) {
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
  // are some. A hundred steps are enough to look at. But what experts get is
  // divided otherwise in each step: 114 rows may be 4 blocks as 57 + 57, or as
  // 31 + 30 + 28 + 25.
  const bool divided_anew =
      direction == kColumnwise && entry.MayBeOfExpertsTokens();
  const size_t rows = divided_anew ? 0 : std::min<size_t>(entry.rows(), 100);
  for (size_t row = 0; row < rows && full == 0; ++row) {
    const Entry other = entry.InRow(row);
    const bool alike = other.Defined(spread) && other[kStat_numel] == n &&
                       Count(other.Blocks(direction)) == blocks;
    if (alike) full = 1;
  }
  const bool all_zero =
      zeros >= kBlockSize * full && n - zeros <= kPartial * (blocks - full);
  return all_zero ? std::nullopt : std::optional(true);
}

/// Whether a statistic must have a value (true), must be NaN (false) or may be
/// either.
std::optional<bool> DueOfQuantisation(const Entry& entry, size_t statistic,
                                      size_t direction) {
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
      // It needs a dequantised element that is not zero.
      return clean && !scales.transformed &&
                     entry[direction + kStat_underflows_num] +
                             entry[kStat_zeros_num] <
                         entry[kStat_numel]
                 ? std::optional(true)
                 : std::nullopt;
    case kStat_block_argmax_spread:
      if (scales.none || !scales.blocks) return false;
      return scales.e8m0 && !scales.transformed ? HasFullBlock(entry, direction)
                                                : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<bool> Due(const Entry& entry, size_t statistic) {
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
  // A program may log other statistics of quantisation than this one.
  if (!entry.Has(direction + kStat_underflows_num)) return std::nullopt;
  return DueOfQuantisation(entry, statistic, direction);
}

/// |a - b| is beyond the rounding of numbers as large as `scale`, or one of
/// them is infinite. NaN stands for what was not recorded.
bool Apart(double a, double b, double scale) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(scale)) return false;
  const double allowed = kTolerance * std::abs(scale);
  return !(std::isfinite(allowed) && std::abs(a - b) <= allowed);
}

/// The elements other than zero, m of n, lie between the smallest magnitude
/// and the largest one: their number and dynamic ranges fit the norms.
std::string RangesOf(const Entry& e) {
  const double n = e.finite();
  const double zeros = e[kStat_zeros_num];
  const double nonzero = n - zeros;
  const double amax = e[kStat_cur_amax];
  const double l1 = e[kStat_l1_norm];
  const double l2 = e[kStat_l2_norm];
  const auto two = [&](size_t a, size_t b) {
    return fmt::format("{}, but {} of {} elements", e.Shown(a), e.Shown(b), n);
  };
  // Comparisons with NaN, for what the log does not have, are false.
  if ((amax == 0 && nonzero > 0) || (amax > 0 && nonzero <= 0)) {
    return two(kStat_zeros_num, kStat_cur_amax);
  }
  if (zeros > 0 && e[kStat_min] > 0) return two(kStat_zeros_num, kStat_min);
  if (zeros > 0 && e[kStat_max] < 0) return two(kStat_zeros_num, kStat_max);
  // |x|_1 <= m |x|_max, and |x|_1 <= sqrt(m) |x|_2.
  constexpr double kMore = 1 + kTolerance;
  if (l1 > nonzero * amax * kMore) return two(kStat_zeros_num, kStat_l1_norm);
  if (l1 > std::sqrt(nonzero) * l2 * kMore) {
    return two(kStat_zeros_num, kStat_l2_norm);
  }
  const double range = e[kStat_dynamic_range];
  // At most 277 bits, in FP32 good to 277 * 2^-24 of which 2^ makes 1.2e-5.
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

std::string MomentsOf(const Entry& e) {
  const double n = e.finite();
  const double amax = e[kStat_cur_amax];
  const double l1 = e[kStat_l1_norm];
  const double l2 = e[kStat_l2_norm];
  const auto two = [&](size_t a, size_t b) {
    return fmt::format("{}, but {}", e.Shown(a), e.Shown(b));
  };
  // Comparisons with NaN, for what the log does not have, are false.
  if (e[kStat_zeros_num] > n) return two(kStat_zeros_num, kStat_numel);
  if (e[kStat_nonfinite_num] > e[kStat_numel]) {
    return two(kStat_nonfinite_num, kStat_numel);
  }
  if (e[kStat_min] > e[kStat_max]) return two(kStat_min, kStat_max);
  for (const size_t end : {kStat_min, kStat_max}) {
    const double past =
        end == kStat_max ? e[kStat_mean] - e[end] : e[end] - e[kStat_mean];
    if (past > kTolerance * amax) return two(kStat_mean, end);
  }
  if (Apart(amax, std::max(-e[kStat_min], e[kStat_max]), amax)) {
    return two(kStat_cur_amax, kStat_max);
  }
  if (Apart(e[kStat_std] * e[kStat_std], e[kStat_variance],
            e[kStat_variance])) {
    return two(kStat_std, kStat_variance);
  }
  if (Apart(e[kStat_mean] * n, e[kStat_sum], l1)) {
    return two(kStat_mean, kStat_sum);
  }
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
  // |x|_2 <= |x|_1 <= sqrt(n) |x|_2 and |x|_max <= |x|_2.
  if (l2 > l1 * (1 + kTolerance) || l1 > std::sqrt(n) * l2 * (1 + kTolerance)) {
    return two(kStat_l1_norm, kStat_l2_norm);
  }
  if (amax > l2 * (1 + kTolerance)) return two(kStat_cur_amax, kStat_l2_norm);
  return RangesOf(e);
}

std::string SharesOf(const Entry& e) {
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

/// Blocks by scale byte of one direction, where the log has them.
std::string ScalesOf(const Entry& e, size_t direction) {
  const size_t smallest = direction + kStat_scale_inv_min;
  const size_t largest = direction + kStat_scale_inv_max;
  const size_t nan_blocks = direction + kStat_nan_blocks;
  if (e[smallest] > e[largest]) {
    return fmt::format("{}, but {}", e.Shown(smallest), e.Shown(largest));
  }
  const OperandScales& scales = e.Scales(direction);
  for (const size_t scale : {smallest, largest}) {
    const double value = e[scale];
    const bool byte = value == std::floor(value) && value <= 255;
    if (scales.e8m0 && e.Defined(scale) && !byte) {
      return fmt::format("{}, but scales are bytes of E8M0", e.Shown(scale));
    }
  }
  const std::span<const int32_t> counts = e.Blocks(direction);
  if (counts.empty() || !e.Has(direction + kStat_underflows_num)) return "";
  const double blocks = Count(counts);
  const bool quantised =
      e.Defined(direction + kStat_underflows_num) && scales.e8m0;
  const double numel = e[kStat_numel];
  // A block has 1 to 32 elements; another cell has at least one, too.
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
  size_t first = 1;
  while (first < kScaleBytes && counts[first] == 0) ++first;
  size_t last = kScaleBytes - 1;
  while (last > 0 && counts[last] == 0) --last;
  for (const auto& [statistic, expected] :
       {std::pair(nan_blocks, static_cast<double>(counts[255])),
        std::pair(smallest, static_cast<double>(first)),
        std::pair(largest, static_cast<double>(last))}) {
    const bool none = statistic == smallest && first == kScaleBytes;
    if (!e.Has(statistic) || blocks == 0 || e[statistic] == expected ||
        (none && !e.Defined(statistic))) {
      continue;
    }
    return fmt::format("{}, by the histogram {}", e.Shown(statistic), expected);
  }
  return "";
}

std::string ErrorsOf(const Entry& e, size_t direction) {
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
  // |x - q|^2 = |x|^2 - 2 <x, q> + |q|^2, over |x|^2. The inner product is 0,
  // and |q| unknown, if the cosine is; else |q| / |x| is their ratio.
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

namespace {

/// Steps that have statistics and those that have not.
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
  const std::string wrong = WrongStatisticSteps(log);
  if (!wrong.empty()) return wrong;
  return ForEachEntry(log, [](const Entry& entry) -> std::string {
    for (size_t i = 0; i < kTensorStatisticCount; ++i) {
      if (!entry.Has(i)) continue;
      const std::optional<bool> due = Due(entry, i);
      if (!due || *due == entry.Defined(i)) continue;
      return fmt::format("{} of {} elements", entry.Shown(i),
                         entry[kStat_numel]);
    }
    return "";
  });
}

std::string WrongMoments(const RunLog& log) {
  return ForEachFilled(log, &MomentsOf);
}

std::string WrongShares(const RunLog& log) {
  return ForEachFilled(log, &SharesOf);
}

std::string WrongScales(const RunLog& log) {
  return ForEachFilled(log, [](const Entry& entry) -> std::string {
    std::string text = ScalesOf(entry, 0);
    return text.empty() ? ScalesOf(entry, kColumnwise) : text;
  });
}

std::string WrongErrors(const RunLog& log) {
  return ForEachFilled(log, [](const Entry& entry) -> std::string {
    std::string text = ErrorsOf(entry, 0);
    return text.empty() ? ErrorsOf(entry, kColumnwise) : text;
  });
}

}  // namespace isoloss::runlog
