// Operations here work along the rows of a matrix.
//
// All intermediate values are FP32 and every operation is one IEEE operation,
// in the order in which the formulas below are written; fma(a, b, c) is fused,
// nothing else is. Horizontal sums use 16 logical lanes: element i is added to
// lane i mod 16 with one FMA (a short last group is padded with zeros), then
// the lanes are added pairwise: 8, 4, 2, 1 apart. Sums over tokens have leaves
// of kTokenLeaf rows (ascending, from +0) and go up the aligned tree of tree.h.
// round() stands for the one rounding of a stored result that `rounding` asks
// for. Exp, Log, Sigmoid and Rsqrt are those of elementary.h.
//
// scalar/rowwise.h repeats each function without an executor, as the
// definition.
//
// T = tokens (rows). Outputs may be the same memory as an input of the same
// shape, element for element.
// Errors   ShapeError if extents differ from those under Shapes.
// Special  signs and payloads of NaN are not defined; everything else is.
// Exact    bits depend on the arguments only: neither on the executor nor on
//          the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::kernels {

/// A sum over tokens for norms, router and loss has this number of rows per
/// leaf.
inline constexpr size_t kTokenLeaf = 32;
/// A token with this label takes no part in the loss.
inline constexpr int32_t kIgnoredLabel = -100;

/// sum_i a[i] * b[i] in 16 lanes: acc = fma(a, b, acc).
float RowDot(std::span<const float> a, std::span<const float> b);

/// y = round((x * r) * w), r = Rsqrt(sum(x * x) / D + eps).
/// Shapes   x, y [T, D]; weight [D]; rstd [T] receives r.
void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd, Executor& executor);

/// The backward pass of RMSNorm reads and writes these arrays.
/// Shapes   x, dy, dx [T, D]; weight, dweight [D]; rstd [T].
struct RmsNormGradient {
  MatrixView<const float> x;
  std::span<const float> weight;
  std::span<const float> rstd;
  MatrixView<const float> dy;
  Rounding rounding;
  bool add;  ///< to what dx holds
  MatrixView<float> dx;
  std::span<float> dweight;

  /// Restricts the problem to these tokens.
  RmsNormGradient Rows(size_t first, size_t count,
                       std::span<float> their_dweight) const {
    return {x.Rows(first, count),  weight,       rstd.subspan(first, count),
            dy.Rows(first, count), rounding,     add,
            dx.Rows(first, count), their_dweight};
  }
};

/// dx_i = round(r * fma(-c, x_i, g_i)), g = dy * w,
/// c = ((r * r) / D) * sum(g * x); with `add` round(dx_i + round(r * fma(…)));
/// dweight_i = sum over tokens of (dy_i * x_i) * r, acc = fma(dy * x, r, acc);
/// never rounded, overwritten.
void RmsNormBackward(const RmsNormGradient& gradient, Executor& executor);

/// Each head has these columns of a [T, C] matrix: head h occupies columns
/// [h * stride + offset, h * stride + offset + width). All heads have the same
/// columns if the stride is 0.
template <typename T>
struct HeadColumns {
  MatrixView<T> matrix;
  size_t heads;
  size_t stride;
  size_t offset;
  size_t width;

  constexpr size_t rows() const { return matrix.rows(); }
  constexpr T* Row(size_t row, size_t head) const {
    return matrix.Row(row) + head * stride + offset;
  }
  MatrixView<T> Of(size_t head, size_t first_row, size_t count) const {
    return matrix.Rows(first_row, count).Cols(head * stride + offset, width);
  }
  HeadColumns Rows(size_t first, size_t count) const {
    return {matrix.Rows(first, count), heads, stride, offset, width};
  }
};

/// to = from, head by head.
/// Shapes   equal rows, heads and widths.
void CopyHeads(const HeadColumns<const float>& from,
               const HeadColumns<float>& to, Executor& executor);

/// out = round(the sum over heads, ascending from +0).
/// Shapes   out [rows, width] of `from`.
void SumHeads(const HeadColumns<const float>& from, Rounding rounding,
              MatrixView<float> out, Executor& executor);

/// Each token's pairs are rotated by the angle of its position.
/// Shapes   positions [T]; cos, sin [max position, pairs].
struct RopeAngles {
  std::span<const int32_t> positions;
  MatrixView<const float> cos;
  MatrixView<const float> sin;
  bool inverse;  ///< by their negatives
};

/// Rotates adjacent pairs (2i, 2i+1) of each head in place by the angle whose
/// cosine c and sine s stand in row positions[t]; inverse: by its negative.
/// x_2i = round(fma(x_2i, c, x_2i+1 * -s)),
/// x_2i+1 = round(fma(x_2i+1, c, x_2i * s)).
/// Errors   ShapeError also for a position outside the table, or columns that
///          are no heads of two columns a pair.
void ApplyRope(const HeadColumns<float>& x, const RopeAngles& angles,
               Rounding rounding, Executor& executor);

/// Rows of scores become softmax(scale * row) over the keys that they see:
/// e_j = Exp((x_j - max x) * scale), p_j = e_j * (1 / sum e). The rest of a row
/// is set to +0. scale > 0.
/// Shapes   scores of the wave.
void CausalSoftmaxForward(const ScoreWave& wave, std::span<float> scores,
                          float scale, Executor& executor);

/// dp becomes scale * (p * (dp - sum(dp * read))) over the keys that a row
/// sees, and +0 on the rest.
/// Shapes   all scores of the wave.
struct CausalSoftmaxGradient {
  std::span<const float> p;
  std::span<const float> read;  ///< what the product P V read of p, or p
  std::span<float> dp;
};
void CausalSoftmaxBackward(const ScoreWave& wave,
                           const CausalSoftmaxGradient& gradient, float scale,
                           Executor& executor);

/// out = softmax(x) per row, as CausalSoftmaxForward with scale 1 and full
/// rows / out = Sigmoid(x). FP32, not rounded.
/// Shapes   x, out [T, E].
void RowSoftmax(MatrixView<const float> x, MatrixView<float> out,
                Executor& executor);
void ElementSigmoid(MatrixView<const float> x, MatrixView<float> out,
                    Executor& executor);

/// h = round(s * up), s = round(gate * Sigmoid(gate)).
/// Shapes   all [T, F].
void SwigluForward(MatrixView<const float> gate, MatrixView<const float> up,
                   Rounding rounding, MatrixView<float> h, Executor& executor);

/// dup = round(dh * s), s as above; dgate = round(ds * d), ds = round(dh * up),
/// d = q * fma(gate, 1 - q, 1), q = Sigmoid(gate).
/// Shapes   all [T, F].
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dh, Rounding rounding,
                    MatrixView<float> dgate, MatrixView<float> dup,
                    Executor& executor);

/// Per token, with m = max x, e_j = Exp(x_j - m), S = sum e:
/// loss = Log(S) + (m - x_label), which is logsumexp(x) - x_label;
/// dlogits_j = round(e_j * (grad_scale / S)), and at the label
/// round(fma(e_j, grad_scale / S, -grad_scale)). Ignored tokens get 0.
/// Shapes   logits [T, V]; labels, loss [T]; dlogits [T, V] or empty to skip
///          it; it may be the same memory as logits.
/// Errors   ShapeError if a label is neither kIgnoredLabel nor in [0, V).
void CrossEntropy(MatrixView<const float> logits,
                  std::span<const int32_t> labels, float grad_scale,
                  Rounding rounding, std::span<float> loss,
                  MatrixView<float> dlogits, Executor& executor);

/// out = round(x + y).
/// Shapes   all [T, D].
void Add(MatrixView<const float> x, MatrixView<const float> y,
         Rounding rounding, MatrixView<float> out, Executor& executor);

/// out = x - y.
/// Shapes   all [T, D].
void Subtract(MatrixView<const float> x, MatrixView<const float> y,
              MatrixView<float> out, Executor& executor);

/// out = round(source), which with kFp32 is a copy.
/// Shapes   both [T, D].
void Cast(MatrixView<const float> source, Rounding rounding,
          MatrixView<float> out, Executor& executor);

/// out[t] = round(sum over slots k, ascending, of weights[t, k] *
/// rows[index[t, k]]) as acc = fma(weight, row, acc) from +0. An empty
/// `weights` means acc = acc + row. A non-empty `addend` is added to the
/// finished sum before the one rounding: round(acc + addend).
/// Shapes   rows [R, D]; index, weights [T, K]; addend, out [T, D]. `out` may
///          be `addend` but not `rows`.
/// Errors   ShapeError also for an index outside [0, R).
void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out, Executor& executor);

/// Computes the adjoint of GatherCombine with weights and without addend, for
/// an index that names no row twice. With r = index[t, k]:
/// drows[r] = round(fma(weights[t, k], dout[t], +0));
/// dweights[t, k] = RowDot(dout[t], rows[r]), not rounded.
/// Remaining rows of drows are left alone.
/// Shapes   rows, drows [R, D]; index, weights, dweights [T, K]; dout [T, D].
///          `drows` may be `rows`; or `dout`, if index names row t for token t.
/// Errors   ShapeError also for an index outside [0, R).
void GatherCombineBackward(MatrixView<const float> rows,
                           MatrixView<const int32_t> index,
                           MatrixView<const float> weights,
                           MatrixView<const float> dout, Rounding rounding,
                           MatrixView<float> drows, MatrixView<float> dweights,
                           Executor& executor);

/// A step of AdamW multiplies and adds these numbers, computed in double and
/// rounded to FP32 once.
struct AdamWScalars {
  float decay;  ///< 1 - lr * weight_decay
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;   ///< lr / (1 - beta1^t)
  float bias2_sqrt;  ///< sqrt(1 - beta2^t)
  float eps;
  float grad_scale;  ///< the clip coefficient
};

/// AdamW on one tensor, in place. With h = g * grad_scale:
/// m = fma(beta1, m, one_minus_beta1 * h);
/// v = fma(beta2, v, (one_minus_beta2 * h) * h);
/// p = p * decay - (step_size * m) / (sqrt(v) / bias2_sqrt + eps).
/// Shapes   all of one length.
/// Source   docs/model.md section 11.
void AdamWUpdate(std::span<float> parameter, std::span<float> first_moment,
                 std::span<float> second_moment,
                 std::span<const float> gradient, const AdamWScalars& scalars,
                 Executor& executor);

/// Sums over tokens in FP64: leaves of kTokenLeaf, ascending, go up the aligned
/// tree.
double SumOfTokens(std::span<const float> values);
/// Sets amaxes[g] to the largest magnitude of the rounded values that are
/// finite in rows [begins[g], begins[g + 1]), and to 0 if there is none.
/// Shapes   begins [G + 1], ascending up to at most T; amaxes [G], in the
///          host's memory.
void FiniteAmaxes(MatrixView<const float> values,
                  std::span<const size_t> begins, Rounding rounding,
                  std::span<float> amaxes, Executor& executor);

/// SumOfSquares adds this number of elements per leaf.
inline constexpr size_t kSquaresLeaf = 1024;
/// Returns the number of leaves of a sum over so many elements.
constexpr size_t SquaresLeaves(size_t elements) {
  return (elements + kSquaresLeaf - 1) / kSquaresLeaf;
}

/// Sums squares in FP64: leaves of kSquaresLeaf consecutive elements, each in
/// 16 lanes of fma(double(x), double(x), acc), go up the aligned tree.
double SumOfSquares(std::span<const float> values, Executor& executor);
/// Sets `sum`, in the host's memory, to SumOfSquares.
void SetSumOfSquares(std::span<const float> values, double& sum,
                     Executor& executor);
/// Computes the leaves of SumOfSquares alone: leaves[i] is of elements [i *
/// kSquaresLeaf, …).
/// Shapes   leaves [SquaresLeaves(values)], in the host's memory.
void SumOfSquaresLeaves(std::span<const float> values, std::span<double> leaves,
                        Executor& executor);
/// Shapes   as SumOfSquaresLeaves.
struct TensorSquares {
  std::span<const float> values;
  std::span<double> leaves;
};
/// Computes SumOfSquaresLeaves of each tensor.
void SquaresOfTensors(std::span<const TensorSquares> tensors,
                      Executor& executor);

/// A step of AdamW on one tensor is measured with these arrays.
/// Shapes   all of one length; the leaves [SquaresLeaves(length)], in the
///          host's memory.
struct MeasuredAdamW {
  std::span<float> parameter;
  std::span<float> first_moment;
  std::span<float> second_moment;
  std::span<float> gradient;
  AdamWScalars scalars;
  bool keeps_parameter;  ///< as it was before the step, where the gradient was
  std::span<double> parameter_squares;  ///< leaves of parameter before the step
  std::span<double> update_squares;     ///< leaves of after - before
};

/// AdamWUpdate of each tensor, together with the leaves of SumOfSquares of the
/// parameter and of its change, while the values are in cache.
void MeasuredAdamWUpdate(std::span<const MeasuredAdamW> updates,
                         Executor& executor);

}  // namespace isoloss::kernels
