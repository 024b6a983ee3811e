#include "isoloss/oracle/exact_dot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "isoloss/oracle/estimate_math.h"

namespace isoloss::oracle {
namespace {

/// Distance of FP32 values of this magnitude.
double Fp32Spacing(double magnitude) {
  if (!(magnitude > 0.0)) return 0.0;
  constexpr int kMantissaBits = 23;
  constexpr int kLeastExponent = -149;
  return std::ldexp(
      1.0, std::max(std::ilogb(magnitude) - kMantissaBits, kLeastExponent));
}

/// Whether no order of adding `count` terms rounds: all partial sums are
/// multiples of the last bit of any term, so they fit if `size`, the sum of
/// magnitudes, has 24 bits of that unit.
template <typename Terms>
bool FitInAnyOrder(const Terms& term, size_t count, double size) {
  double unit = HUGE_VAL;
  for (size_t k = 0; k < count; ++k) unit = std::min(unit, LowestBit(term(k)));
  return unit >= kTiny && size <= unit * 0x1p24;
}

/// `count` dot products at once, as Dot defines them.
template <size_t kCount>
struct Chains {
  std::array<double, kCount> exact{};
  std::array<double, kCount> size{};     // sum of |a b|
  std::array<double, kCount> squares{};  // of the chain's roundings
  std::array<double, kCount> largest{};  // |a b|
  std::array<double, kCount> lost{};     // by the chain of magnitudes
  std::array<float, kCount> chain{};     // FP32, ascending
  std::array<float, kCount> magnitudes{};

  [[gnu::always_inline]] void Term(size_t lane, double product) {
    const double magnitude = std::fabs(product);
    exact[lane] += product;
    size[lane] += magnitude;
    largest[lane] = std::max(largest[lane], magnitude);
    const double error = Add(product, chain[lane]);
    squares[lane] += error * error;
    lost[lane] += std::fabs(Add(magnitude, magnitudes[lane]));
  }

  /// Adds in FP32; returns the rounding's error.
  [[gnu::always_inline]] static double Add(double term, float& chain) {
    const double sum = static_cast<double>(chain) + term;
    const auto rounded = static_cast<float>(sum);
    chain = rounded;
    return static_cast<double>(rounded) - sum;
  }

  /// `term(k)`: of this lane, 0 <= k < terms.
  template <typename Terms>
  Estimate Result(size_t lane, size_t terms, const Terms& term) const {
    const auto n = static_cast<double>(terms);
    // Magnitudes that lose something show without another walk that orders
    // matter. NaN and infinity have no noise.
    const bool rounds =
        lost[lane] > 0.0 || (size[lane] > 0.0 && std::isfinite(size[lane]) &&
                             !FitInAnyOrder(term, terms, size[lane]));
    // Every rounding after the largest term is at least as coarse as it.
    const double spacing = rounds ? Fp32Spacing(largest[lane]) : 0.0;
    return {.exact = exact[lane],
            .bound = Gamma(terms) * size[lane] +
                     (size[lane] > 0.0 ? n * kTiny : 0.0),
            .noise = std::sqrt(
                std::max(squares[lane], n / 12.0 * spacing * spacing))};
  }
};

}  // namespace

Grid ActivationGrid(const precision::Recipe& recipe) {
  return recipe.activation == decltype(recipe.activation)::kBf16 ? Grid::kBf16
                                                                 : Grid::kFp32;
}

Estimate Dot(const float* a, const float* b, size_t size, size_t a_stride,
             size_t b_stride) {
  const auto term = [&](size_t k) {
    return static_cast<double>(a[k * a_stride]) *
           static_cast<double>(b[k * b_stride]);
  };
  Chains<1> chains;
  for (size_t k = 0; k < size; ++k) chains.Term(0, term(k));
  return chains.Result(0, size, term);
}

void DotRows(const float* a, const float* const* b, size_t count, size_t size,
             Estimate* out) {
  ISOLOSS_ASSERT(count <= kDotLanes);
  // Missing rows are computed like the first one, and left out.
  std::array<const float*, kDotLanes> rows{};
  for (size_t j = 0; j < kDotLanes; ++j) rows[j] = b[j < count ? j : 0];
  Chains<kDotLanes> chains;
  for (size_t k = 0; k < size; ++k) {
    const auto left = static_cast<double>(a[k]);
    for (size_t j = 0; j < kDotLanes; ++j) {
      chains.Term(j, left * static_cast<double>(rows[j][k]));
    }
  }
  for (size_t j = 0; j < count; ++j) {
    out[j] = chains.Result(j, size, [&](size_t k) {
      return static_cast<double>(a[k]) * static_cast<double>(b[j][k]);
    });
  }
}

void PackPanel(MatrixView<const float> values, size_t first,
               Matrix<float>& panel) {
  panel.Resize(values.cols(), kDotLanes);
  const size_t count = std::min(kDotLanes, values.rows() - first);
  for (size_t j = 0; j < count; ++j) {
    const float* row = values.Row(first + j);
    for (size_t k = 0; k < values.cols(); ++k) panel(k, j) = row[k];
  }
}

namespace {

/// The loop of DotPanel. Compilers put lanes side by side in vectors of the
/// caller's instruction set; what a lane computes does not depend on it.
[[gnu::always_inline]] inline void ChainPanel(const float* a,
                                              const Matrix<float>& panel,
                                              Chains<kDotLanes>& chains) {
  for (size_t k = 0; k < panel.rows(); ++k) {
    const auto left = static_cast<double>(a[k]);
    const float* right = panel.Row(k);
    for (size_t j = 0; j < kDotLanes; ++j) {
      chains.Term(j, left * static_cast<double>(right[j]));
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void ChainPanelAvx2(const float* a,
                                            const Matrix<float>& panel,
                                            Chains<kDotLanes>& chains) {
  ChainPanel(a, panel, chains);
}
#endif

}  // namespace

void DotPanel(const float* a, const Matrix<float>& panel, Estimate* out) {
  Chains<kDotLanes> chains;
#if defined(__x86_64__)
  static const bool kAvx2 = __builtin_cpu_supports("avx2") != 0;
  if (kAvx2) {
    ChainPanelAvx2(a, panel, chains);
  } else {
    ChainPanel(a, panel, chains);
  }
#else
  ChainPanel(a, panel, chains);
#endif
  for (size_t j = 0; j < kDotLanes; ++j) {
    out[j] = chains.Result(j, panel.rows(), [&](size_t k) {
      return static_cast<double>(a[k]) * static_cast<double>(panel(k, j));
    });
  }
}

Estimate Sum(const float* values, size_t size, size_t stride) {
  const auto term = [&](size_t k) {
    return static_cast<double>(values[k * stride]);
  };
  Chains<1> chains;
  for (size_t k = 0; k < size; ++k) chains.Term(0, term(k));
  return chains.Result(0, size, term);
}

}  // namespace isoloss::oracle
