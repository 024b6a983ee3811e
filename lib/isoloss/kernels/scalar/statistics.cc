#include "isoloss/kernels/scalar/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "isoloss/formats/format.h"

namespace isoloss::kernels::scalar {
namespace {

constexpr size_t kLanes = 16;

/// Adds one sum in its logical lanes.
struct PlainLanes {
  std::array<double, kLanes> sum{};

  void Add(size_t i, double term) { sum[i % kLanes] += term; }
  /// Adds a * b to the sum, rounded once.
  void AddProduct(size_t i, double a, double b) {
    sum[i % kLanes] = std::fma(a, b, sum[i % kLanes]);
  }
  double Fold() {
    for (size_t apart = kLanes / 2; apart > 0; apart /= 2) {
      for (size_t lane = 0; lane < apart; ++lane) {
        sum[lane] += sum[lane + apart];
      }
    }
    return sum[0];
  }
};

void AddTo(CompensatedSum& to, double term) {
  const double sum = to.high + term;
  const double of_term = sum - to.high;
  const double lost = (to.high - (sum - of_term)) + (term - of_term);
  to = {sum, to.low + lost};
}

struct CompensatedLanes {
  std::array<CompensatedSum, kLanes> sum{};

  void Add(size_t i, double term) { AddTo(sum[i % kLanes], term); }
  CompensatedSum Fold() {
    for (size_t apart = kLanes / 2; apart > 0; apart /= 2) {
      for (size_t lane = 0; lane < apart; ++lane) {
        AddTo(sum[lane], sum[lane + apart].high);
        sum[lane].low += sum[lane + apart].low;
      }
    }
    return sum[0];
  }
};

BlockExtremes ExtremesOf(const StridedBlock& block) {
  BlockExtremes extremes = {0, std::numeric_limits<float>::infinity(), 0};
  for (size_t k = 0; k < block.count; ++k) {
    const float magnitude = std::fabs(block.first[k * block.stride]);
    if (!std::isfinite(magnitude) || magnitude == 0) continue;
    if (magnitude > extremes.largest) {
      extremes.largest = magnitude;
      extremes.place = k;
    }
    extremes.smallest = std::min(extremes.smallest, magnitude);
  }
  return extremes;
}

void TallyRange(const BlockExtremes& extremes, BlockTally& tally) {
  double range = 1.0;
  if (extremes.largest > 0) {
    range = static_cast<double>(extremes.largest) /
            static_cast<double>(extremes.smallest);
  }
  tally.range = std::max(tally.range, range);
}

void TallyScale(const StridedBlock& block, const BlockExtremes& extremes,
                uint8_t scale, const formats::Format& element,
                BlockTally& tally) {
  ++tally.bytes[scale];
  if (extremes.largest > 0 && block.count == formats::kMxBlockSize) {
    ++tally.places[extremes.place];
  }
  // The limit is infinite if an element is, and NaN for a block that is NaN:
  // then no element exceeds it.
  const float limit = formats::MaxFinite(element) * formats::DecodeE8m0(scale);
  if (!(extremes.largest > limit)) return;
  for (size_t k = 0; k < block.count; ++k) {
    const float magnitude = std::fabs(block.first[k * block.stride]);
    tally.saturated += magnitude > limit ? 1 : 0;
  }
}

}  // namespace

Moments MomentsOf(std::span<const float> run) {
  Moments moments;
  CompensatedLanes sum;
  CompensatedLanes squares;
  PlainLanes magnitudes;
  for (size_t i = 0; i < run.size(); ++i) {
    if (!std::isfinite(run[i])) {
      ++moments.nonfinite;
      continue;
    }
    const auto x = static_cast<double>(run[i]);
    sum.Add(i, x);
    squares.Add(i, x * x);
    magnitudes.Add(i, std::fabs(x));
    moments.min = std::min(moments.min, run[i]);
    moments.max = std::max(moments.max, run[i]);
    if (run[i] == 0) {
      ++moments.zeros;
    } else {
      moments.smallest = std::min(moments.smallest, std::fabs(run[i]));
    }
  }
  moments.sum = sum.Fold();
  moments.squares = squares.Fold();
  moments.magnitudes = magnitudes.Fold();
  moments.min += 0.0f;  // -0 becomes +0
  moments.max += 0.0f;
  return moments;
}

QuantizationErrors ErrorsOf(std::span<const float> run,
                            std::span<const float> quantized) {
  QuantizationErrors result;
  PlainLanes errors;
  PlainLanes products;
  PlainLanes of_quantized;
  PlainLanes squares;
  for (size_t i = 0; i < run.size(); ++i) {
    if (!std::isfinite(run[i]) || !std::isfinite(quantized[i])) continue;
    const auto x = static_cast<double>(run[i]);
    const auto q = static_cast<double>(quantized[i]);
    const double error = x - q;
    errors.AddProduct(i, error, error);
    products.AddProduct(i, x, q);
    of_quantized.AddProduct(i, q, q);
    squares.AddProduct(i, x, x);
    ++result.pairs;
    result.underflows += x != 0 && q == 0 ? 1 : 0;
  }
  result.errors = errors.Fold();
  result.products = products.Fold();
  result.quantized = of_quantized.Fold();
  result.squares = squares.Fold();
  return result;
}

void TallyBlock(const StridedBlock& block, const formats::Quantization* spec,
                BlockTally& tally) {
  const BlockExtremes extremes = ExtremesOf(block);
  TallyRange(extremes, tally);
  if (spec == nullptr) return;
  std::array<float, formats::kMxBlockSize> values;
  for (size_t k = 0; k < block.count; ++k) {
    values[k] = block.first[k * block.stride];
  }
  const uint8_t scale =
      formats::MxScale(std::span(values).first(block.count), *spec);
  TallyScale(block, extremes, scale, *spec->element, tally);
}

void TallyFiniteBlock(const StridedBlock& block, const BlockExtremes& extremes,
                      const formats::Quantization* spec, BlockTally& tally) {
  TallyRange(extremes, tally);
  if (spec == nullptr) return;
  // The scale of finite elements is that of their largest magnitude.
  const uint8_t scale = formats::MxScale({&extremes.largest, 1}, *spec);
  TallyScale(block, extremes, scale, *spec->element, tally);
}

void TallyBlocksAlong(std::span<const float> run,
                      const formats::Quantization* spec, BlockTally& tally) {
  for (size_t i = 0; i < run.size(); i += formats::kMxBlockSize) {
    const size_t count = std::min(formats::kMxBlockSize, run.size() - i);
    TallyBlock({run.data() + i, 1, count}, spec, tally);
  }
}

void TallyBlocksDown(MatrixView<const float> block,
                     const formats::Quantization* spec, BlockTally& tally) {
  for (size_t j = 0; j < block.cols(); ++j) {
    TallyBlock({block.data() + j, block.stride(), block.rows()}, spec, tally);
  }
}

void QuantizeDequantizeDown(MatrixView<const float> block,
                            const formats::Quantization& spec,
                            MatrixView<float> out) {
  std::array<float, formats::kMxBlockSize> values;
  const std::span<float> column = std::span(values).first(block.rows());
  for (size_t j = 0; j < block.cols(); ++j) {
    for (size_t i = 0; i < block.rows(); ++i) column[i] = block(i, j);
    formats::QuantizeDequantizeBlock(column, spec, column);
    for (size_t i = 0; i < block.rows(); ++i) out(i, j) = column[i];
  }
}

}  // namespace isoloss::kernels::scalar
