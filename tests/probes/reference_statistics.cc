#include "reference_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::probes {
namespace {

using formats::Quantization;
using namespace runlog;  // NOLINT(google-build-using-namespace): kStat_…

using Block = std::vector<float>;

std::vector<Block> BlocksAlong(MatrixView<const float> values) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      if (j % 32 == 0) blocks.emplace_back();
      blocks.back().push_back(values(i, j));
    }
  }
  return blocks;
}

/// `starts`: rows at which blocks start anew.
std::vector<Block> BlocksDown(MatrixView<const float> values,
                              const std::vector<size_t>& starts) {
  std::vector<Block> blocks;
  for (size_t j = 0; j < values.cols(); ++j) {
    size_t length = 32;
    for (size_t i = 0; i < values.rows(); ++i) {
      const bool anew = std::count(starts.begin(), starts.end(), i) > 0;
      if (length == 32 || anew) {
        blocks.emplace_back();
        length = 0;
      }
      blocks.back().push_back(values(i, j));
      ++length;
    }
  }
  return blocks;
}

/// Of either width; Clang wants it said.
template <typename T>
long double Long(T number) {
  return static_cast<long double>(number);
}

const long double kUndefined = std::numeric_limits<long double>::quiet_NaN();

/// A plain sum of at most 1024 terms in 16 lanes is the result of at most 68
/// additions: it is off by less than 68 * 2^-53 of the magnitudes. The
/// reference adds 2^14 terms at most: 2^-50 of them covers all.
constexpr long double kSumBound = 70 * 0x1p-53L + 0x1p-50L;

double RangeInBits(const std::vector<Block>& blocks) {
  double range = std::nan("");
  for (const Block& block : blocks) {
    double largest = 0;
    double smallest = 0;
    for (const float x : block) {
      const double magnitude = std::fabs(static_cast<double>(x));
      if (!std::isfinite(x) || x == 0) continue;
      largest = std::max(largest, magnitude);
      smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
    }
    const double bits =
        largest > 0 ? std::log2(largest) - std::log2(smallest) : 0;
    range = std::isnan(range) ? bits : std::max(range, bits);
  }
  return range;
}

void ExpectMoments(MatrixView<const float> values, ExpectedStatistics& out) {
  std::vector<long double> x;
  for (const Block& block : BlocksAlong(values)) {
    for (const float element : block) {
      if (std::isfinite(element)) x.push_back(Long(element));
    }
  }
  const auto n = static_cast<long double>(x.size());
  const size_t numel = values.rows() * values.cols();
  long double sum = 0;
  long double l1 = 0;
  long double squares = 0;
  long double zeros = 0;
  for (const long double each : x) {
    sum += each;
    l1 += std::fabs(each);
    squares += each * each;
    zeros += each == 0 ? 1 : 0;
  }
  long double deviations = 0;
  for (const long double each : x) {
    deviations += (each - sum / n) * (each - sum / n);
  }
  out[kStat_numel] = {static_cast<long double>(numel), 0};
  out[kStat_nonfinite_num] = {static_cast<long double>(numel) - n, 0};
  out[kStat_zeros_num] = {zeros, 0};
  const bool any = !x.empty();
  const auto [min, max] = std::minmax_element(x.begin(), x.end());
  const long double amax = any ? std::max(-*min, *max) : kUndefined;
  out[kStat_min] = {any ? *min : kUndefined, 0};
  out[kStat_max] = {any ? *max : kUndefined, 0};
  out[kStat_cur_amax] = {amax, 0};
  out[kStat_sum] = {sum, kSumBound * l1};
  out[kStat_mean] = {any ? sum / n : kUndefined,
                     kSumBound * l1 / std::max(n, 1.0L)};
  out[kStat_l1_norm] = {l1, kSumBound * l1};
  out[kStat_l2_norm] = {std::sqrt(squares), kSumBound * std::sqrt(squares)};
  // Both sums have twice 53 bits in the code, but 64 here.
  const long double variance = x.size() > 1 ? deviations / (n - 1) : kUndefined;
  const long double bound = kSumBound * squares / std::max(n - 1, 1.0L);
  out[kStat_variance] = {variance, bound};
  out[kStat_std] = {std::sqrt(variance), std::sqrt(bound)};
  long double smallest = std::numeric_limits<long double>::infinity();
  for (const long double each : x) {
    if (each != 0) smallest = std::min(smallest, std::fabs(each));
  }
  const long double range =
      amax > 0 ? std::log2(amax) - std::log2(smallest) : kUndefined;
  out[kStat_dynamic_range] = {range, 1e-13L};  // ulps of up to 277
}

/// Index of the statistic `index` of rows, for columns.
size_t Columnwise(size_t index) {
  return index + kStat_underflows_num_columnwise - kStat_underflows_num;
}

void ExpectQuantization(const std::vector<Block>& blocks,
                        const Quantization& spec, bool columnwise,
                        ExpectedStatistics& out,
                        std::vector<int32_t>& histogram) {
  long double numel = 0, underflows = 0, saturated = 0, pairs = 0;
  long double xx = 0, xq = 0, qq = 0, error = 0, magnitudes = 0;
  std::map<size_t, long double> places;
  long double placed = 0;
  histogram.assign(256, 0);
  const auto sign = static_cast<uint8_t>(1u << (spec.element->bits() - 1));
  for (const Block& block : blocks) {
    const auto quantized =
        formats::QuantizeMx({block.data(), 1, block.size()}, spec);
    const Matrix<float> values =
        formats::DequantizeMx(quantized, *spec.element);
    const uint8_t byte = quantized.scales(0, 0);
    ++histogram[byte];
    const long double limit =
        std::ldexp(Long(formats::MaxFinite(*spec.element)), byte - 127);
    float largest = 0;
    size_t place = 0;
    for (size_t k = 0; k < block.size(); ++k) {
      ++numel;
      if (!std::isfinite(block[k])) continue;
      const long double x = Long(block[k]);
      if (std::fabs(block[k]) > largest) {
        largest = std::fabs(block[k]);
        place = k;
      }
      if (byte != 255) {
        saturated += std::fabs(x) > limit ? 1 : 0;
        const bool code_is_zero = (quantized.codes(0, k) & ~sign) == 0;
        underflows += x != 0 && code_is_zero ? 1 : 0;
      }
      if (!std::isfinite(values(0, k))) continue;
      const long double q = Long(values(0, k));
      ++pairs;
      error += (x - q) * (x - q);
      xx += x * x;
      xq += x * q;
      qq += q * q;
      magnitudes += std::fabs(x * q);
    }
    if (block.size() == 32 && largest > 0) {
      places[place] += 1;
      placed += 1;
    }
  }
  const auto set = [&](size_t index, long double value, long double bound) {
    out[columnwise ? Columnwise(index) : index] = {value, bound};
  };
  set(kStat_underflows_num, underflows, 0);
  set(kStat_underflows, 100 * underflows / numel, 1e-13L);
  set(kStat_saturated_num, saturated, 0);
  set(kStat_saturated, 100 * saturated / numel, 1e-13L);
  set(kStat_nan_blocks, histogram[255], 0);
  long double min = kUndefined, max = kUndefined;
  for (int byte = 255; byte >= 0; --byte) {
    if (histogram[byte] == 0) continue;
    if (std::isnan(max)) max = byte;
    if (byte > 0) min = byte;
  }
  set(kStat_scale_inv_min, min, 0);
  set(kStat_scale_inv_max, max, 0);
  const bool any = pairs > 0 && xx > 0;
  set(kStat_mse, pairs > 0 ? error / pairs : kUndefined,
      pairs > 0 ? kSumBound * error / pairs : 0);
  // 10 / ln 10 = 4.4 times two relative errors, and ulps of up to 1000 dB.
  set(kStat_sqnr, any ? 10 * std::log10(xx / error) : kUndefined,
      10 * kSumBound + 1e-12L);
  set(kStat_signed_gain, any ? xq / xx : kUndefined,
      any ? kSumBound * (magnitudes + std::fabs(xq)) / xx : 0);
  const long double norms = std::sqrt(xx) * std::sqrt(qq);
  set(kStat_cosine, any && qq > 0 ? xq / norms : kUndefined,
      any && qq > 0 ? kSumBound * (magnitudes + std::fabs(xq)) / norms : 0);
  long double entropy = 0;
  for (const auto& [place, count] : places) {
    entropy -= count / placed * std::log(count / placed);
  }
  set(kStat_block_argmax_spread,
      placed > 0 ? entropy / std::log(32.0L) : kUndefined, 1e-14L);
}

}  // namespace

ReferenceStatistics ReferenceOf(const model::Tensor& tensor,
                                const std::vector<size_t>& starts) {
  ReferenceStatistics reference;
  ExpectedStatistics& values = reference.values;
  ExpectMoments(tensor.values, values);
  const std::vector<Block> along = BlocksAlong(tensor.values);
  const std::vector<Block> down = BlocksDown(tensor.values, starts);
  values[kStat_max_blockwise_dynamic_range] = {Long(RangeInBits(along)),
                                               1e-13L};
  values[kStat_max_blockwise_dynamic_range_columnwise] = {
      Long(RangeInBits(down)), 1e-13L};
  if (tensor.rowwise != nullptr) {
    ExpectQuantization(along, *tensor.rowwise, false, values, reference.bytes);
  }
  if (tensor.columnwise != nullptr) {
    ExpectQuantization(down, *tensor.columnwise, true, values,
                       reference.bytes_columnwise);
  }
  return reference;
}

}  // namespace isoloss::probes
