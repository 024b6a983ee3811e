#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/elementary-inl.h"
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::Add;
using scalar::Cast;
using scalar::ElementSigmoid;
using scalar::Subtract;
using scalar::SwigluBackward;
using scalar::SwigluForward;

#else

/// Computes out = Sigmoid(x) for `count` elements.
HWY_INLINE void SigmoidRow(const float* x, size_t count, float* out) {
  const FloatTag d;
  ForEachVector(d, count, [&](size_t j, size_t n) HWY_ATTR {
    StoreFirst(d, Sigmoid(d, LoadFirst(d, x + j, n)), out + j, n);
  });
}

void ElementSigmoid(MatrixView<const float> x, MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    SigmoidRow(x.Row(t), x.cols(), out.Row(t));
  }
}

void SwigluForward(MatrixView<const float> gate, MatrixView<const float> up,
                   Rounding rounding, MatrixView<float> h) {
  const FloatTag d;
  HWY_ALIGN float q[kBlock];
  for (size_t t = 0; t < gate.rows(); ++t) {
    ForEachBlock(gate.cols(), [&](size_t first, size_t count) HWY_ATTR {
      const float* z_row = gate.Row(t) + first;
      const float* u_row = up.Row(t) + first;
      float* h_row = h.Row(t) + first;
      SigmoidRow(z_row, count, q);
      ForEachVector(d, count, [&](size_t j, size_t n) HWY_ATTR {
        const auto z = LoadFirst(d, z_row + j, n);
        const auto s = Round(d, hn::Mul(z, LoadFirst(d, q + j, n)), rounding);
        const auto h_j = hn::Mul(s, LoadFirst(d, u_row + j, n));
        StoreFirst(d, Round(d, h_j, rounding), h_row + j, n);
      });
    });
  }
}

void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dh, Rounding rounding,
                    MatrixView<float> dgate, MatrixView<float> dup) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0f);
  HWY_ALIGN float sigmoid[kBlock];
  for (size_t t = 0; t < gate.rows(); ++t) {
    ForEachBlock(gate.cols(), [&](size_t first, size_t count) HWY_ATTR {
      const float* z_row = gate.Row(t) + first;
      const float* u_row = up.Row(t) + first;
      const float* dh_row = dh.Row(t) + first;
      float* dgate_row = dgate.Row(t) + first;
      float* dup_row = dup.Row(t) + first;
      SigmoidRow(z_row, count, sigmoid);
      ForEachVector(d, count, [&](size_t j, size_t n) HWY_ATTR {
        const auto z = LoadFirst(d, z_row + j, n);
        const auto u = LoadFirst(d, u_row + j, n);
        const auto dh_j = LoadFirst(d, dh_row + j, n);
        const auto q = LoadFirst(d, sigmoid + j, n);
        const auto s = Round(d, hn::Mul(z, q), rounding);
        const auto ds = Round(d, hn::Mul(dh_j, u), rounding);
        const auto slope = hn::Mul(q, hn::MulAdd(z, hn::Sub(one, q), one));
        const auto dgate_j = Round(d, hn::Mul(ds, slope), rounding);
        const auto dup_j = Round(d, hn::Mul(dh_j, s), rounding);
        StoreFirst(d, dgate_j, dgate_row + j, n);
        StoreFirst(d, dup_j, dup_row + j, n);
      });
    });
  }
}

void Add(MatrixView<const float> x, MatrixView<const float> y,
         Rounding rounding, MatrixView<float> out) {
  const FloatTag d;
  for (size_t t = 0; t < x.rows(); ++t) {
    ForEachVector(d, x.cols(), [&](size_t j, size_t n) HWY_ATTR {
      const auto sum =
          hn::Add(LoadFirst(d, x.Row(t) + j, n), LoadFirst(d, y.Row(t) + j, n));
      StoreFirst(d, Round(d, sum, rounding), out.Row(t) + j, n);
    });
  }
}

void Subtract(MatrixView<const float> x, MatrixView<const float> y,
              MatrixView<float> out) {
  const FloatTag d;
  for (size_t t = 0; t < x.rows(); ++t) {
    ForEachVector(d, x.cols(), [&](size_t j, size_t n) HWY_ATTR {
      StoreFirst(
          d,
          hn::Sub(LoadFirst(d, x.Row(t) + j, n), LoadFirst(d, y.Row(t) + j, n)),
          out.Row(t) + j, n);
    });
  }
}

void Cast(MatrixView<const float> source, Rounding rounding,
          MatrixView<float> out) {
  const FloatTag d;
  for (size_t t = 0; t < source.rows(); ++t) {
    ForEachVector(d, source.cols(), [&](size_t j, size_t n) HWY_ATTR {
      const auto value = LoadFirst(d, source.Row(t) + j, n);
      StoreFirst(d, Round(d, value, rounding), out.Row(t) + j, n);
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

HWY_EXPORT(ElementSigmoid);
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);
HWY_EXPORT(Add);
HWY_EXPORT(Subtract);
HWY_EXPORT(Cast);

}  // namespace

void ElementSigmoid(MatrixView<const float> x, MatrixView<float> out,
                    Executor& executor) {
  RequireShape("ElementSigmoid", "out", out, x.rows(), x.cols());
  if (RanElsewhere(&ElementSigmoid, x, out, executor)) return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(ElementSigmoid)
    (x.Rows(first, count), out.Rows(first, count));
  });
}

void SwigluForward(MatrixView<const float> gate, MatrixView<const float> up,
                   Rounding rounding, MatrixView<float> h, Executor& executor) {
  constexpr const char* kWhere = "SwigluForward";
  RequireShape(kWhere, "up", up, gate.rows(), gate.cols());
  RequireShape(kWhere, "h", h, gate.rows(), gate.cols());
  if (RanElsewhere(&SwigluForward, gate, up, rounding, h, executor)) return;
  ForRowRuns(gate.rows(), gate.cols(), 1, executor,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(SwigluForward)
               (gate.Rows(first, count), up.Rows(first, count), rounding,
                h.Rows(first, count));
             });
}

void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dh, Rounding rounding,
                    MatrixView<float> dgate, MatrixView<float> dup,
                    Executor& executor) {
  constexpr const char* kWhere = "SwigluBackward";
  RequireShape(kWhere, "up", up, gate.rows(), gate.cols());
  RequireShape(kWhere, "dh", dh, gate.rows(), gate.cols());
  RequireShape(kWhere, "dgate", dgate, gate.rows(), gate.cols());
  RequireShape(kWhere, "dup", dup, gate.rows(), gate.cols());
  if (RanElsewhere(&SwigluBackward, gate, up, dh, rounding, dgate, dup,
                   executor))
    return;
  ForRowRuns(
      gate.rows(), gate.cols(), 1, executor, [&](size_t first, size_t count) {
        HWY_DYNAMIC_DISPATCH(SwigluBackward)
        (gate.Rows(first, count), up.Rows(first, count), dh.Rows(first, count),
         rounding, dgate.Rows(first, count), dup.Rows(first, count));
      });
}

void Add(MatrixView<const float> x, MatrixView<const float> y,
         Rounding rounding, MatrixView<float> out, Executor& executor) {
  RequireShape("Add", "y", y, x.rows(), x.cols());
  RequireShape("Add", "out", out, x.rows(), x.cols());
  if (RanElsewhere(&Add, x, y, rounding, out, executor)) return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(Add)
    (x.Rows(first, count), y.Rows(first, count), rounding,
     out.Rows(first, count));
  });
}

void Subtract(MatrixView<const float> x, MatrixView<const float> y,
              MatrixView<float> out, Executor& executor) {
  RequireShape("Subtract", "y", y, x.rows(), x.cols());
  RequireShape("Subtract", "out", out, x.rows(), x.cols());
  if (RanElsewhere(&Subtract, x, y, out, executor)) return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(Subtract)
    (x.Rows(first, count), y.Rows(first, count), out.Rows(first, count));
  });
}

void Cast(MatrixView<const float> source, Rounding rounding,
          MatrixView<float> out, Executor& executor) {
  RequireShape("Cast", "out", out, source.rows(), source.cols());
  if (RanElsewhere(&Cast, source, rounding, out, executor)) return;
  ForRowRuns(source.rows(), source.cols(), 1, executor,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(Cast)
               (source.Rows(first, count), rounding, out.Rows(first, count));
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
