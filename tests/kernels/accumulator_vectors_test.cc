// Sums of tensor cores: as MMA-Sim computes steps, and as an H100 computed
// products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/comparison.h"
#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/e8m0.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/normal.h"

namespace isoloss::kernels::accumulator_vectors_test {
namespace {

using formats::Comparison;
using formats::Groups;
using formats::OpenVectors;
using test_support::H5Array;
using test_support::H5File;

constexpr int kZeroExponent = -126;

/// Steps of a row, with the exponents that the vectors' authors describe.
struct Row {
  std::vector<float> values;
  std::vector<int16_t> exponents;

  Elements elements(bool has_exponents) const {
    return {values.data(), has_exponents ? exponents.data() : nullptr};
  }
};

int ExponentOf(float value, int least) {
  return value == 0.0f ? kZeroExponent : std::max(std::ilogb(value), least);
}

/// Reads codes of any width, which the files hold signed or unsigned.
Matrix<float> Decoded(const H5File& file, const std::string& dataset,
                      const formats::Format& format) {
  const auto codes = file.Read<int32_t>(dataset);
  Matrix<float> values(codes.rows(), codes.cols());
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = formats::Decode(
        format, static_cast<uint32_t>(codes.values[i]) &
                    ((1u << static_cast<uint32_t>(format.bits())) - 1));
  }
  return values;
}

/// Returns a row of codes under scales, each of the same number of elements.
Row RowOf(const Matrix<float>& codes, size_t row, int least,
          const std::vector<float>& scales, int least_scale,
          FactorExponents exponents) {
  Row result;
  const size_t block = codes.cols() / scales.size();
  for (size_t k = 0; k < codes.cols(); ++k) {
    const float code = codes(row, k);
    const float scale = scales[k / block];
    result.values.push_back(code * scale);
    const int of_code =
        exponents == FactorExponents::kOfScales ? 0 : ExponentOf(code, least);
    result.exponents.push_back(
        static_cast<int16_t>(of_code + ExponentOf(scale, least_scale)));
  }
  return result;
}

/// Reads a scale in E8M0 or E4M3 for each block; 1 if there are none.
std::vector<std::vector<float>> ScalesOf(const H5File& file,
                                         const std::string& dataset,
                                         bool are_e8m0, size_t rows) {
  std::vector<std::vector<float>> scales(rows, {1.0f});
  if (!file.Has(dataset)) return scales;
  const auto bytes = file.Read<uint8_t>(dataset);
  const size_t of_row = bytes.values.size() / rows;
  for (size_t i = 0; i < rows; ++i) {
    scales[i].clear();
    for (size_t j = 0; j < of_row; ++j) {
      const uint8_t byte = bytes.values[i * of_row + j];
      scales[i].push_back(
          are_e8m0 ? formats::DecodeE8m0(byte)
                   : formats::Decode(formats::FormatByName("e4m3"), byte));
    }
  }
  return scales;
}

/// Compares d with c + sum a b of each row of the group.
void ExpectSteps(const H5File& file, const std::string& group,
                 const Accumulator& accumulator, const std::string& format_a,
                 const std::string& format_b, bool scales_are_e8m0) {
  SCOPED_TRACE(group);
  const formats::Format& of_a = formats::FormatByName(format_a);
  const formats::Format& of_b = formats::FormatByName(format_b);
  const Matrix<float> a = Decoded(file, group + "/a", of_a);
  const Matrix<float> b = Decoded(file, group + "/b", of_b);
  const auto scales_a =
      ScalesOf(file, group + "/scale_a", scales_are_e8m0, a.rows());
  const auto scales_b =
      ScalesOf(file, group + "/scale_b", scales_are_e8m0, a.rows());
  const auto c = file.Read<float>(group + "/c");
  const auto expected = file.Read<float>(group + "/d");
  const int least_scale = scales_are_e8m0 ? -127 : -6;
  const bool has_exponents =
      accumulator.exponents != FactorExponents::kOfValues;
  Comparison comparison;
  for (size_t i = 0; i < a.rows(); ++i) {
    const Row left = RowOf(a, i, 1 - of_a.bias, scales_a[i], least_scale,
                           accumulator.exponents);
    const Row right = RowOf(b, i, 1 - of_b.bias, scales_b[i], least_scale,
                            accumulator.exponents);
    const float sum =
        FusedSum(accumulator, c.values[i], left.elements(has_exponents),
                 right.elements(has_exponents), a.cols());
    const float wanted = expected.values[i];
    const bool equal =
        std::isnan(wanted) ? std::isnan(sum) : formats::SameBits(wanted, sum);
    comparison.Row(equal, [&] {
      return fmt::format("row {}: {}, but {} was expected", i, sum, wanted);
    });
  }
  comparison.ExpectAllEqual(a.rows());
}

struct SimulatedCase {
  const char* accumulator;
  const char* group;
  const char* a;
  const char* b;
  bool scales_are_e8m0 = true;
};

class MmaSim : public ::testing::TestWithParam<SimulatedCase> {};

TEST_P(MmaSim, AddsTheSameSteps) {
  const SimulatedCase& of = GetParam();
  ExpectSteps(OpenVectors("mma_sim.h5"), of.group,
              AccumulatorByName(of.accumulator), of.a, of.b,
              of.scales_are_e8m0);
}

INSTANTIATE_TEST_SUITE_P(
    Accumulators, MmaSim,
    ::testing::Values(
        SimulatedCase{"hopper_bf16", "hopper_bf16", "bf16", "bf16"},
        SimulatedCase{"ampere_bf16", "ampere_bf16", "bf16", "bf16"},
        SimulatedCase{"cdna3_bf16", "cdna3_bf16", "bf16", "bf16"},
        SimulatedCase{"hopper_f13", "hopper_f13/e4m3_e4m3", "e4m3", "e4m3"},
        SimulatedCase{"hopper_f13", "hopper_f13/e5m2_e4m3", "e5m2", "e4m3"},
        SimulatedCase{"ada_fp8", "ada_fp8/e4m3_e4m3", "e4m3", "e4m3"},
        SimulatedCase{"blackwell_f25", "blackwell_f25/e5m2_e4m3", "e5m2",
                      "e4m3"},
        SimulatedCase{"blackwell_f25", "blackwell_f25/mxfp8", "e4m3", "e4m3"},
        SimulatedCase{"cdna3_fp8", "cdna3_fp8/e4m3_e4m3", "e4m3", "e4m3"},
        SimulatedCase{"blackwell_fp4", "blackwell_fp4/nvfp4", "e2m1", "e2m1",
                      false},
        SimulatedCase{"blackwell_fp4", "blackwell_fp4/mxfp4", "e2m1", "e2m1"}),
    [](const auto& info) {
      std::string name = info.param.group;
      std::ranges::replace(name, '/', '_');
      return name;
    });

TEST(MmaSim, EveryAccumulatorHasVectors) {
  const auto groups = Groups(OpenVectors("mma_sim.h5"), "", "");
  for (const Accumulator* accumulator : AllAccumulators()) {
    EXPECT_TRUE(groups.contains(std::string(accumulator->name)))
        << accumulator->name;
  }
}

/// Multiplies all rows of a by all rows of b, and compares with the card's
/// FP32 results.
void ExpectProduct(const H5File& file, const std::string& group,
                   const std::string& column, const Accumulation& accumulation,
                   const std::string& format_a, const std::string& format_b) {
  SCOPED_TRACE(group + "/" + column);
  const Matrix<float> a =
      Decoded(file, group + "/a", formats::FormatByName(format_a));
  const Matrix<float> b =
      Decoded(file, group + "/b", formats::FormatByName(format_b));
  // A cast to the format gives the codes again.
  const bool is_fp8 = format_a != "bf16";
  const auto cast_a = formats::QuantizationByName(format_a + ".none");
  const auto cast_b = formats::QuantizationByName(format_b + ".none");
  Matrix<float> c(a.rows(), b.rows());
  Gemm({.a = {.values = a.view(), .quantization = is_fp8 ? &cast_a : nullptr},
        .b = {.values = b.view(), .quantization = is_fp8 ? &cast_b : nullptr},
        .c = c.view(),
        .accumulation = accumulation});
  formats::ExpectMatrix(file, group + "/" + column, c);
}

TEST(HopperSilicon, ProductsAreEqualToTheBit) {
  const H5File file = OpenVectors("hopper_silicon.h5");
  const Accumulator& bf16 = AccumulatorByName("hopper_bf16");
  const Accumulator& fp8 = AccumulatorByName("hopper_f13");
  size_t products = 0;
  for (const std::string& formats : Groups(file, "", "")) {
    const size_t bar = formats.find('_');
    const std::string of_a = formats.substr(0, bar);
    for (const std::string& depth : Groups(file, formats, "")) {
      for (const std::string& kind : Groups(file, formats + "/" + depth, "")) {
        const std::string group = fmt::format("{}/{}/{}", formats, depth, kind);
        ++products;
        if (bar == std::string::npos) {
          ExpectProduct(file, group, "d", {&bf16}, of_a, of_a);
          continue;
        }
        const std::string of_b = formats.substr(bar + 1);
        ExpectProduct(file, group, "d_fast", {&fp8}, of_a, of_b);
        ExpectProduct(file, group, "d_slow", {&fp8, 128}, of_a, of_b);
      }
    }
  }
  EXPECT_EQ(products, 18U);
}

enum class Signs { kEither, kPositive };

/// Standard normal numbers, or their magnitudes, as E4M3 holds them.
Matrix<float> NormalE4m3(Signs signs, size_t rows, size_t cols,
                         uint64_t stream) {
  const CounterRng rng(47, stream);
  const formats::Format& e4m3 = formats::FormatByName("e4m3");
  Matrix<float> result(rows, cols);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto normal = static_cast<float>(StandardNormal(rng.Block(i)));
    result.data()[i] = formats::RoundToFormat(
        e4m3, signs == Signs::kEither ? normal : std::abs(normal),
        formats::Overflow::kSaturate);
  }
  return result;
}

/// Errors of products, in percent of the products' root mean square.
struct Errors {
  double rms;
  double largest;
};

Errors ErrorsOfHopperFp8(Signs signs, size_t depth, size_t interval) {
  constexpr size_t kExtent = 128;
  const Matrix<float> a = NormalE4m3(signs, kExtent, depth, 1);
  const Matrix<float> b = NormalE4m3(signs, kExtent, depth, 2);
  const auto cast = formats::QuantizationByName("e4m3.none");
  Matrix<float> c(kExtent, kExtent);
  Gemm({.a = {.values = a.view(), .quantization = &cast},
        .b = {.values = b.view(), .quantization = &cast},
        .c = c.view(),
        .accumulation = {&AccumulatorByName("hopper_f13"), interval}});
  double squares = 0;
  double errors = 0;
  double largest = 0;
  for (size_t i = 0; i < kExtent; ++i) {
    for (size_t j = 0; j < kExtent; ++j) {
      double exact = 0;
      for (size_t k = 0; k < depth; ++k) {
        exact += static_cast<double>(a(i, k)) * static_cast<double>(b(j, k));
      }
      const double error = static_cast<double>(c(i, j)) - exact;
      squares += exact * exact;
      errors += error * error;
      largest = std::max(largest, std::abs(error));
    }
  }
  const double elements = kExtent * kExtent;
  return {100 * std::sqrt(errors / squares),
          100 * largest / std::sqrt(squares / elements)};
}

TEST(HopperFp8, ErrsAsTheDocumentsSay) {
  struct Row {
    Signs signs;
    size_t depth;
    size_t interval;
    Errors errors;  // as docs/numerics.md says
  };
  // Bits are the same everywhere, so half of the last digit is the tolerance.
  for (const Row& row : {Row{Signs::kEither, 512, 0, {0.034, 0.61}},
                         {Signs::kEither, 512, 128, {0.013, 0.10}},
                         {Signs::kEither, 4096, 0, {0.133, 1.19}},
                         {Signs::kEither, 4096, 128, {0.013, 0.05}},
                         {Signs::kPositive, 4096, 0, {6.981, 7.77}},
                         {Signs::kPositive, 4096, 128, {0.062, 0.08}}}) {
    SCOPED_TRACE(fmt::format("K = {}, promoted {}", row.depth, row.interval));
    const Errors errors = ErrorsOfHopperFp8(row.signs, row.depth, row.interval);
    EXPECT_NEAR(errors.rms, row.errors.rms, 0.0005);
    EXPECT_NEAR(errors.largest, row.errors.largest, 0.005);
  }
}

TEST(AccumulatorVectors, AnUnknownNameListsThem) {
  try {
    AccumulatorByName("hoper_f13");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("hopper_f13"), std::string::npos);
  }
}

}  // namespace
}  // namespace isoloss::kernels::accumulator_vectors_test
