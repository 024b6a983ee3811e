#include "isoloss/step_checks/formats_check.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "isoloss/formats/mx_block.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::step_checks {
namespace {

using formats::ScaleRule;

constexpr size_t kElements = 4;

/// `out` is the block `in` after quantisation.
struct Block {
  std::string_view element;
  ScaleRule mode;
  std::array<float, kElements> in;
  std::array<float, kElements> out;
};

// The second element tells the scale. Under scale 1 it is the smallest
// subnormal. Under scale 2 it is half of that, a tie that goes to zero. The
// third and the fourth element are ties or saturate.
constexpr Block kBlocks[] = {
    // E4M3 has numbers up to 448, and those from 16 to 32 in steps of 2.
    {"e4m3",
     ScaleRule::kRceil,
     {448, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3", ScaleRule::kRceil, {480, 0x1p-9f, 17, -38}, {480, 0, 16, -40}},
    {"e4m3",
     ScaleRule::kFloor,
     {448, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3",
     ScaleRule::kFloor,
     {480, 0x1p-9f, -511, 0x1.8p-8f},
     {448, 0x1p-9f, -448, 0x1.8p-8f}},
    {"e4m3", ScaleRule::kCeil, {448, 0x1p-9f, 34, -38}, {448, 0, 32, -40}},
    {"e4m3",
     ScaleRule::kCeil,
     {256, 0x1p-9f, 17, -19},
     {256, 0x1p-9f, 16, -20}},
    {"e4m3",
     ScaleRule::kEven,
     {480, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3", ScaleRule::kEven, {496, 0x1p-9f, 34, -38}, {512, 0, 32, -40}},
    // E5M2 has numbers up to 57344, and those from 16 to 32 in steps of 4.
    {"e5m2",
     ScaleRule::kRceil,
     {57344, 0x1p-16f, 18, -22},
     {57344, 0x1p-16f, 16, -24}},
    {"e5m2",
     ScaleRule::kRceil,
     {61440, 0x1p-16f, 36, -44},
     {65536, 0, 32, -48}},
    {"e5m2",
     ScaleRule::kFloor,
     {61440, 0x1p-16f, 18, -22},
     {57344, 0x1p-16f, 16, -24}},
    // E2M1 has numbers up to 6, and those from 2 to 4 in steps of 1.
    {"e2m1", ScaleRule::kFloor, {6, 0.5f, 2.5f, -3.5f}, {6, 0.5f, 2, -4}},
    {"e2m1", ScaleRule::kFloor, {7, 0.25f, 5, -7}, {6, 0, 4, -6}},
};

/// `out` has the first elements of the row `in` after any quantisation. The
/// state has seed and stream 0 and the key 2.
struct Row {
  formats::Quantization quantization;
  std::array<float, kElements> in;
  std::array<float, kElements> out;
  std::optional<float> history = {};
};

using formats::Quantization;
using formats::RoundingMode;
using formats::ScaleFormat;
using formats::Transform;

/// A row is one cell.
Quantization Scaled(const char* element, ScaleFormat format, ScaleRule rule) {
  return {.element = &formats::FormatByName(element),
          .scale_rule = rule,
          .scale_format = format,
          .cell = {1, 0}};
}

/// The tensor has a scale, and so has each cell of two elements.
Quantization TwoLevel(ScaleRule rule) {
  Quantization q = Scaled("e2m1", ScaleFormat::kE4m3, rule);
  q.scaling = formats::Scaling::kTwoLevel;
  q.cell = {1, 2};
  return q;
}

Quantization Delayed() {
  Quantization q = Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kTe);
  q.scaling = formats::Scaling::kDelayed;
  q.cell = {0, 0};
  q.history = 1;
  return q;
}

Quantization Rounded(RoundingMode rounding, int random_bits = 0) {
  Quantization q = {.element = &formats::FormatByName("e4m3"),
                    .scale_format = ScaleFormat::kNone};
  q.rounding = rounding;
  q.random_bits = random_bits;
  return q;
}

Quantization Transformed(Transform transform) {
  Quantization q = Rounded(RoundingMode::kNearestEven);
  q.transform = transform;
  return q;
}

/// Each cell has a scale.
std::vector<Row> RowsWithScales() {
  const auto e4m3 = [](ScaleFormat format, ScaleRule rule) {
    return Scaled("e4m3", format, rule);
  };
  return {
      // The scale is 672 / 448 = 1.5. The codes are 448, 16, 17 and -19; the
      // last two are ties.
      {e4m3(ScaleFormat::kFp32, ScaleRule::kTe),
       {672, 24, 25.5f, -28.5f},
       {672, 24, 24, -30}},
      {e4m3(ScaleFormat::kFp32, ScaleRule::kDeepgemm),
       {672, 24, 25.5f, -28.5f},
       {672, 24, 24, -30}},
      {e4m3(ScaleFormat::kFp32, ScaleRule::kTorchao),
       {672, 24, 25.5f, -28.5f},
       {672, 24, 24, -30}},
      // The scale is the power of two above, 2; 336 is a tie between 320 and
      // 352.
      {e4m3(ScaleFormat::kPow2, ScaleRule::kTe),
       {672, 2, 34, -38},
       {640, 2, 32, -40}},
      // DeepGEMM raises lower magnitudes to 1e-4, which gives steps of 2^-31
      // instead of 2^-32.
      {e4m3(ScaleFormat::kPow2, ScaleRule::kTe),
       {0x1p-15f, 0x1p-32f, 0, -0.0f},
       {0x1p-15f, 0x1p-32f, 0, -0.0f}},
      {e4m3(ScaleFormat::kPow2, ScaleRule::kDeepgemm),
       {0x1p-15f, 0x1p-32f, 0, -0.0f},
       {0x1p-15f, 0, 0, -0.0f}},
      // The scale is 8.25 / 6 = 1.375, an E4M3 number.
      {Scaled("e2m1", ScaleFormat::kE4m3, ScaleRule::kTe),
       {8.25f, 1.375f, 2.75f, -5.5f},
       {8.25f, 1.375f, 2.75f, -5.5f}},
  };
}

/// The tensor has a scale, too, or its earlier magnitudes decide.
std::vector<Row> RowsWithTensorScales() {
  return {
      // 5376 is twice 448 * 6. The second cell has the scale 2^-2, or 2^-9,
      // which torchao raises to 2^-6.
      {TwoLevel(ScaleRule::kTe), {5376, 448, 3, -1.75f}, {5376, 448, 3, -2}},
      {TwoLevel(ScaleRule::kTe),
       {5376, 448, 0x1p-6f, 0x1p-8f},
       {5376, 448, 0x1p-6f, 0x1p-8f}},
      {TwoLevel(ScaleRule::kTorchao),
       {5376, 448, 0x1p-6f, 0x1p-8f},
       {5376, 448, 0x1p-6f, 0}},
      // A history of 448 gives scale 1, and so does a missing history.
      {Delayed(), {896, 0x1p-9f, 17, -19}, {448, 0x1p-9f, 16, -20}, 448.0f},
      {Delayed(), {896, 0x1p-9f, 17, -19}, {448, 0x1p-9f, 16, -20}},
      {Delayed(), {896, 0x1p-9f, 34, -38}, {896, 0, 32, -40}, 896.0f},
  };
}

/// No scale depends on the elements.
std::vector<Row> RowsWithoutScales() {
  return {
      // INT8 has multiples of 1/64, at most 127 of them.
      {{.element = &formats::FormatByName("int8")},
       {0x7Fp-6f, 0x1p-6f, 0x1.8p-6f, -0x1.4p-5f},
       {0x7Fp-6f, 0x1p-6f, 0x2p-6f, -0x2p-6f}},
      // 17 is halfway between 16 and 18, and 19 between 18 and 20.
      {Rounded(RoundingMode::kHalfAway),
       {17, 19, -17, 500},
       {18, 20, -18, 448}},
      {Rounded(RoundingMode::kTowardZero),
       {17.9f, 19, -17, 500},
       {16, 18, -16, 448}},
      // Philox of zeros begins 6627E8D5 E169C58D (Random123). E8, 66, C5 and E1
      // are the upper halves of 16 bits each; half a step goes up from 80 on.
      {Rounded(RoundingMode::kStochastic, 8),
       {17, 17, 17, -17},
       {18, 16, 18, -18}},
      // Zeros fill the run; the transform gives sums and differences over four.
      {Transformed(Transform::kHadamard16), {4, 8, 16, 32}, {15, -5, -9, 3}},
      {Transformed(Transform::kHadamard16Te), {4, 8, 16, 32}, {-1, 11, 7, -13}},
      {Transformed(Transform::kHadamard16Random),
       {4, 8, 16, 32},
       {11, -1, -13, 7}},
  };
}

/// Compares the kernels' result and the oracle's with the row's.
void CheckRow(const Row& known, size_t row, oracle::Comparison& comparison) {
  const formats::TensorState state = {.history = known.history,
                                      .transform_key = 2};
  const MatrixView<const float> in(known.in.data(), 1, kElements);
  const Matrix<float> out = formats::Dequantize(
      formats::Quantize(in, known.quantization, state), known.quantization);
  const Matrix<float> own = oracle::ScalarDequantize(
      oracle::ScalarQuantize(in, known.quantization, state), kElements);
  for (size_t i = 0; i < kElements; ++i) {
    comparison.AddExact(row, i, out(0, i), known.out[i]);
    comparison.AddExact(row, i, own(0, i), known.out[i]);
  }
}

}  // namespace

void CheckFormats(ReportSink& sink) {
  oracle::Comparison comparison(oracle::Grid::kFp32);
  size_t row = 0;
  for (const Block& block : kBlocks) {
    std::array<float, kElements> out{};
    formats::QuantizeDequantizeBlock(
        block.in,
        {.element = &formats::FormatByName(block.element),
         .scale_rule = block.mode},
        out);
    for (size_t i = 0; i < kElements; ++i) {
      comparison.AddExact(row, i, out[i], block.out[i]);
    }
    ++row;
  }
  for (const auto& rows :
       {RowsWithScales(), RowsWithTensorScales(), RowsWithoutScales()}) {
    for (const Row& known : rows) CheckRow(known, row++, comparison);
  }
  sink.Add("formats", comparison);
}

}  // namespace isoloss::step_checks
