// Kernels that compute each element, or each few, on its own: bodies of
// ForEachElement. Their definitions are those of kernels/rowwise.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/kernel.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::device {

using kernels::HeadColumns;
using kernels::Rounding;
using Input = MatrixView<const float>;
using Output = MatrixView<float>;

struct CastElement {
  Input source;
  Rounding rounding;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    out(t, j) = kernels::Rounded(source(t, j), rounding);
  }
};

struct AddElement {
  Input x;
  Input y;
  Rounding rounding;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    out(t, j) = kernels::Rounded(x(t, j) + y(t, j), rounding);
  }
};

struct SigmoidElement {
  Input x;
  Output out;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, out.cols());
    out(t, j) = kernels::Sigmoid(x(t, j));
  }
};

struct SwigluElement {
  Input gate;
  Input up;
  Rounding rounding;
  Output h;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, h.cols());
    h(t, j) = kernels::SwigluOf(gate(t, j), up(t, j), rounding);
  }
};

struct SwigluGradientElement {
  Input gate;
  Input up;
  Input dh;
  Rounding rounding;
  Output dgate;
  Output dup;

  constexpr void operator()(size_t i) const {
    const auto [t, j] = PlaceOf(i, dgate.cols());
    const auto gradient =
        kernels::SwigluGradientOf(gate(t, j), up(t, j), dh(t, j), rounding);
    dgate(t, j) = gradient.dgate;
    dup(t, j) = gradient.dup;
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

struct AdamWElement {
  kernels::AdamWScalars scalars;
  const float* gradient;
  float* parameter;
  float* first_moment;
  float* second_moment;

  constexpr void operator()(size_t i) const {
    kernels::UpdateByAdamW(scalars, gradient[i], parameter[i], first_moment[i],
                           second_moment[i]);
  }
};

/// An element is a column of the gradient of a norm's gain within one leaf.
struct GainGradientLeaf {
  Input x;
  Input dy;
  const float* rstd;
  Output leaves;  ///< [leaves, D]

  constexpr void operator()(size_t i) const {
    const auto [leaf, j] = PlaceOf(i, x.cols());
    const size_t first = leaf * kernels::kTokenLeaf;
    const size_t left = x.rows() - first;
    const size_t count =
        left < kernels::kTokenLeaf ? left : kernels::kTokenLeaf;
    float sum = 0.0f;
    for (size_t t = first; t < first + count; ++t) {
      sum = std::fma(dy(t, j) * x(t, j), rstd[t], sum);
    }
    leaves(leaf, j) = sum;
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
