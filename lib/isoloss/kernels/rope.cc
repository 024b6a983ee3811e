#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/rowwise_scalar.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::ApplyRope;

#else

void ApplyRope(MatrixView<float> x, size_t heads, size_t stride, size_t offset,
               std::span<const int32_t> positions, MatrixView<const float> cos,
               MatrixView<const float> sin, bool inverse, Rounding rounding) {
  const FloatTag d;
  // One factor per element of a vector's worth of pairs: the cosine twice, then
  // -sine and +sine.
  HWY_ALIGN float c[2 * hn::MaxLanes(d)];
  HWY_ALIGN float s[2 * hn::MaxLanes(d)];
  for (size_t t = 0; t < x.rows(); ++t) {
    const auto position = static_cast<size_t>(positions[t]);
    ForEachVector(d, cos.cols(), [&](size_t pair, size_t pairs) HWY_ATTR {
      const auto cosine = LoadFirst(d, cos.Row(position) + pair, pairs);
      const auto sine = LoadFirst(d, sin.Row(position) + pair, pairs);
      const auto negative = hn::Neg(sine);
      hn::StoreInterleaved2(cosine, cosine, d, c);
      hn::StoreInterleaved2(inverse ? sine : negative,
                            inverse ? negative : sine, d, s);
      for (size_t h = 0; h < heads; ++h) {
        float* head = x.Row(t) + h * stride + offset + 2 * pair;
        ForEachVector(d, 2 * pairs, [&](size_t i, size_t n) HWY_ATTR {
          const auto value = LoadFirst(d, head + i, n);
          const auto turned =
              hn::Mul(hn::Reverse2(d, value), hn::Load(d, s + i));
          const auto y = hn::MulAdd(value, hn::Load(d, c + i), turned);
          StoreFirst(d, Round(d, y, rounding), head + i, n);
        });
      }
    });
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(ApplyRope);

void CheckArguments(MatrixView<float> x, size_t heads, size_t stride,
                    size_t offset, std::span<const int32_t> positions,
                    MatrixView<const float> cos, MatrixView<const float> sin) {
  constexpr const char* kWhere = "ApplyRope";
  RequireShape(kWhere, "sin", sin, cos.rows(), cos.cols());
  RequireLength(kWhere, "positions", positions.size(), x.rows());
  if (x.cols() != heads * stride || offset + 2 * cos.cols() > stride) {
    ThrowError(ErrorKind::kShape,
               "ApplyRope: x has {} columns for {} heads of {}, rotated from "
               "column {} on in {} pairs, but heads must fill the columns and "
               "pairs fit in a head. Pass the layout of x.",
               x.cols(), heads, stride, offset, cos.cols());
  }
  for (size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] < 0 || static_cast<size_t>(positions[t]) >= cos.rows()) {
      ThrowError(ErrorKind::kShape,
                 "ApplyRope: token {} has position {}, but the table has {} "
                 "rows. Build a longer table.",
                 t, positions[t], cos.rows());
    }
  }
}

}  // namespace

void ApplyRope(MatrixView<float> x, size_t heads, size_t stride, size_t offset,
               std::span<const int32_t> positions, MatrixView<const float> cos,
               MatrixView<const float> sin, bool inverse, Rounding rounding,
               ThreadTeam& team) {
  CheckArguments(x, heads, stride, offset, positions, cos, sin);
  ForRowRuns(x.rows(), heads * 2 * cos.cols(), 1, team,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(ApplyRope)
               (x.Rows(first, count), heads, stride, offset,
                positions.subspan(first, count), cos, sin, inverse, rounding);
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
