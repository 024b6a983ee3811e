#include "isoloss/expert_parallel/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/quantize.h"

namespace isoloss::expert_parallel::payload_test {
namespace {

using kernels::Rounding;
using testing::ElementsAre;
using testing::HasSubstr;

/// BF16 values over 40 binades: within one run, some are subnormal in E4M3 and
/// some vanish. Every 53rd is a zero of either sign.
std::vector<float> Row(size_t width, uint64_t stream) {
  const CounterRng rng(11, stream);
  std::vector<float> row(width);
  for (size_t i = 0; i < width; ++i) {
    const auto uniform = static_cast<float>(rng.Uniform(2 * i) - 0.5);
    const int exponent = static_cast<int>(rng.Bits(2 * i + 1) % 40) - 30;
    row[i] = formats::RoundToBf16(std::ldexp(uniform, exponent));
    if (i % 53 == 52) row[i] = std::copysign(0.0f, uniform);
  }
  return row;
}

std::vector<float> RoundTrip(const Payload& payload,
                             const std::vector<float>& row, Rounding rounding) {
  std::vector<std::byte> bytes(payload.row_bytes(row.size()));
  std::vector<float> decoded(row.size());
  payload.encode(row.data(), row.size(), bytes.data());
  payload.decode(bytes.data(), row.size(), rounding, decoded.data());
  return decoded;
}

std::vector<uint32_t> Bits(const std::vector<float>& row) {
  std::vector<uint32_t> bits;
  for (const float value : row) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

constexpr size_t kWidths[] = {0, 1, 31, 32, 33, 127, 128, 129, 256, 1000};

TEST(Payload, NamesAreListedInOrder) {
  EXPECT_THAT(PayloadNames(),
              ElementsAre("unquantized", "mx1x32", "e4m3_1x128_fp32",
                          "e4m3_1x128_pow2"));
  for (const std::string& name : PayloadNames()) {
    if (name == "unquantized") continue;
    EXPECT_EQ(PayloadByName(name, Rounding::kBf16).name, name);
    EXPECT_EQ(&PayloadByName(name, Rounding::kBf16),
              &PayloadByName(name, Rounding::kFp32));
  }
}

TEST(Payload, UnquantizedIsTheTypeOfTheActivations) {
  EXPECT_EQ(PayloadByName("unquantized", Rounding::kBf16).name, "bf16");
  EXPECT_EQ(PayloadByName("unquantized", Rounding::kFp32).name, "fp32");
}

TEST(Payload, UnknownNameListsTheNamesAndSuggestsTheNearest) {
  try {
    PayloadByName("mx1x23", Rounding::kBf16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("`mx1x23`"));
    EXPECT_THAT(error.what(), HasSubstr("unquantized, mx1x32, e4m3_1x128_fp32, "
                                        "e4m3_1x128_pow2"));
    EXPECT_THAT(error.what(), HasSubstr("Did you mean `mx1x32`?"));
  }
  // What a payload calls itself in a log is no name to give.
  EXPECT_THROW(PayloadByName("bf16", Rounding::kBf16), Error);
}

TEST(Payload, RowsHaveTheDocumentedSizes) {
  // D codes; beside them a byte of E8M0 for 32 values, or four of FP32 for 128.
  const auto bytes = [](const char* name, Rounding activations, size_t width) {
    return PayloadByName(name, activations).row_bytes(width);
  };

  EXPECT_EQ(bytes("unquantized", Rounding::kBf16, 7168), 14336u);
  EXPECT_EQ(bytes("unquantized", Rounding::kFp32, 7168), 28672u);
  EXPECT_EQ(bytes("mx1x32", Rounding::kBf16, 7168), 7392u);
  EXPECT_EQ(bytes("e4m3_1x128_fp32", Rounding::kBf16, 7168), 7392u);
  EXPECT_EQ(bytes("e4m3_1x128_pow2", Rounding::kBf16, 7168), 7392u);
  EXPECT_EQ(bytes("mx1x32", Rounding::kBf16, 33), 35u);
  EXPECT_EQ(bytes("e4m3_1x128_fp32", Rounding::kBf16, 129), 137u);
  for (const std::string& name : PayloadNames()) {
    EXPECT_EQ(bytes(name.c_str(), Rounding::kBf16, 0), 0u) << name;
  }
}

TEST(Payload, UnquantizedIsExact) {
  const Payload& bf16 = PayloadByName("unquantized", Rounding::kBf16);
  const Payload& fp32 = PayloadByName("unquantized", Rounding::kFp32);
  for (const size_t width : kWidths) {
    const std::vector<float> row = Row(width, width);
    std::vector<float> full = row;
    for (float& value : full) value *= 1.0f + 0x1p-20f;

    EXPECT_EQ(Bits(RoundTrip(bf16, row, Rounding::kBf16)), Bits(row));
    EXPECT_EQ(Bits(RoundTrip(fp32, full, Rounding::kFp32)), Bits(full));
  }
}

TEST(Payload, Bf16RoundsToNearestEven) {
  const Payload& bf16 = PayloadByName("unquantized", Rounding::kBf16);
  const Payload& fp32 = PayloadByName("unquantized", Rounding::kFp32);
  const std::vector<float> row = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.2p-8f};

  for (const Payload* payload : {&bf16, &fp32}) {
    EXPECT_THAT(RoundTrip(*payload, row, Rounding::kBf16),
                ElementsAre(1.0f, 1 + 0x1p-6f, 1 + 0x1p-7f))
        << payload->name;
  }
}

TEST(Payload, MxRoundTripIsTheOperandOfAQuantisedGemm) {
  const formats::Quantization spec{&formats::FormatByName("e4m3"),
                                   formats::ScaleRule::kRceil,
                                   formats::NonFinitePolicy::kBlockNan};
  const Payload& mx = PayloadByName("mx1x32", Rounding::kBf16);
  Executor executor(1);
  for (const size_t width : kWidths) {
    const std::vector<float> row = Row(width, width);
    std::vector<float> definition(width);
    for (size_t k = 0; k < width; k += formats::kMxBlockSize) {
      const size_t count = std::min(formats::kMxBlockSize, width - k);
      formats::QuantizeDequantizeBlock({row.data() + k, count}, spec,
                                       {definition.data() + k, count});
    }
    std::vector<float> operand(width);
    kernels::QuantizeDequantize({row.data(), 1, width}, spec,
                                {operand.data(), 1, width}, executor);

    const std::vector<float> decoded = RoundTrip(mx, row, Rounding::kBf16);

    EXPECT_EQ(Bits(decoded), Bits(definition)) << width;
    EXPECT_EQ(Bits(decoded), Bits(operand)) << width;
    EXPECT_EQ(Bits(RoundTrip(mx, row, Rounding::kFp32)), Bits(decoded))
        << "BF16 rows decode to BF16 values";
  }
}

TEST(Payload, MxRowsEncodeToThemselves) {
  // Why rows that travel in the GEMM's own operand format change no bit of the
  // forward pass: the GEMM quantises them again. (Values do not change, codes
  // may: 449 becomes 448, whose scale is half as large.)
  const Payload& mx = PayloadByName("mx1x32", Rounding::kBf16);
  for (uint64_t stream = 0; stream < 200; ++stream) {
    const std::vector<float> once =
        RoundTrip(mx, Row(1000, stream), Rounding::kBf16);

    const std::vector<float> twice = RoundTrip(mx, once, Rounding::kBf16);

    ASSERT_EQ(Bits(twice), Bits(once)) << stream;
  }
}

TEST(Payload, EachFormatHasAScaleOfItsOwn) {
  // 449 > 448 needs the power of two 2: 449 / 2 = 224.5 becomes 224, 17 / 2
  // becomes 8 (a tie). With the scale 449 / 448, 449 comes back and 16.96
  // becomes 16.
  std::vector<float> row(128, 0.0f);
  row[0] = 449;
  row[1] = 17;
  row[127] = 0.0625f;  // 2^-13 of the maximum, in another block of 32
  const auto received = [&](const char* name) {
    const std::vector<float> decoded =
        RoundTrip(PayloadByName(name, Rounding::kFp32), row, Rounding::kFp32);
    return std::vector<float>{decoded[0], decoded[1], decoded[127]};
  };
  const float scale = 449.0f / 448.0f;

  EXPECT_THAT(received("unquantized"), ElementsAre(449, 17, 0.0625f));
  EXPECT_THAT(received("mx1x32"), ElementsAre(448, 16, 0.0625f));
  // 0.0625 / 2 = 2^-5 and 0.0625 / scale are normal in E4M3.
  EXPECT_THAT(received("e4m3_1x128_pow2"), ElementsAre(448, 16, 0.0625f));
  EXPECT_THAT(received("e4m3_1x128_fp32"),
              ElementsAre(448 * scale, 16 * scale, 0.0625f * scale));
}

TEST(Payload, PowerOfTwoScalesAreIdempotentToo) {
  const Payload& pow2 = PayloadByName("e4m3_1x128_pow2", Rounding::kBf16);
  for (uint64_t stream = 0; stream < 200; ++stream) {
    const std::vector<float> once =
        RoundTrip(pow2, Row(1000, stream), Rounding::kBf16);

    ASSERT_EQ(Bits(RoundTrip(pow2, once, Rounding::kBf16)), Bits(once));
  }
}

TEST(Payload, E4m3ErrorsStayWithinHalfAStep) {
  // With scale S, an element is rounded to a multiple of 2^-3 of its own binade
  // or of S * 2^-9: half a step is at most |x| * 2^-4 or S * 2^-10. S is a /
  // 448 or less than twice that, a >= 1e-4. Then comes the rounding to BF16,
  // half a step of which is at most 2^-8 of it; FP32 roundings (two factors and
  // two products, 2^-24 each) take the rest.
  for (const char* name : {"e4m3_1x128_fp32", "e4m3_1x128_pow2"}) {
    const Payload& payload = PayloadByName(name, Rounding::kBf16);
    const double widest = std::string(name) == "e4m3_1x128_pow2" ? 2 : 1;
    double worst = 0;
    for (uint64_t stream = 0; stream < 50; ++stream) {
      const std::vector<float> row = Row(300, stream);
      const std::vector<float> decoded =
          RoundTrip(payload, row, Rounding::kBf16);
      for (size_t first = 0; first < row.size(); first += 128) {
        const size_t end = std::min(first + 128, row.size());
        double amax = 1e-4;
        for (size_t i = first; i < end; ++i) {
          amax = std::max(amax, std::fabs(static_cast<double>(row[i])));
        }
        const double scale = widest * amax / 448;
        for (size_t i = first; i < end; ++i) {
          const auto given = static_cast<double>(row[i]);
          const auto kept = static_cast<double>(decoded[i]);
          const double bound =
              (std::max(std::fabs(given) * 0x1p-4, scale * 0x1p-10) +
               std::fabs(kept) * 0x1p-8) *
              (1 + 0x1p-20);
          worst = std::max(worst, std::fabs(kept - given) / bound);
          EXPECT_EQ(std::signbit(decoded[i]), std::signbit(row[i]));
        }
      }
    }
    EXPECT_LE(worst, 1) << name;
    EXPECT_GT(worst, 0.8) << name << ": bound no longer tight";
  }
}

}  // namespace
}  // namespace isoloss::expert_parallel::payload_test
