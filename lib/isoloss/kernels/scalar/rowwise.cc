#include "isoloss/kernels/scalar/rowwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/lanes.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::kernels::scalar {
namespace {

float LaneSum(const float* values, size_t count) {
  return LaneDot<float>(
      count, [&](size_t i) { return values[i]; }, [](size_t) { return 1.0f; });
}

/// Returns the largest value, and -inf if there is none.
float RowMax(const float* values, size_t count) {
  float max = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i) max = Larger(max, values[i]);
  return max;
}

/// e_j = Exp((x_j - max x) * scale); returns their sum. `e` may be `x`.
float ShiftedExponentials(const float* x, size_t count, float max, float scale,
                          float* e) {
  for (size_t j = 0; j < count; ++j) e[j] = Exp((x[j] - max) * scale);
  return LaneSum(e, count);
}

void SoftmaxRow(const float* x, size_t count, float scale, float* p) {
  const float max = RowMax(x, count);
  const float inverse = 1.0f / ShiftedExponentials(x, count, max, scale, p);
  for (size_t j = 0; j < count; ++j) p[j] *= inverse;
}

}  // namespace

float RowDot(std::span<const float> a, std::span<const float> b) {
  return LaneDot<float>(
      a.size(), [&](size_t i) { return a[i]; }, [&](size_t i) { return b[i]; });
}

void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd) {
  const size_t d = x.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const std::span<const float> row(x.Row(t), d);
    const float r = Rsqrt(RowDot(row, row) / static_cast<float>(d) + eps);
    for (size_t i = 0; i < d; ++i) {
      y(t, i) = Rounded((row[i] * r) * weight[i], rounding);
    }
    rstd[t] = r;
  }
}

void RmsNormBackwardLeaf(const RmsNormGradient& leaf) {
  const auto& [x, weight, rstd, dy, rounding, add, dx, dweight] = leaf;
  const size_t d = x.cols();
  std::fill(dweight.begin(), dweight.end(), 0.0f);
  for (size_t t = 0; t < x.rows(); ++t) {
    const float r = rstd[t];
    const auto g = [&, t](size_t i) { return leaf.dy(t, i) * leaf.weight[i]; };
    const auto of_x = [&, t](size_t i) { return leaf.x(t, i); };
    const float c =
        ((r * r) / static_cast<float>(d)) * LaneDot<float>(d, g, of_x);
    for (size_t i = 0; i < d; ++i) {
      const float dx_i = NormGradientOf(r, c, x(t, i), g(i), rounding);
      dweight[i] = std::fma(dy(t, i) * x(t, i), r, dweight[i]);
      dx(t, i) = add ? Rounded(dx(t, i) + dx_i, rounding) : dx_i;
    }
  }
}

void RmsNormBackward(const RmsNormGradient& gradient) {
  const size_t rows = gradient.x.rows();
  const size_t cols = gradient.x.cols();
  const size_t leaves = (rows + kTokenLeaf - 1) / kTokenLeaf;
  Matrix<float> partial(cols, leaves);
  std::vector<float> dweight(cols);
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    const size_t first = leaf * kTokenLeaf;
    RmsNormBackwardLeaf(
        gradient.Rows(first, std::min(kTokenLeaf, rows - first), dweight));
    for (size_t i = 0; i < cols; ++i) partial(i, leaf) = dweight[i];
  }
  for (size_t i = 0; i < cols; ++i) {
    gradient.dweight[i] = AlignedTreeSum(partial.Row(i), leaves);
  }
}

void ApplyRope(const HeadColumns<float>& x, const RopeAngles& angles,
               Rounding rounding) {
  const auto& [positions, cos, sin, inverse] = angles;
  for (size_t t = 0; t < x.rows(); ++t) {
    const auto position = static_cast<size_t>(positions[t]);
    for (size_t h = 0; h < x.heads; ++h) {
      float* head = x.Row(t, h);
      for (size_t i = 0; i < cos.cols(); ++i) {
        const float c = cos(position, i);
        const float s = inverse ? -sin(position, i) : sin(position, i);
        Rotate(c, s, rounding, head + 2 * i);
      }
    }
  }
}

void CopyHeads(const HeadColumns<const float>& from,
               const HeadColumns<float>& to) {
  for (size_t t = 0; t < to.rows(); ++t) {
    for (size_t h = 0; h < to.heads; ++h) {
      std::copy_n(from.Row(t, h), to.width, to.Row(t, h));
    }
  }
}

void SumHeads(const HeadColumns<const float>& from, Rounding rounding,
              MatrixView<float> out) {
  for (size_t t = 0; t < out.rows(); ++t) {
    float* sum = out.Row(t);
    std::fill_n(sum, out.cols(), 0.0f);
    for (size_t h = 0; h < from.heads; ++h) {
      const float* row = from.Row(t, h);
      for (size_t i = 0; i < out.cols(); ++i) sum[i] += row[i];
    }
    for (size_t i = 0; i < out.cols(); ++i) sum[i] = Rounded(sum[i], rounding);
  }
}

void CausalSoftmaxForward(size_t first_length, MatrixView<float> p,
                          float scale) {
  for (size_t i = 0; i < p.rows(); ++i) {
    const size_t length = std::min(first_length + i, p.cols());
    float* row = p.Row(i);
    SoftmaxRow(row, length, scale, row);
    std::fill(row + length, row + p.cols(), 0.0f);
  }
}

void CausalSoftmaxBackward(size_t first_length, MatrixView<const float> p,
                           MatrixView<const float> read, float scale,
                           MatrixView<float> dp) {
  for (size_t i = 0; i < p.rows(); ++i) {
    const size_t length = std::min(first_length + i, p.cols());
    float* row = dp.Row(i);
    const float mean = RowDot({row, length}, {read.Row(i), length});
    for (size_t j = 0; j < length; ++j) {
      row[j] = scale * (p(i, j) * (row[j] - mean));
    }
    std::fill(row + length, row + p.cols(), 0.0f);
  }
}

void RowSoftmax(MatrixView<const float> x, MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    SoftmaxRow(x.Row(t), x.cols(), 1.0f, out.Row(t));
  }
}

void ElementSigmoid(MatrixView<const float> x, MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t j = 0; j < x.cols(); ++j) out(t, j) = Sigmoid(x(t, j));
  }
}

void SwigluForward(MatrixView<const float> gate, MatrixView<const float> up,
                   Rounding rounding, MatrixView<float> h) {
  for (size_t t = 0; t < gate.rows(); ++t) {
    for (size_t j = 0; j < gate.cols(); ++j) {
      h(t, j) = SwigluOf(gate(t, j), up(t, j), rounding);
    }
  }
}

void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dh, Rounding rounding,
                    MatrixView<float> dgate, MatrixView<float> dup) {
  for (size_t t = 0; t < gate.rows(); ++t) {
    for (size_t j = 0; j < gate.cols(); ++j) {
      const auto [dgate_j, dup_j] =
          SwigluGradientOf(gate(t, j), up(t, j), dh(t, j), rounding);
      dgate(t, j) = dgate_j;
      dup(t, j) = dup_j;
    }
  }
}

void CrossEntropy(MatrixView<const float> logits,
                  std::span<const int32_t> labels, float grad_scale,
                  Rounding rounding, std::span<float> loss,
                  MatrixView<float> dlogits) {
  const size_t v = logits.cols();
  std::vector<float> e(v);
  for (size_t t = 0; t < logits.rows(); ++t) {
    const bool ignored = labels[t] == kIgnoredLabel;
    if (ignored) {
      loss[t] = 0.0f;
      if (!dlogits.empty()) std::fill_n(dlogits.Row(t), v, 0.0f);
      continue;
    }
    const auto label = static_cast<size_t>(labels[t]);
    const float max = RowMax(logits.Row(t), v);
    const float sum =
        ShiftedExponentials(logits.Row(t), v, max, 1.0f, e.data());
    loss[t] = Log(sum) + (max - logits(t, label));
    if (dlogits.empty()) continue;
    const float scale = grad_scale / sum;
    for (size_t j = 0; j < v; ++j) {
      dlogits(t, j) =
          LogitGradientOf(e[j], scale, grad_scale, j == label, rounding);
    }
  }
}

void Add(MatrixView<const float> x, MatrixView<const float> y,
         Rounding rounding, MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t j = 0; j < x.cols(); ++j) {
      out(t, j) = Rounded(x(t, j) + y(t, j), rounding);
    }
  }
}

void Subtract(MatrixView<const float> x, MatrixView<const float> y,
              MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t j = 0; j < x.cols(); ++j) out(t, j) = x(t, j) - y(t, j);
  }
}

void Cast(MatrixView<const float> source, Rounding rounding,
          MatrixView<float> out) {
  for (size_t t = 0; t < source.rows(); ++t) {
    for (size_t j = 0; j < source.cols(); ++j) {
      out(t, j) = Rounded(source(t, j), rounding);
    }
  }
}

void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out) {
  for (size_t t = 0; t < out.rows(); ++t) {
    for (size_t j = 0; j < out.cols(); ++j) {
      out(t, j) = CombinedOf(
          index.cols(),
          [&](size_t k) { return rows(static_cast<size_t>(index(t, k)), j); },
          weights.empty() ? nullptr : weights.Row(t),
          addend.empty() ? nullptr : &addend(t, j), rounding);
    }
  }
}

void GatherCombineBackward(MatrixView<const float> rows,
                           MatrixView<const int32_t> index,
                           MatrixView<const float> weights,
                           MatrixView<const float> dout, Rounding rounding,
                           MatrixView<float> drows,
                           MatrixView<float> dweights) {
  const size_t d = dout.cols();
  for (size_t t = 0; t < dout.rows(); ++t) {
    for (size_t k = 0; k < index.cols(); ++k) {
      const auto r = static_cast<size_t>(index(t, k));
      dweights(t, k) = RowDot({dout.Row(t), d}, {rows.Row(r), d});
      for (size_t j = 0; j < d; ++j) {
        drows(r, j) =
            Rounded(std::fma(weights(t, k), dout(t, j), 0.0f), rounding);
      }
    }
  }
}

void AdamWUpdate(std::span<float> parameter, std::span<float> first_moment,
                 std::span<float> second_moment,
                 std::span<const float> gradient, const AdamWScalars& scalars) {
  for (size_t i = 0; i < parameter.size(); ++i) {
    UpdateByAdamW(scalars, gradient[i], parameter[i], first_moment[i],
                  second_moment[i]);
  }
}

void MeasuredAdamWUpdate(const MeasuredAdamW& update) {
  const size_t size = update.parameter.size();
  const std::vector<float> before(update.parameter.begin(),
                                  update.parameter.end());
  AdamWUpdate(update.parameter, update.first_moment, update.second_moment,
              update.gradient, update.scalars);
  std::vector<float> change(size);
  for (size_t i = 0; i < size; ++i) change[i] = update.parameter[i] - before[i];
  for (size_t first = 0; first < size; first += kSquaresLeaf) {
    const size_t count = std::min(kSquaresLeaf, size - first);
    const size_t leaf = first / kSquaresLeaf;
    update.parameter_squares[leaf] =
        SumOfSquaresLeaf(std::span(before).subspan(first, count));
    update.update_squares[leaf] =
        SumOfSquaresLeaf(std::span(change).subspan(first, count));
  }
  if (update.keeps_parameter) {
    std::copy(before.begin(), before.end(), update.gradient.begin());
  }
}

float FiniteAmax(MatrixView<const float> values, Rounding rounding) {
  float largest = 0;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      largest = LargerFinite(largest, values(i, j), rounding);
    }
  }
  return largest;
}

double SumOfSquaresLeaf(std::span<const float> values) {
  const auto x = [&](size_t i) { return static_cast<double>(values[i]); };
  return LaneDot<double>(values.size(), x, x);
}

double SumOfSquares(std::span<const float> values) {
  std::vector<double> leaves;
  for (size_t i = 0; i < values.size(); i += kSquaresLeaf) {
    leaves.push_back(SumOfSquaresLeaf(
        values.subspan(i, std::min(kSquaresLeaf, values.size() - i))));
  }
  return AlignedTreeSum(leaves.data(), leaves.size());
}

}  // namespace isoloss::kernels::scalar
