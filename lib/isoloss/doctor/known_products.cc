#include "isoloss/doctor/known_products.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/row_digests.h"

namespace isoloss::doctor {
namespace {

/// Words come from these streams.
enum Stream : uint32_t { kLeft, kRight, kLeftRows, kRightRows };

/// Returns a bijection of 32-bit words.
/// Source   lowbias32 of C. Wellons' hash-prospector.
constexpr uint32_t Mix(uint32_t word) {
  word = (word ^ word >> 16) * 0x7FEB352Du;
  word = (word ^ word >> 15) * 0x846CA68Bu;
  return word ^ word >> 16;
}

constexpr uint32_t WordAt(size_t index, Stream stream, uint32_t seed) {
  return Mix(Mix(static_cast<uint32_t>(index)) ^ Mix(4 * seed + stream));
}

float ElementOf(const KnownElements& elements, uint32_t word) {
  const uint32_t one = 1u << elements.mantissa_bits;
  const int exponent = elements.lowest_exponent +
                       static_cast<int>((word >> 16) % static_cast<uint32_t>(
                                                           elements.exponents));
  const float magnitude =
      std::ldexp(static_cast<float>(one | (word & (one - 1))),
                 exponent - elements.mantissa_bits);
  return word >> 31 != 0 ? -magnitude : magnitude;
}

Matrix<float> BaseRows(const KnownElements& elements, size_t depth,
                       Stream stream) {
  Matrix<float> rows(KnownProduct::kBaseRows, depth);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows.data()[i] = ElementOf(elements, WordAt(i, stream, 0));
  }
  return rows;
}

std::vector<KnownRow> RowsOf(size_t count, Stream stream, uint32_t seed) {
  std::vector<KnownRow> rows;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = WordAt(i, stream, seed);
    const int shift = static_cast<int>(word >> 16 & 3) - 1;
    rows.push_back({word % KnownProduct::kBaseRows,
                    std::ldexp(word >> 31 != 0 ? -1.0f : 1.0f, shift)});
  }
  return rows;
}

constexpr KnownElements kBf16 = {7, -8, 16};
constexpr KnownElements kE4m3 = {3, -3, 8};

std::vector<ProductKind> MakeKinds() {
  const auto sums = [](const char* accumulator, size_t interval) {
    return kernels::Accumulation{&kernels::AccumulatorByName(accumulator),
                                 interval};
  };
  return {{"fp32_chain", kBf16, {}},
          {"hopper_bf16", kBf16, sums("hopper_bf16", 0)},
          {"ampere_bf16", kBf16, sums("ampere_bf16", 0)},
          {"hopper_f13", kE4m3, sums("hopper_f13", 0)},
          {"hopper_f13_promote128", kE4m3, sums("hopper_f13", 128)},
          {"ada_fp8", kE4m3, sums("ada_fp8", 0)},
          {"blackwell_f25", kE4m3, sums("blackwell_f25", 0)}};
}

}  // namespace

std::span<const ProductKind> AllProductKinds() {
  static const std::vector<ProductKind> kinds = MakeKinds();
  return kinds;
}

KnownProduct::KnownProduct(const ProductKind& kind, size_t depth,
                           Executor& host)
    : left_base_(BaseRows(kind.elements, depth, kLeft)),
      right_base_(BaseRows(kind.elements, depth, kRight)),
      base_(kBaseRows, kBaseRows) {
  const kernels::GemmProblem problem{.a = {left_base_.view()},
                                     .b = {right_base_.view()},
                                     .c = base_.view(),
                                     .accumulation = kind.accumulation};
  kernels::GemmBatch({&problem, 1}, host);
}

void KnownProduct::Arrange(size_t rows, size_t cols, uint32_t seed) {
  left_ = RowsOf(rows, kLeftRows, seed);
  right_ = RowsOf(cols, kRightRows, seed);
}

std::vector<uint64_t> KnownProduct::ExpectedDigests(Executor& host) const {
  std::vector<uint64_t> digests(left_.size());
  host.ParallelFor(left_.size(), [&](size_t i) {
    uint64_t digest = 0;
    for (size_t j = 0; j < right_.size(); ++j) {
      digest += kernels::DigestOfElement(Expected(i, j), j);
    }
    digests[i] = digest;
  });
  return digests;
}

uint64_t KnownProduct::digest() const {
  uint64_t digest = 0;
  for (size_t i = 0; i < base_.size(); ++i) {
    digest += (2 * uint64_t{i} + 1) * std::bit_cast<uint32_t>(base_.data()[i]);
  }
  return digest;
}

Matrix<float> KnownProduct::OperandOf(const Matrix<float>& base,
                                      std::span<const KnownRow> rows) {
  Matrix<float> operand;
  operand.ResizeUninitialized(rows.size(), base.cols());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::transform(base.Row(rows[i].base), base.Row(rows[i].base) + base.cols(),
                   operand.Row(i),
                   [factor = rows[i].factor](float x) { return x * factor; });
  }
  return operand;
}

}  // namespace isoloss::doctor
