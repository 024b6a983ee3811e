// Rows on the wire: what the formats give on inputs checked by hand, and that
// every target equals the definition.
#include "isoloss/kernels/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/scalar/wire.h"

namespace isoloss::kernels::wire_test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

/// A wire format with everything but the row fixed; `scalar` is its definition.
struct WireFormat {
  std::string name;
  std::function<size_t(size_t)> row_bytes;
  std::function<void(const float*, size_t, std::byte*)> encode;
  std::function<void(const std::byte*, size_t, float*)> decode;
  std::function<void(const float*, size_t, std::byte*)> scalar_encode;
  std::function<void(const std::byte*, size_t, float*)> scalar_decode;
};

std::vector<WireFormat> AllWireFormats() {
  std::vector<WireFormat> all;
  all.push_back({"bf16", [](size_t width) { return 2 * width; }, EncodeBf16Row,
                 DecodeBf16Row, scalar::EncodeBf16Row, scalar::DecodeBf16Row});
  for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
    const std::string suffix = rounding == Rounding::kBf16 ? "_to_bf16" : "";
    const auto rounded = [rounding](auto decode) {
      return [=](const std::byte* bytes, size_t width, float* row) {
        decode(bytes, width, rounding, row);
      };
    };
    all.push_back({"mx" + suffix,
                   [](size_t width) { return width + CeilDiv(width, 32); },
                   EncodeMxRow, rounded(DecodeMxRow), scalar::EncodeMxRow,
                   rounded(scalar::DecodeMxRow)});
    for (const RunScale scale : {RunScale::kFp32, RunScale::kPow2}) {
      const auto scaled = [scale](auto encode) {
        return [=](const float* row, size_t width, std::byte* bytes) {
          encode(row, width, scale, bytes);
        };
      };
      all.push_back(
          {(scale == RunScale::kFp32 ? "e4m3_fp32" : "e4m3_pow2") + suffix,
           [](size_t width) { return width + 4 * CeilDiv(width, 128); },
           scaled(EncodeE4m3Row), rounded(DecodeE4m3Row),
           scaled(scalar::EncodeE4m3Row), rounded(scalar::DecodeE4m3Row)});
    }
  }
  return all;
}

/// Encoded bytes at an odd address, with one guard byte on each side.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size) : memory_(size + 2, std::byte{0xA5}) {}

  std::byte* data() { return memory_.data() + 1; }
  std::span<const std::byte> all() const { return memory_; }

 private:
  std::vector<std::byte> memory_;
};

/// Every bit, of NaN too: messages are compared by their checksums.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Encoding and decoding give the definition's bits and write nothing else.
testing::AssertionResult EqualsDefinition(const WireFormat& format,
                                          const float* row, size_t width) {
  GuardedBytes bytes(format.row_bytes(width));
  GuardedBytes expected(format.row_bytes(width));
  format.encode(row, width, bytes.data());
  format.scalar_encode(row, width, expected.data());
  if (!std::equal(bytes.all().begin(), bytes.all().end(),
                  expected.all().begin())) {
    return testing::AssertionFailure() << format.name << " encodes otherwise";
  }
  std::vector<float> decoded(width + 1, 7.0f);
  std::vector<float> expected_row(width + 1, 7.0f);
  format.decode(bytes.data(), width, decoded.data());
  format.scalar_decode(bytes.data(), width, expected_row.data());
  if (!SameBits(decoded, expected_row)) {
    return testing::AssertionFailure() << format.name << " decodes otherwise";
  }
  return testing::AssertionSuccess();
}

class WireOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, WireOn, testing::ValuesIn(SupportedTargets()),
                         TargetTestName);

TEST_P(WireOn, EqualsTheDefinitionOnAwkwardWidths) {
  for (const WireFormat& format : AllWireFormats()) {
    for (const Values kind : {Values::kBf16, Values::kFp32, Values::kWild}) {
      for (const size_t width : {0, 1, 3, 15, 16, 17, 31, 32, 33, 127, 128, 129,
                                 160, 256, 300, 1000, 7168}) {
        // One float before the row misaligns it.
        const Matrix<float> row = Filled(1, width + 1, kind, width);

        ASSERT_TRUE(EqualsDefinition(format, row.data() + 1, width))
            << width << " values of kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(WireOn, EqualsTheDefinitionOnEveryBf16Value) {
  // Each value as the largest of its run and, one run later, beside 1 and 1e-3,
  // so that scales and codes take every value that they can.
  for (const WireFormat& format : AllWireFormats()) {
    std::vector<float> row;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      row.push_back(formats::DecodeBf16(static_cast<uint16_t>(bits)));
    }
    const std::vector<float> sorted = row;
    ASSERT_TRUE(EqualsDefinition(format, row.data(), row.size()));
    for (const float largest : {1.0f, 448.0f, 3e38f, 1e-3f}) {
      for (size_t i = 0; i < row.size(); ++i) {
        const bool below = std::fabs(sorted[i]) <= largest;
        row[i] = i % 32 == 0 ? largest : below ? sorted[i] : 0.0f;
      }
      ASSERT_TRUE(EqualsDefinition(format, row.data(), row.size())) << largest;
    }
  }
}

TEST_P(WireOn, EqualsTheDefinitionAroundEveryScaleAndTie) {
  // FP32 neighbours of E4M3 values and of the midpoints between them, in runs
  // whose largest value is near each power of two, 1.75 times it (where the
  // scale steps) and 1e-4.
  std::vector<float> fractions;
  for (uint32_t code = 0; code <= 0x7E; ++code) {
    const formats::Format& e4m3 = formats::FormatByName("e4m3");
    const float value = formats::Decode(e4m3, static_cast<uint8_t>(code));
    const float next =
        code == 0x7E ? 448.0f
                     : formats::Decode(e4m3, static_cast<uint8_t>(code + 1));
    for (const float at : {value, (value + next) / 2}) {
      for (const float neighbour :
           {at, std::nextafter(at, kInf), std::nextafter(at, -kInf)}) {
        fractions.push_back(std::min(neighbour, 448.0f) / 448);
      }
    }
  }
  std::vector<float> maxima = {1e-4f, std::nextafter(1e-4f, 0.0f),
                               std::nextafter(1e-4f, 1.0f), 0x1p-149f,
                               std::numeric_limits<float>::max()};
  for (int exponent = -140; exponent < 128; ++exponent) {
    for (const float significand : {1.0f, 1.75f}) {
      const float at = std::ldexp(significand, exponent);
      for (const float toward : {0.0f, at, kInf}) {
        maxima.push_back(std::nextafter(at, toward));
      }
    }
  }
  for (const WireFormat& format : AllWireFormats()) {
    for (const float largest : maxima) {
      std::vector<float> row;
      for (size_t i = 0; i < fractions.size(); ++i) {
        if (i % 31 == 0) row.push_back(i % 2 == 0 ? largest : -largest);
        row.push_back(fractions[i] * (i % 3 == 0 ? -largest : largest));
      }

      ASSERT_TRUE(EqualsDefinition(format, row.data(), row.size())) << largest;
    }
  }
}

TEST_P(WireOn, DecodesEveryByte) {
  // Bytes that no encoder writes come from a faulty wire: they must be decoded
  // alike everywhere too.
  for (const WireFormat& format : AllWireFormats()) {
    for (uint32_t scale = 0; scale < 256; ++scale) {
      constexpr size_t kWidth = 256;
      std::vector<std::byte> bytes(format.row_bytes(kWidth),
                                   static_cast<std::byte>(scale));
      for (size_t i = 0; i < kWidth; ++i) bytes[i] = static_cast<std::byte>(i);
      std::vector<float> row(kWidth);
      std::vector<float> expected(kWidth);

      format.decode(bytes.data(), kWidth, row.data());
      format.scalar_decode(bytes.data(), kWidth, expected.data());

      for (size_t i = 0; i < kWidth; ++i) {
        ASSERT_TRUE(SameResult(row[i], expected[i]))
            << format.name << ", scale bytes " << scale << ", code " << i;
      }
    }
  }
}

/// The definitions, on inputs small enough to check by hand.
class Wire : public testing::Test {
 protected:
  Wire() { ForceTarget("scalar"); }
  ~Wire() override { ForceTarget(""); }
};

/// Bytes of a row of one run: its codes and its scale.
struct EncodedRun {
  std::vector<int> codes;
  float scale;
};

EncodedRun Encoded(const std::vector<float>& row, RunScale run_scale) {
  std::vector<std::byte> bytes(row.size() + sizeof(float));
  EncodeE4m3Row(row.data(), row.size(), run_scale, bytes.data());
  EncodedRun run;
  for (size_t i = 0; i < row.size(); ++i) {
    run.codes.push_back(static_cast<int>(bytes[i]));
  }
  std::memcpy(&run.scale, bytes.data() + row.size(), sizeof(float));
  return run;
}

std::vector<float> Decoded(const std::vector<float>& row, RunScale run_scale,
                           Rounding rounding) {
  std::vector<std::byte> bytes(row.size() +
                               sizeof(float) * CeilDiv(row.size(), kScaledRun));
  std::vector<float> decoded(row.size());
  EncodeE4m3Row(row.data(), row.size(), run_scale, bytes.data());
  DecodeE4m3Row(bytes.data(), row.size(), rounding, decoded.data());
  return decoded;
}

TEST_F(Wire, Fp32ScaleIsTheMaximumOver448) {
  // 896 / 448 = 2: 1 is half of 1 * 2^1, 0x30 = 2^(6 - 7).
  const EncodedRun run = Encoded({896, 1, -2, 0, -0.0f}, RunScale::kFp32);

  EXPECT_EQ(run.scale, 2.0f);
  EXPECT_THAT(run.codes, ElementsAre(0x7E, 0x30, 0xB8, 0x00, 0x80));
}

TEST_F(Wire, Fp32ScaleRoundsTheQuotientAndTheProduct) {
  const float amax = 3.0f;
  const EncodedRun run = Encoded({3, 1}, RunScale::kFp32);

  EXPECT_EQ(run.scale, amax / 448.0f);
  // 1 * (448 / 3) = 149.33 lies between 144 (0x71) and 160 (0x72).
  EXPECT_THAT(run.codes, ElementsAre(0x7E, 0x71));
  EXPECT_THAT(Decoded({3, 1}, RunScale::kFp32, Rounding::kFp32),
              ElementsAre(448.0f * (amax / 448.0f), 144.0f * (amax / 448.0f)));
  // 144 * 3 / 448 = 0.9643 is 0.96484375 in BF16 (steps of 2^-8).
  EXPECT_THAT(Decoded({3, 1}, RunScale::kFp32, Rounding::kBf16),
              ElementsAre(3.0f, 0.96484375f));
}

TEST_F(Wire, Pow2ScaleIsRoundedUpSoThatNothingSaturates) {
  EXPECT_EQ(Encoded({448}, RunScale::kPow2).scale, 1.0f);
  EXPECT_EQ(Encoded({449}, RunScale::kPow2).scale, 2.0f);
  EXPECT_EQ(Encoded({-512}, RunScale::kPow2).scale, 2.0f);
  EXPECT_EQ(Encoded({1}, RunScale::kPow2).scale, 0x1p-8f);
  EXPECT_EQ(Encoded({1.75f}, RunScale::kPow2).scale, 0x1p-8f);
  EXPECT_EQ(Encoded({std::nextafter(1.75f, 2.0f)}, RunScale::kPow2).scale,
            0x1p-7f);
  // 480 / 2 = 240 (0x77); OCP's floor would saturate at 448.
  EXPECT_THAT(Encoded({480, 2}, RunScale::kPow2).codes,
              ElementsAre(0x77, 0x38));
}

TEST_F(Wire, TinyRunsUseTheScaleOfOneTenThousandth) {
  EXPECT_EQ(Encoded({0, -0.0f}, RunScale::kFp32).scale, 1e-4f / 448.0f);
  EXPECT_THAT(Encoded({0, -0.0f}, RunScale::kFp32).codes,
              ElementsAre(0x00, 0x80));
  // 448 * 2^-22 = 1.068e-4 is the first that holds 1e-4.
  EXPECT_EQ(Encoded({1e-9f}, RunScale::kPow2).scale, 0x1p-22f);
  // 5e-5 is half of the clamped maximum: 224, 0x76.
  EXPECT_THAT(Encoded({5e-5f}, RunScale::kFp32).codes, ElementsAre(0x76));
  // Below half of 2^-9 * 1e-4 / 448 nothing is left but the sign.
  EXPECT_THAT(Encoded({-2e-10f}, RunScale::kFp32).codes, ElementsAre(0x80));
}

TEST_F(Wire, RunsOf128HaveScalesOfTheirOwn) {
  std::vector<float> row(128 + 1, 448.0f);
  row.back() = 896;
  std::vector<std::byte> bytes(row.size() + 2 * sizeof(float));

  EncodeE4m3Row(row.data(), row.size(), RunScale::kFp32, bytes.data());

  float scales[2];
  std::memcpy(scales, bytes.data() + row.size(), sizeof(scales));
  EXPECT_THAT(scales, ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(std::span(bytes).first(row.size()), Each(std::byte{0x7E}));
}

TEST_F(Wire, NonFiniteValuesMakeTheirRunNan) {
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    for (const RunScale scale : {RunScale::kFp32, RunScale::kPow2}) {
      std::vector<float> row(3 * 128, 1.0f);
      row[128] = bad;

      const std::vector<float> decoded = Decoded(row, scale, Rounding::kBf16);

      for (size_t i = 0; i < row.size(); ++i) {
        EXPECT_EQ(std::isnan(decoded[i]), i / 128 == 1) << bad << ", " << i;
      }
    }
    std::vector<float> row(3 * 32, 1.0f);
    row[63] = bad;
    std::vector<std::byte> bytes(row.size() + 3);

    EncodeMxRow(row.data(), row.size(), bytes.data());
    DecodeMxRow(bytes.data(), row.size(), Rounding::kBf16, row.data());

    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(std::isnan(row[i]), i / 32 == 1) << bad << ", " << i;
    }
  }
}

TEST_F(Wire, NanAndInfinityTravelAsBf16) {
  const std::vector<float> row = {kNan, -kNan, kInf, -kInf, -0.0f, 0x1p-133f};
  std::vector<std::byte> bytes(2 * row.size());
  std::vector<float> decoded(row.size());

  EncodeBf16Row(row.data(), row.size(), bytes.data());
  DecodeBf16Row(bytes.data(), row.size(), decoded.data());

  EXPECT_TRUE(SameBits(decoded, row));
}

TEST_F(Wire, MxRowsAreTheOperandsOfAQuantisedGemm) {
  // {448, 1, -0}: scale 2^0, code 127. {3.5, 1e-9}: scale 2^-7, code 120.
  std::vector<float> row(34, 0.0f);
  row[0] = 448;
  row[1] = 1;
  row[2] = -0.0f;
  row[32] = 3.5f;
  row[33] = 1e-9f;
  std::vector<std::byte> bytes(row.size() + 2);

  EncodeMxRow(row.data(), row.size(), bytes.data());

  const auto byte = [&](size_t i) { return static_cast<int>(bytes[i]); };
  EXPECT_THAT((std::vector<int>{byte(0), byte(1), byte(2), byte(3)}),
              ElementsAre(0x7E, 0x38, 0x80, 0x00));
  EXPECT_THAT((std::vector<int>{byte(32), byte(33), byte(34), byte(35)}),
              ElementsAre(0x7E, 0x00, 127, 120));
}

}  // namespace
}  // namespace isoloss::kernels::wire_test
