// Kernels that compute each element, or each few, on its own: bodies of
// ForEachElement. Their definitions are those of kernels/rowwise.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::device {

using kernels::HeadColumns;
using kernels::Rounding;
using Input = MatrixView<const float>;
using Output = MatrixView<float>;

/// Sets outputs to function(elements of the inputs, elements of the outputs),
/// element by element, of matrices of one extent. Inputs may be outputs.
template <size_t kInputs, size_t kOutputs, typename Function>
struct MapElements {
  static constexpr size_t kThreads = 256;
  using Shared = NothingShared;

  Function function;
  Input in[kInputs] = {};
  Output out[kOutputs] = {};
  bool has_quads = false;   ///< all rows consist of quads
  size_t parts_of_row = 0;  ///< quads, or elements

  size_t blocks() const {
    return CeilOf(out[0].rows() * parts_of_row, kThreads);
  }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t first = block.index() * kThreads;
    block.Each([this, first](size_t thread) {
      const auto [row, part] = PlaceOf(first + thread, parts_of_row);
      if (row >= out[0].rows()) return;
      if (has_quads) {
        Map<kQuad>(row, part * kQuad);
      } else {
        Map<1>(row, part);
      }
    });
  }

 private:
  template <size_t kWidth>
  constexpr void Map(size_t row, size_t col) const {
    float x[kInputs][kWidth];
    float y[kOutputs][kWidth];
    ISOLOSS_UNROLL
    for (size_t i = 0; i < kInputs; ++i) LoadPart(in[i].Row(row) + col, x[i]);
    ISOLOSS_UNROLL
    for (size_t k = 0; k < kWidth; ++k) {
      float of_x[kInputs];
      float of_y[kOutputs];
      ISOLOSS_UNROLL
      for (size_t i = 0; i < kInputs; ++i) of_x[i] = x[i][k];
      function(of_x, of_y);
      ISOLOSS_UNROLL
      for (size_t i = 0; i < kOutputs; ++i) y[i][k] = of_y[i];
    }
    ISOLOSS_UNROLL
    for (size_t i = 0; i < kOutputs; ++i)
      StorePart(y[i], out[i].Row(row) + col);
  }
};

struct CastOf {
  Rounding rounding;

  constexpr void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = kernels::Rounded(x[0], rounding);
  }
};

struct SumOf {
  Rounding rounding;

  constexpr void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = kernels::Rounded(x[0] + x[1], rounding);
  }
};

struct DifferenceOf {
  constexpr void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[0] - x[1];
  }
};

struct SigmoidOf {
  constexpr void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = kernels::Sigmoid(x[0]);
  }
};

/// x is (gate, up).
struct SwigluOf {
  Rounding rounding;

  constexpr void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = kernels::SwigluOf(x[0], x[1], rounding);
  }
};

/// x is (gate, up, dh), y is (dgate, dup).
struct SwigluGradientOf {
  Rounding rounding;

  constexpr void operator()(const float (&x)[3], float (&y)[2]) const {
    const auto gradient = kernels::SwigluGradientOf(x[0], x[1], x[2], rounding);
    y[0] = gradient.dgate;
    y[1] = gradient.dup;
  }
};

/// x is (gradient, parameter, first moment, second moment), y what becomes of
/// the last three.
struct AdamWOf {
  kernels::AdamWScalars scalars;

  constexpr void operator()(const float (&x)[4], float (&y)[3]) const {
    y[0] = x[1];
    y[1] = x[2];
    y[2] = x[3];
    kernels::UpdateByAdamW(scalars, x[0], y[0], y[1], y[2]);
  }
};

/// An element is a pair of one head of one token.
struct RopePair {
  HeadColumns<float> x;
  const int32_t* positions;
  Input cos;
  Input sin;
  bool inverse;
  Rounding rounding;

  constexpr void operator()(size_t i) const {
    const auto [place, pair] = PlaceOf(i, cos.cols());
    const auto [t, head] = PlaceOf(place, x.heads);
    const auto position = static_cast<size_t>(positions[t]);
    const float s = inverse ? -sin(position, pair) : sin(position, pair);
    kernels::Rotate(cos(position, pair), s, rounding,
                    x.Row(t, head) + 2 * pair);
  }
};

struct CopyHeadElement {
  HeadColumns<const float> from;
  HeadColumns<float> to;

  constexpr void operator()(size_t i) const {
    const auto [place, col] = PlaceOf(i, to.width);
    const auto [t, head] = PlaceOf(place, to.heads);
    to.Row(t, head)[col] = from.Row(t, head)[col];
  }
};

struct SumHeadsElement {
  HeadColumns<const float> from;
  Rounding rounding;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    float sum = 0.0f;
    for (size_t h = 0; h < from.heads; ++h) sum += from.Row(t, h)[j];
    out(t, j) = kernels::Rounded(sum, rounding);
  }
};

struct GatherElement {
  Input table;
  const int32_t* index;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    out(t, j) = table(static_cast<size_t>(index[t]), j);
  }
};

struct CombineElement {
  Input rows;
  MatrixView<const int32_t> index;
  Input weights;
  Input addend;
  Rounding rounding;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    out(t, j) = kernels::CombinedOf(
        index.cols(),
        [this, t = t, j = j](size_t k) {
          return rows(static_cast<size_t>(index(t, k)), j);
        },
        weights.empty() ? nullptr : weights.Row(t),
        addend.empty() ? nullptr : &addend(t, j), rounding);
  }
};

/// An element is a column; its leaves go up the aligned tree.
struct FoldLeaves {
  Input leaves;  ///< [leaves, D]
  float* sums;

  constexpr void operator()(size_t j) const {
    kernels::AlignedFold<float> fold;
    for (size_t leaf = 0; leaf < leaves.rows(); ++leaf) {
      fold.Push(leaves(leaf, j));
    }
    sums[j] = fold.Finish();
  }
};

}  // namespace isoloss::device
