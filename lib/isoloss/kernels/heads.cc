#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/heads.cc"
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

void ApplyRope(const HeadColumns<float>& x, const RopeAngles& angles,
               Rounding rounding) {
  const MatrixView<const float> cos = angles.cos;
  const MatrixView<const float> sin = angles.sin;
  const bool inverse = angles.inverse;
  const FloatTag d;
  // Each element of a vector's worth of pairs has one factor: the cosine twice,
  // then -sine and +sine.
  HWY_ALIGN float c[2 * hn::MaxLanes(d)];
  HWY_ALIGN float s[2 * hn::MaxLanes(d)];
  for (size_t t = 0; t < x.rows(); ++t) {
    const auto position = static_cast<size_t>(angles.positions[t]);
    ForEachVector(d, cos.cols(), [&](size_t pair, size_t pairs) HWY_ATTR {
      const auto cosine = LoadFirst(d, cos.Row(position) + pair, pairs);
      const auto sine = LoadFirst(d, sin.Row(position) + pair, pairs);
      const auto negative = hn::Neg(sine);
      hn::StoreInterleaved2(cosine, cosine, d, c);
      hn::StoreInterleaved2(inverse ? sine : negative,
                            inverse ? negative : sine, d, s);
      for (size_t h = 0; h < x.heads; ++h) {
        float* head = x.Row(t, h) + 2 * pair;
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

template <typename T>
void RequireHeads(const char* where, const HeadColumns<T>& x) {
  const size_t end = x.stride * (x.heads - 1) + x.offset + x.width;
  if (x.heads > 0 && end <= x.matrix.cols()) return;
  ThrowError(ErrorKind::kShape,
             "{}: {} heads of {} columns, {} apart from column {} on, were "
             "given, but the matrix has {} columns. Pass its layout.",
             where, x.heads, x.width, x.stride, x.offset, x.matrix.cols());
}

void CheckAngles(const HeadColumns<float>& x, const RopeAngles& angles) {
  constexpr const char* kWhere = "ApplyRope";
  const size_t rows = angles.cos.rows();
  RequireHeads(kWhere, x);
  RequireShape(kWhere, "sin", angles.sin, rows, angles.cos.cols());
  RequireLength(kWhere, "positions", angles.positions.size(), x.rows());
  RequireLength(kWhere, "a head", x.width, 2 * angles.cos.cols());
  for (size_t t = 0; t < angles.positions.size(); ++t) {
    const int32_t position = angles.positions[t];
    if (position < 0 || static_cast<size_t>(position) >= rows) {
      ThrowError(ErrorKind::kShape,
                 "ApplyRope: token {} has position {}, but the table has {} "
                 "rows. Build a longer table.",
                 t, position, rows);
    }
  }
}

}  // namespace

void ApplyRope(const HeadColumns<float>& x, const RopeAngles& angles,
               Rounding rounding, Executor& executor) {
  CheckAngles(x, angles);
  if (RanElsewhere(&ApplyRope, x, angles, rounding, executor)) return;
  ForRowRuns(x.rows(), x.heads * x.width, 1, executor,
             [&](size_t first, size_t count) {
               RopeAngles of_run = angles;
               of_run.positions = angles.positions.subspan(first, count);
               HWY_DYNAMIC_DISPATCH(ApplyRope)
               (x.Rows(first, count), of_run, rounding);
             });
}

void CopyHeads(const HeadColumns<const float>& from,
               const HeadColumns<float>& to, Executor& executor) {
  constexpr const char* kWhere = "CopyHeads";
  RequireHeads(kWhere, from);
  RequireHeads(kWhere, to);
  ISOLOSS_ASSERT(from.rows() == to.rows() && from.heads == to.heads &&
                 from.width == to.width);
  if (RanElsewhere(&CopyHeads, from, to, executor)) return;
  ForRowRuns(to.rows(), to.heads * to.width, 1, executor,
             [&](size_t first, size_t count) {
               scalar::CopyHeads(from.Rows(first, count),
                                 to.Rows(first, count));
             });
}

void SumHeads(const HeadColumns<const float>& from, Rounding rounding,
              MatrixView<float> out, Executor& executor) {
  RequireHeads("SumHeads", from);
  RequireShape("SumHeads", "out", out, from.rows(), from.width);
  if (RanElsewhere(&SumHeads, from, rounding, out, executor)) return;
  ForRowRuns(out.rows(), from.heads * from.width, 1, executor,
             [&](size_t first, size_t count) {
               scalar::SumHeads(from.Rows(first, count), rounding,
                                out.Rows(first, count));
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
