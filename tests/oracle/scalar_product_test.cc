// The oracle's products explain GemmScalar, to the bit where it defines bits,
// and nothing that is a little different.
#include "isoloss/oracle/scalar_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::oracle::scalar_product_test {
namespace {

using formats::Quantization;
using formats::QuantizationByName;
using formats::ScaleFormat;
using formats::ScaleRule;
using kernels::Contraction;

struct Case {
  const char* name;
  std::optional<Quantization> a;
  std::optional<Quantization> b;
  kernels::Accumulation accumulation = {};
};

std::vector<Case> Cases() {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const Quantization tensor = QuantizationByName("e4m3.te.fp32.0x0");
  const Quantization row = QuantizationByName("e4m3.torchao.fp32.1x0");
  const Quantization delayed =
      QuantizationByName("e4m3.te.fp32.0x0.delayed.history4");
  const Quantization mx_delayed =
      QuantizationByName("e4m3.rceil.0x0.delayed.history4");
  const Quantization tile = QuantizationByName("e4m3.deepgemm.fp32.1x16");
  const Quantization square = QuantizationByName("e4m3.deepgemm.fp32.16x32");
  const Quantization pow2 = QuantizationByName("e4m3.deepgemm.pow2.16x16");
  const Quantization cast = QuantizationByName("e4m3.none");
  const Quantization nvfp4 = QuantizationByName("nvfp4");
  const Quantization nvfp4_square =
      QuantizationByName("e2m1.te.e4m3.16x16.two_level");
  const Quantization nvfp4_rht =
      QuantizationByName("e2m1.te.e4m3.1x16.two_level.hadamard16_random");
  const Quantization nvfp4_rht_sr = QuantizationByName(
      "e2m1.te.e4m3.1x16.two_level.stochastic8.hadamard16_random");
  const kernels::Accumulation hopper{&kernels::AccumulatorByName("hopper_f13"),
                                     64};
  const kernels::Accumulation blackwell{
      &kernels::AccumulatorByName("blackwell_f25")};
  const kernels::Accumulation bf16{.interval = 32,
                                   .outer = kernels::Rounding::kBf16};
  kernels::Accumulation bf16_hopper = hopper;
  bf16_hopper.outer = kernels::Rounding::kBf16;
  const auto by = [](const char* name, size_t interval = 0) {
    return kernels::Accumulation{&kernels::AccumulatorByName(name), interval};
  };
  return {{"plain", std::nullopt, std::nullopt},
          {"mx", mx, mx},
          {"mx left", mx, std::nullopt},
          {"promoted", mx, mx, {.interval = 16}},
          {"bf16 sums", mx, mx, bf16},
          {"bf16 sums, whole", mx, mx, {.outer = kernels::Rounding::kBf16}},
          {"tensor", tensor, tensor},
          {"tensor left", tensor, std::nullopt},
          {"rows", row, row},
          {"deepgemm", tile, square},
          {"deepgemm, bf16 sums", tile, square, bf16},
          {"pow2", pow2, pow2, {.interval = 48}},
          {"cast", cast, cast},
          {"nvfp4", nvfp4, nvfp4_square},
          {"nvfp4 whole", nvfp4_rht_sr, nvfp4_rht},
          {"delayed", delayed, tensor},
          {"hopper", tile, square, hopper},
          {"hopper, bf16 sums", tensor, tensor, bf16_hopper},
          {"hopper mx", mx, mx, hopper},
          {"hopper pow2", pow2, pow2, hopper},
          {"hopper delayed", mx_delayed, mx, hopper},
          {"blackwell mx", mx, mx, blackwell},
          {"blackwell nvfp4", nvfp4, nvfp4, blackwell},
          {"blackwell half", mx, std::nullopt, blackwell},
          {"blackwell fp4", nvfp4, nvfp4_square, by("blackwell_fp4")},
          {"hopper bf16", std::nullopt, std::nullopt, by("hopper_bf16")},
          {"hopper bf16 of mx", mx, mx, by("hopper_bf16", 64)},
          {"hopper bf16 of nvfp4", nvfp4, nvfp4, by("hopper_bf16")},
          {"ampere bf16", std::nullopt, tensor, by("ampere_bf16")},
          {"ada fp8", cast, tensor, by("ada_fp8")},
          {"cdna3 bf16", std::nullopt, std::nullopt, by("cdna3_bf16")},
          {"cdna3 fp8", mx, mx, by("cdna3_fp8", 48)}};
}

/// BF16 values over some binades, signs of all kinds, and a few zeros.
Matrix<float> Values(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(11, stream);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = rng.Block(i);
    const double unit = static_cast<double>(bits[0]) * 0x1p-32 - 0.5;
    values.data()[i] =
        bits[2] % 23 == 0
            ? 0.0f
            : RoundTo(Grid::kBf16,
                      std::ldexp(unit, static_cast<int>(bits[1] % 9)));
  }
  return values;
}

/// Rows of a and b, of one product; a's rows are tokens.
struct Product {
  bool down = false;
  std::vector<size_t> segments = {};
  Matrix<float> a = {};
  Matrix<float> b = {};
  kernels::OperandState a_state = {{std::nullopt, 5, 21, 77}, 0};
  kernels::OperandState b_state = {{std::nullopt, 5, 22, 77}, 0};
};

Product Rowwise() {
  Product product;
  product.a = Values(37, 150, 1);
  product.b = Values(18, 150, 2);
  return product;
}

/// Segments of which one is empty, as an expert's units may be.
Product Columnwise() {
  Product product = {true, {20, 20, 101, 150}};
  product.a = Values(150, 37, 3);
  product.b = Values(150, 18, 4);
  return product;
}

Matrix<float> Kernel(const Product& product, const Case& of,
                     const Quantization* before = nullptr) {
  const std::vector<size_t> tensors = {10, 37};
  const auto contraction =
      product.down ? Contraction::kRows : Contraction::kColumns;
  Matrix<float> c(37, 18);
  kernels::GemmProblem problem = {.a = {.values = product.a.view(),
                                        .contraction = contraction,
                                        .quantization = of.a ? &*of.a : nullptr,
                                        .state = &product.a_state,
                                        .before = before},
                                  .b = {.values = product.b.view(),
                                        .contraction = contraction,
                                        .quantization = of.b ? &*of.b : nullptr,
                                        .state = &product.b_state},
                                  .c = c.view(),
                                  .accumulation = of.accumulation,
                                  .segment_ends = product.segments};
  if (!product.down) problem.a.tensor_ends = tensors;
  kernels::GemmScalar(problem);
  return c;
}

/// What the oracle says of `c`.
runlog::OracleRow Judge(const Product& product, const Case& of,
                        const Matrix<float>& c, Grid grid = Grid::kFp32,
                        const Quantization* before = nullptr) {
  const std::vector<size_t> tensors = {10, 37};
  ScalarOperand a = {.values = product.a.view(),
                     .down = product.down,
                     .quantization = of.a ? &*of.a : nullptr,
                     .state = product.a_state.common,
                     .before = before};
  if (!product.down) a.tensor_ends = tensors;
  const ScalarOperand b = {.values = product.b.view(),
                           .down = product.down,
                           .quantization = of.b ? &*of.b : nullptr,
                           .state = product.b_state.common};
  const precision::GemmPrecision precision = {
      .left = of.a, .right = of.b, .accumulation = of.accumulation};
  const ScalarProduct sums(a, b, precision, product.segments);
  Comparison comparison(grid);
  sums.ForEach([&](size_t i, size_t j, const Estimate& sum) {
    const float value = RoundTo(grid, static_cast<double>(c(i, j)));
    if (sums.has_bits()) {
      comparison.AddExact(i, j, value, RoundTo(grid, sum.exact));
    } else {
      comparison.Add(i, j, value, sum);
    }
  });
  return comparison.Row();
}

TEST(ScalarProduct, ExplainsEveryKindOfProduct) {
  for (const Case& of : Cases()) {
    for (const bool down : {false, true}) {
      const Product product = down ? Columnwise() : Rowwise();
      const Matrix<float> c = Kernel(product, of);
      const runlog::OracleRow row = Judge(product, of, c);
      EXPECT_EQ(row.elements, 37 * 18) << of.name;
      EXPECT_EQ(row.other, 0)
          << of.name << (down ? ", down" : "") << " [" << row.worst_row << ", "
          << row.worst_column << "] is " << row.worst_value << ", not "
          << row.worst_expected << "; ratio " << row.worst_ratio;
      // Noise is that of the chain's own order. Roundings of 666 sums: the root
      // of their mean square is good to 3 %, one factor for all of a tensor's
      // sums makes some of them alike.
      // Of E2M1 products the same half bit is lost again and again.
      if (of.accumulation.accumulator == nullptr &&
          !(of.a && of.a->is_stochastic()) &&
          of.accumulation.outer == kernels::Rounding::kFp32) {
        EXPECT_LT(row.noise_ratio, 1.3) << of.name;
      }
      if (of.accumulation.accumulator != nullptr) {
        EXPECT_EQ(row.equal, row.elements) << of.name;
      }
    }
  }
}

TEST(ScalarProduct, ChosenSumsAreThoseOfAll) {
  const Sample sample(37, 18, 100, CounterRng(1, 1));
  for (const Case& of : Cases()) {
    for (const bool down : {false, true}) {
      const Product product = down ? Columnwise() : Rowwise();
      const ScalarOperand a = {.values = product.a.view(),
                               .down = down,
                               .quantization = of.a ? &*of.a : nullptr,
                               .state = product.a_state.common};
      const ScalarOperand b = {.values = product.b.view(),
                               .down = down,
                               .quantization = of.b ? &*of.b : nullptr,
                               .state = product.b_state.common};
      const precision::GemmPrecision precision = {
          .left = of.a, .right = of.b, .accumulation = of.accumulation};
      const ScalarProduct sums(a, b, precision, product.segments);
      std::vector<Estimate> all(37 * 18);
      sums.ForEach([&](size_t i, size_t j, const Estimate& sum) {
        all[i * 18 + j] = sum;
      });
      size_t seen = 0;
      sums.ForEachOf(sample.In(0, 37), 0,
                     [&](size_t i, size_t j, const Estimate& sum) {
                       ++seen;
                       EXPECT_TRUE(sample.Sees(i, j));
                       EXPECT_EQ(sum.exact, all[i * 18 + j].exact) << of.name;
                       EXPECT_EQ(sum.bound, all[i * 18 + j].bound) << of.name;
                       EXPECT_EQ(sum.noise, all[i * 18 + j].noise) << of.name;
                     });
      EXPECT_EQ(seen, sample.seen());
    }
  }
}

// Only sums of few bits whose scale is no power of two are rounded by bits that
// all of them share.
TEST(ScalarProduct, LetsSumsUnderAScaleInFp32Lean) {
  const Product product = Rowwise();
  for (const Case& of : Cases()) {
    const std::string name = of.name;
    if (name != "mx" && name != "plain" && name != "tensor") continue;
    const ScalarOperand a = {.values = product.a.view(),
                             .quantization = of.a ? &*of.a : nullptr};
    const ScalarOperand b = {.values = product.b.view(),
                             .quantization = of.b ? &*of.b : nullptr};
    const precision::GemmPrecision precision = {.left = of.a, .right = of.b};
    const ScalarProduct sums(a, b, precision, product.segments);
    int leaning = 0;
    sums.ForEach([&](size_t, size_t, const Estimate& sum) {
      if (sum.lean == 0.0) return;
      EXPECT_EQ(sum.lean, kScaledLean * Ulp(sum.exact)) << name;
      ++leaning;
    });
    EXPECT_EQ(leaning > 0, name == "tensor") << name;
  }
}

TEST(ScalarProduct, KnowsASecondQuantisation) {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const Quantization before = QuantizationByName("nvfp4");
  const Case of = {"again", mx, mx};
  const Product product = Columnwise();

  EXPECT_EQ(
      Judge(product, of, Kernel(product, of, &before), Grid::kFp32, &before)
          .other,
      0);
  const runlog::OracleRow left_out =
      Judge(product, of, Kernel(product, of), Grid::kFp32, &before);
  EXPECT_GT(left_out.other, left_out.elements / 2);
}

/// Expects that what `spoil` makes of a case is not what the case says: after a
/// rounding to BF16, unless the case has bits.
void ExpectFound(const char* name, const std::function<void(Case&)>& spoil,
                 bool down = false) {
  for (const Case& of : Cases()) {
    if (std::string(of.name) != name) continue;
    const Product product = down ? Columnwise() : Rowwise();
    Case spoilt = of;
    spoil(spoilt);
    const runlog::OracleRow row = Judge(
        product, of, Kernel(product, spoilt),
        of.accumulation.accumulator == nullptr ? Grid::kBf16 : Grid::kFp32);
    EXPECT_GT(row.other, row.elements / 10) << name;
    return;
  }
  FAIL() << "there is no case " << name;
}

TEST(ScalarProduct, FindsWrongDescriptions) {
  ExpectFound("deepgemm", [](Case& of) { of.a->cell = {16, 1}; });
  ExpectFound("deepgemm", [](Case& of) { of.a->cell = {1, 32}; });
  ExpectFound("deepgemm", [](Case& of) { of.b->cell = {32, 32}; });
  ExpectFound("pow2", [](Case& of) {
    of.b->scale_format = ScaleFormat::kE8m0;
    of.b->scale_rule = ScaleRule::kFloor;
  });
  ExpectFound("nvfp4", [](Case& of) { of.a->cell = {16, 1}; });
  ExpectFound("nvfp4",
              [](Case& of) { of.b->scaling = formats::Scaling::kCurrent; });
  ExpectFound("cast", [](Case& of) {
    of.b->rounding = formats::RoundingMode::kTowardZero;
  });
}

TEST(ScalarProduct, FindsAnotherSignVector) {
  const auto with = [](formats::Transform transform) {
    return [transform](Case& of) {
      of.a->transform = of.b->transform = transform;
    };
  };
  ExpectFound("nvfp4 whole", with(formats::Transform::kHadamard16Te));
  ExpectFound("nvfp4 whole", with(formats::Transform::kHadamard16), true);
}

TEST(ScalarProduct, FindsPromotionThatIsOneStepOff) {
  for (const char* name :
       {"hopper mx", "hopper pow2", "hopper delayed", "bf16 sums"}) {
    for (const size_t off : {-1, 1}) {
      ExpectFound(name, [off](Case& of) { of.accumulation.interval += off; });
    }
  }
}

TEST(ScalarProduct, FindsAnotherAccumulator) {
  const auto with = [](const char* name) {
    return [name](Case& of) {
      of.accumulation.accumulator =
          name == nullptr ? nullptr : &kernels::AccumulatorByName(name);
    };
  };
  ExpectFound("hopper mx", with("blackwell_f25"));
  ExpectFound("hopper", with(nullptr), true);
  ExpectFound("ada fp8", with("hopper_f13"));
  ExpectFound("cdna3 fp8", with("blackwell_f25"));
}

TEST(ScalarProduct, FindsBitsAndKeysOfAnotherTensor) {
  for (const Case& of : Cases()) {
    if (std::string(of.name) != "nvfp4 whole") continue;
    for (const bool key : {false, true}) {
      Product product = Rowwise();
      const Product right = Rowwise();
      uint64_t& number = key ? product.a_state.common.transform_key
                             : product.a_state.common.stream;
      ++number;
      if (key) ++product.b_state.common.transform_key;
      const runlog::OracleRow row =
          Judge(right, of, Kernel(product, of), Grid::kBf16);
      EXPECT_GT(row.other, row.elements / 2) << key;
    }
  }
}

TEST(ScalarProduct, FindsAHistoryThatIsLate) {
  for (const Case& of : Cases()) {
    if (std::string(of.name) != "delayed") continue;
    Product late = Rowwise();
    late.a_state.common.history = 20.0f;
    Product right = Rowwise();
    right.a_state.common.history = 27.0f;
    EXPECT_EQ(Judge(right, of, Kernel(right, of)).other, 0);
    const runlog::OracleRow row =
        Judge(right, of, Kernel(late, of), Grid::kBf16);
    EXPECT_GT(row.other, row.elements / 2);
  }
}

}  // namespace
}  // namespace isoloss::oracle::scalar_product_test
