#include "isoloss/oracle/tensor_core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::oracle {
namespace {

constexpr TensorCore kCores[] = {
    {"hopper_bf16", Aligned::kByValues, 16, 1, 25, 24},
    {"hopper_f13", Aligned::kByCodes, 32, 1, 13, 14},
    {"ampere_bf16", Aligned::kByValues, 8, 1, 24, 24},
    {"ada_fp8", Aligned::kByCodes, 16, 1, 13, 14},
    {"blackwell_f25", Aligned::kByCodes, 32, 1, 25, 24},
    {"blackwell_fp4", Aligned::kByScales, 64, 16, 35, 24},
    {"cdna3_bf16", Aligned::kByValues, 8, 1, 24, 0, 1},
    {"cdna3_fp8", Aligned::kByCodes, 16, 1, 24, 0, 2}};

constexpr int kLeastExponent = -126;

/// Is value * 2^exponent; the value has all bits.
struct Term {
  double value = 0.0;
  int exponent = 2 * kLeastExponent;
};

/// Returns x in steps of 2^-bits, toward zero or downward.
double Truncated(double x, int bits) {
  return std::ldexp(std::trunc(std::ldexp(x, bits)), -bits);
}
double Floored(double x, int bits) {
  return std::ldexp(std::floor(std::ldexp(x, bits)), -bits);
}

Term TermOf(float sum) {
  const int exponent =
      sum == 0.0f ? kLeastExponent : std::max(std::ilogb(sum), kLeastExponent);
  return {std::ldexp(static_cast<double>(sum), -exponent), exponent};
}

/// Aligns the terms to their largest exponent and adds what is left of them.
Term AlignedSum(const std::vector<Term>& terms, int bits) {
  if (terms.empty()) return {};
  Term sum = {0.0, std::ranges::max(terms, {}, &Term::exponent).exponent};
  for (const Term& term : terms) {
    sum.value +=
        Truncated(std::ldexp(term.value, term.exponent - sum.exponent), bits);
  }
  return sum;
}

/// Cuts off toward zero to a number of `significand_bits`, with FP32's range.
float Cut(const Term& sum, int significand_bits) {
  if (sum.value == 0.0) return 0.0f;
  const double exact = std::ldexp(sum.value, sum.exponent);
  const int exponent = std::max(std::ilogb(exact), kLeastExponent);
  const double cut = Truncated(exact, significand_bits - 1 - exponent);
  constexpr auto kLargest =
      static_cast<double>(std::numeric_limits<float>::max());
  if (std::fabs(cut) > kLargest) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(sum.value));
  }
  return cut == 0.0 ? 0.0f : static_cast<float>(cut);
}

/// Aligns `term` to a larger exponent, and cuts it off downward.
double AlignedDown(const Term& term, int exponent, int bits) {
  return Floored(std::ldexp(term.value, term.exponent - exponent), bits);
}

/// AMD's adder: `parts` are sums of products.
float AddDownward(const Term& before, const std::vector<Term>& parts,
                  int bits) {
  constexpr int kBitsOfProducts = 31;
  Term products = parts[0];
  if (parts.size() > 1) {
    const int top = std::max(parts[0].exponent, parts[1].exponent);
    products = {
        AlignedDown(parts[0], top, bits) + AlignedDown(parts[1], top, bits),
        top};
  }
  const int top = std::max(products.exponent, before.exponent);
  const bool is_lost = parts.size() > 1 && before.exponent < top - 25;
  const double sum = AlignedDown(products, top, kBitsOfProducts) +
                     (is_lost ? 0.0 : AlignedDown(before, top, bits));
  return static_cast<float>(std::ldexp(sum, top));
}

}  // namespace

float TensorCore::Add(float sum, const CoreOperand& a,
                      const CoreOperand& b) const {
  const bool is_amd = significand_bits == 0;
  std::vector<std::vector<Term>> terms(parts);
  if (!is_amd) terms[0].push_back(TermOf(sum));
  double all = static_cast<double>(sum);
  for (size_t k = 0; k < a.values.size(); ++k) {
    const double product =
        static_cast<double>(a.values[k]) * static_cast<double>(b.values[k]);
    const bool is_beyond = is_amd && std::fabs(product) >= 0x1p128;
    all += is_beyond ? std::copysign(HUGE_VAL, product) : product;
    const int exponent = a.exponents[k] + b.exponents[k];
    if (k % group == 0) terms[k % parts].push_back({0.0, exponent});
    terms[k % parts].back().value += std::ldexp(product, -exponent);
  }
  if (!std::isfinite(all)) return static_cast<float>(all);
  if (!is_amd)
    return Cut(AlignedSum(terms[0], fraction_bits), significand_bits);
  std::vector<Term> sums;
  for (const std::vector<Term>& part : terms) {
    sums.push_back(AlignedSum(part, fraction_bits));
  }
  return AddDownward(TermOf(sum), sums, fraction_bits);
}

float TensorCore::Dot(const CoreOperand& a, const CoreOperand& b) const {
  float sum = 0.0f;
  for (size_t k = 0; k < a.values.size(); k += steps) {
    const size_t count = std::min(steps, a.values.size() - k);
    sum = Add(sum, {a.values.subspan(k, count), a.exponents.subspan(k, count)},
              {b.values.subspan(k, count), b.exponents.subspan(k, count)});
  }
  return sum;
}

const TensorCore& TensorCoreByName(std::string_view name) {
  for (const TensorCore& core : kCores) {
    if (core.name == name) return core;
  }
  ThrowError(ErrorKind::kConfig,
             "oracle: accumulator {} was given, but the oracle has no text for "
             "it. State the accumulator in oracle/tensor_core.cc.",
             name);
}

}  // namespace isoloss::oracle
