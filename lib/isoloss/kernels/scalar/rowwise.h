// Defines every row-wise operation: scalar, serial and obvious. The formulas,
// shapes and aliasing rules stand in rowwise.h; arguments are not checked here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::kernels::scalar {

float RowDot(std::span<const float> a, std::span<const float> b);

void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd);
void RmsNormBackward(const RmsNormGradient& gradient);
/// Computes RmsNormBackward on the rows of one leaf (at most kTokenLeaf):
/// dweight is the sum over these rows alone.
void RmsNormBackwardLeaf(const RmsNormGradient& leaf);

void ApplyRope(const HeadColumns<float>& x, const RopeAngles& angles,
               Rounding rounding);
void CopyHeads(const HeadColumns<const float>& from,
               const HeadColumns<float>& to);
void SumHeads(const HeadColumns<const float>& from, Rounding rounding,
              MatrixView<float> out);

/// Works on one block: row i sees the first first_length + i keys (at most K).
/// Shapes   p, read, dp [Q, K].
void CausalSoftmaxForward(size_t first_length, MatrixView<float> p,
                          float scale);
void CausalSoftmaxBackward(size_t first_length, MatrixView<const float> p,
                           MatrixView<const float> read, float scale,
                           MatrixView<float> dp);
void RowSoftmax(MatrixView<const float> x, MatrixView<float> out);
void ElementSigmoid(MatrixView<const float> x, MatrixView<float> out);

void SwigluForward(MatrixView<const float> gate, MatrixView<const float> up,
                   Rounding rounding, MatrixView<float> h);
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dh, Rounding rounding,
                    MatrixView<float> dgate, MatrixView<float> dup);

void CrossEntropy(MatrixView<const float> logits,
                  std::span<const int32_t> labels, float grad_scale,
                  Rounding rounding, std::span<float> loss,
                  MatrixView<float> dlogits);

void Add(MatrixView<const float> x, MatrixView<const float> y,
         Rounding rounding, MatrixView<float> out);
void Subtract(MatrixView<const float> x, MatrixView<const float> y,
              MatrixView<float> out);
void Cast(MatrixView<const float> source, Rounding rounding,
          MatrixView<float> out);
void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out);
void GatherCombineBackward(MatrixView<const float> rows,
                           MatrixView<const int32_t> index,
                           MatrixView<const float> weights,
                           MatrixView<const float> dout, Rounding rounding,
                           MatrixView<float> drows, MatrixView<float> dweights);

void AdamWUpdate(std::span<float> parameter, std::span<float> first_moment,
                 std::span<float> second_moment,
                 std::span<const float> gradient, const AdamWScalars& scalars);

void MeasuredAdamWUpdate(const MeasuredAdamW& update);

/// Computes FiniteAmaxes of one group.
float FiniteAmax(MatrixView<const float> values, Rounding rounding);

double SumOfSquares(std::span<const float> values);
/// Returns the sum over one leaf (at most kSquaresLeaf elements).
double SumOfSquaresLeaf(std::span<const float> values);

}  // namespace isoloss::kernels::scalar
