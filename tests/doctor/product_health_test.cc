#include "isoloss/doctor/product_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/device/emulation.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/row_digests.h"

namespace isoloss::doctor::product_health_test {
namespace {

using ::testing::HasSubstr;
using Lie = std::function<void(MatrixView<float>)>;

const ProductKind& Chain() { return AllProductKinds().front(); }

/// A device that multiplies as the host, and then lies. `look` sees the room of
/// a result before.
class LyingDevice final : public Executor {
 public:
  explicit LyingDevice(
      Lie lie, Lie look = [](MatrixView<float>) {})
      : Executor(1), lie_(std::move(lie)), look_(std::move(look)) {}

  ErasedKernel FormOf(ErasedKernel kernel) const override {
    const auto multiply = reinterpret_cast<ErasedKernel>(&kernels::GemmBatch);
    return kernel == multiply ? reinterpret_cast<ErasedKernel>(&Multiply)
                              : nullptr;
  }

 private:
  static void Multiply(std::span<const kernels::GemmProblem> problems,
                       Executor& executor) {
    const auto& device = static_cast<LyingDevice&>(executor);
    device.look_(problems.front().c);
    Executor host(1);
    kernels::GemmBatch(problems, host);
    device.lie_(problems.front().c);
  }

  Lie lie_;
  Lie look_;
};

void Flip(float& element, uint32_t mask) {
  element = std::bit_cast<float>(std::bit_cast<uint32_t>(element) ^ mask);
}

ProductResult ResultOf(const Lie& lie, const ProductKind& kind = Chain()) {
  LyingDevice device(lie);
  return ExamineProducts(
             device,
             {.seconds = 0, .shape = {256, 128, 64}, .kinds = {&kind, 1}})
      .front();
}

TEST(ProductHealthTest, AHealthyDeviceHasNoWrongElement) {
  const auto device = device::MakeEmulation(device::EmulationOrder::kAscending);
  const ProductShape shape{40, 33, 160};

  const auto results = ExamineProducts(*device, {.seconds = 0, .shape = shape});

  ASSERT_EQ(results.size(), AllProductKinds().size());
  for (const ProductResult& result : results) {
    EXPECT_EQ(result.not_judged, "") << result.kind;
    EXPECT_TRUE(result.is_healthy()) << result.kind << result.pattern;
    EXPECT_EQ(result.products, 1);
    EXPECT_EQ(result.elements, 40 * 33);
    EXPECT_GT(result.FlopPerSecond(), 0);
  }
}

TEST(ProductHealthTest, LocatesOneBitOfOneElement) {
  const ProductResult result =
      ResultOf([](MatrixView<float> c) { Flip(c(17, 100), 1u << 21); });

  EXPECT_FALSE(result.is_healthy());
  EXPECT_EQ(result.wrong, 1);
  EXPECT_EQ(result.wrong_products, 1);
  ASSERT_EQ(result.first.size(), 1);
  EXPECT_EQ(result.first[0].product, 1);
  EXPECT_EQ(result.first[0].row, 17);
  EXPECT_EQ(result.first[0].col, 100);
  EXPECT_EQ(result.first[0].expected ^ result.first[0].found, 1u << 21);
  EXPECT_THAT(result.pattern, HasSubstr("in bit 21"));
  EXPECT_THAT(result.pattern, HasSubstr("at row 17, column 100"));
}

TEST(ProductHealthTest, NamesALaneOfRows) {
  const ProductResult result = ResultOf([](MatrixView<float> c) {
    for (size_t i = 0; i < c.rows(); ++i) {
      for (size_t j = 0; i % 64 / 8 == 1 && j < c.cols(); j += 5) {
        Flip(c(i, j), 1u << 13);
      }
    }
  });

  EXPECT_THAT(result.pattern,
              HasSubstr("all in bit 13, in rows 8 to 15 of tiles of 64"));
  EXPECT_EQ(result.first.size(), 10);
}

TEST(ProductHealthTest, NamesATile) {
  const ProductResult result = ResultOf([](MatrixView<float> c) {
    for (size_t i = 128; i < 192; ++i) {
      for (size_t j = 64; j < 128; ++j) {
        Flip(c(i, j), static_cast<uint32_t>(1 + i * 131 + j * 71));
      }
    }
  });

  EXPECT_EQ(result.wrong, 64 * 64);
  EXPECT_THAT(result.pattern, HasSubstr("tile"));
}

TEST(ProductHealthTest, NamesABitPosition) {
  const ProductResult result = ResultOf([](MatrixView<float> c) {
    for (size_t i = 0; i < c.rows(); ++i) {
      for (size_t j = 0; j < c.cols(); ++j) {
        const auto bits = std::bit_cast<uint32_t>(c(i, j));
        c(i, j) = std::bit_cast<float>(bits | 1u << 2);
      }
    }
  });

  EXPECT_GT(result.wrong, 1000);
  EXPECT_THAT(result.pattern, HasSubstr("all in bit 2, always from 0 to 1"));
}

TEST(ProductHealthTest, FindsAFaultThatIsNotInTheFirstProduct) {
  int products = 0;
  LyingDevice device([&](MatrixView<float> c) {
    if (++products == 2) Flip(c(0, 0), 1);
  });
  // Two kinds have two turns at least if they have time at all.
  const ProductKind kinds[] = {Chain(), Chain()};

  const auto results = ExamineProducts(
      device, {.seconds = 0, .shape = {16, 16, 16}, .kinds = kinds});

  EXPECT_TRUE(results[0].is_healthy());
  EXPECT_EQ(results[1].wrong, 1);
}

/// Tensor cores must not wait while sums of FP8 are computed one by one.
TEST(ProductHealthTest, KindsThatAreNoLoadHaveOneProductATurn) {
  int products = 0;
  LyingDevice device([&](MatrixView<float>) {
    if (++products == 3) ThrowError(ErrorKind::kDevice, "that was all");
  });
  const ProductKind kinds[] = {AllProductKinds()[3], Chain()};
  std::vector<std::string> turns;
  const ProductHealthOptions options{
      .seconds = 1e6,
      .shape = {16, 16, 32},
      .kinds = kinds,
      .progress = [&turns](const ProductResult& result) {
        turns.push_back(result.kind);
      }};

  EXPECT_THROW(ExamineProducts(device, options), Error);
  EXPECT_THAT(turns, testing::ElementsAre("hopper_f13"));
}

/// A device may fail to write an element, which must not look right then.
TEST(ProductHealthTest, NoProductFindsTheOneBefore) {
  int products = 0;
  LyingDevice device([&](MatrixView<float>) { ++products; },
                     [&](MatrixView<float> c) {
                       if (products == 0) return;
                       for (size_t i = 0; i < c.rows(); ++i) {
                         for (size_t j = 0; j < c.cols(); ++j) {
                           EXPECT_EQ(c(i, j), 0.0f);
                         }
                       }
                       ThrowError(ErrorKind::kDevice, "that was all");
                     });
  const ProductHealthOptions options{
      .seconds = 1e6, .shape = {16, 16, 16}, .kinds = {&Chain(), 1}};

  EXPECT_THROW(ExamineProducts(device, options), Error);
  EXPECT_EQ(products, 1);
}

const Lie kRefusal = [](MatrixView<float>) {
  ThrowError(ErrorKind::kConfig, "no such tensor cores");
};

TEST(ProductHealthTest, AKindThatTheDeviceRefusesIsNotJudged) {
  const ProductResult result = ResultOf(kRefusal, AllProductKinds()[1]);

  EXPECT_THAT(result.not_judged, HasSubstr("no such tensor cores"));
  EXPECT_EQ(result.products, 0);
}

/// Too little memory looks like a refusal, but says nothing about health.
TEST(ProductHealthTest, ChainsCanNotBeRefused) {
  EXPECT_THROW(ResultOf(kRefusal), Error);
}

TEST(ProductHealthTest, ADeviceThatFailsEndsTheExamination) {
  EXPECT_THROW(ResultOf([](MatrixView<float>) {
                 ThrowError(ErrorKind::kDevice, "it fell off the bus");
               }),
               Error);
}

/// The product of the arranged operands has the bits that are made of those of
/// the base rows, for every kind.
TEST(KnownProductTest, ArrangementsCommuteWithEveryAccumulator) {
  Executor host(1);
  for (const ProductKind& kind : AllProductKinds()) {
    KnownProduct known(kind, 160, host);
    known.Arrange(60, 50, 7);
    const Matrix<float> left = known.Left();
    const Matrix<float> right = known.Right();
    Matrix<float> product(60, 50);
    const kernels::GemmProblem problem{.a = {left.view()},
                                       .b = {right.view()},
                                       .c = product.view(),
                                       .accumulation = kind.accumulation};
    kernels::GemmScalar(problem);

    for (size_t i = 0; i < 60; ++i) {
      for (size_t j = 0; j < 50; ++j) {
        ASSERT_EQ(std::bit_cast<uint32_t>(product(i, j)),
                  std::bit_cast<uint32_t>(known.Expected(i, j)))
            << kind.name << " " << i << " " << j;
      }
    }
    std::vector<uint64_t> digests(60);
    kernels::RowDigests(product.view(), digests, host);
    EXPECT_EQ(digests, known.ExpectedDigests(host));
  }
}

/// `python -m isoloss sick` compares a GPU with these.
TEST(KnownProductTest, HasTheDigestsThatThePythonPackageShips) {
  std::ifstream file(std::string(ISOLOSS_SOURCE_DIR) +
                     "/python/isoloss/known_products.json");
  const auto shipped = nlohmann::json::parse(file);
  Executor host(2);
  size_t compared = 0;
  for (const ProductKind& kind : AllProductKinds()) {
    if (kind.accumulation.accumulator == nullptr) continue;
    for (const auto& [depth, digest] : shipped.at(kind.name).items()) {
      const KnownProduct known(kind, std::stoul(depth), host);
      EXPECT_EQ(DigestToHex(known.digest()), digest) << kind.name << depth;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 3 * shipped.size());
}

}  // namespace
}  // namespace isoloss::doctor::product_health_test
