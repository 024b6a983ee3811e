#include "isoloss/oracle/scalar_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/oracle/dot_panel.h"

namespace isoloss::oracle {
namespace {

using Rounding = decltype(precision::Recipe::activation);

Grid OuterGrid(const precision::GemmPrecision& precision) {
  return precision.accumulation.outer == Rounding::kBf16 ? Grid::kBf16
                                                         : Grid::kFp32;
}

}  // namespace

/// Adds up one output element, piece by piece.
class ScalarProduct::PieceSum {
 public:
  PieceSum(Grid outer, size_t pieces) : outer_(outer), pieces_(pieces) {}

  /// `factor` is the rounded product of `factors` scales.
  void Add(bool begins_segment, const Estimate& part, float factor,
           size_t factors) {
    Estimate scaled = part * static_cast<double>(factor);
    if (factors > 0) {
      scaled = Rounded32(scaled);
      // A sum without any rounding has few bits, so that errors may lean.
      if (part.noise == 0.0 && !FitsFp32(scaled.exact)) {
        scaled.lean = kScaledLean * Ulp(scaled.exact);
      }
    }
    if (factors > 1) {
      // If one factor is applied after another, one more product is rounded.
      scaled.bound += Gamma(1) * (std::fabs(scaled.exact) + scaled.bound);
    }
    if (begins_segment && segments_++ > 0) CloseSegment();
    largest_ += std::fabs(scaled.exact) + scaled.bound;
    if (begins_segment) {
      segment_ = scaled;
    } else {
      segment_ = outer_ == Grid::kBf16 ? Rounded32(segment_ + scaled)
                                       : WithNoise(segment_ + scaled);
    }
    segment_ = RoundedOnTheWay(outer_, segment_);
  }

  Estimate Finish() {
    CloseSegment();
    if (largest_ > 0.0 && pieces_ > 1) {
      total_.bound +=
          Gamma(pieces_) * largest_ + static_cast<double>(pieces_) * kTiny;
    }
    return total_;
  }

 private:
  /// Adds the noise of one FP32 addition; Finish adds the bound.
  static Estimate WithNoise(Estimate sum) {
    const bool fits = sum.noise == 0.0 && FitsFp32(sum.exact);
    if (!fits && std::isfinite(sum.exact)) {
      sum.noise =
          RootOfSquares(sum.noise, std::sqrt(1.0 / 12.0) * Ulp(sum.exact));
    }
    return sum;
  }
  void CloseSegment() {
    total_ = closed_++ == 0 ? segment_ : WithNoise(total_ + segment_);
  }

  Grid outer_;
  size_t pieces_;
  size_t segments_ = 0;
  size_t closed_ = 0;
  Estimate segment_;
  Estimate total_;
  double largest_ = 0.0;  ///< M of ScalarProduct::ForEach
};

namespace {

/// Adds sums of segments up the tree whose left parts are the largest powers of
/// two.
float TreeSum(std::span<const float> sums) {
  if (sums.empty()) return 0.0f;
  if (sums.size() == 1) return sums[0];
  size_t left = 1;
  while (2 * left < sums.size()) left *= 2;
  return TreeSum(sums.first(left)) + TreeSum(sums.subspan(left));
}

}  // namespace

ScalarProduct::ScalarProduct(const ScalarOperand& a, const ScalarOperand& b,
                             const precision::GemmPrecision& precision,
                             std::span<const size_t> segment_ends)
    : precision_(precision),
      pieces_(PiecesOf(a.quantization, b.quantization,
                       precision.accumulation.interval, segment_ends,
                       a.down ? a.values.rows() : a.values.cols())),
      core_(precision.accumulation.accumulator == nullptr
                ? nullptr
                : &TensorCoreByName(precision.accumulation.accumulator->name)),
      a_(PrepareSide(a, pieces_, core_)),
      b_(PrepareSide(b, pieces_, core_)) {}

bool ScalarProduct::IsPlain() const {
  return precision_.accumulation == decltype(precision_.accumulation){} &&
         a_.factors.size() == 0 && b_.factors.size() == 0;
}

void ScalarProduct::ForEach(const Use& use) const {
  if (has_bits()) {
    for (size_t i = 0; i < rows(); ++i) {
      for (size_t j = 0; j < cols(); ++j) {
        use(i, j, {.exact = static_cast<double>(Bits(i, j))});
      }
    }
  } else if (IsPlain()) {
    ForEachPlain(use);
  } else {
    ForEachScaled(use);
  }
}

void ScalarProduct::ForEachPlain(const Use& use) const {
  const DotSide a(a_.values.view());
  const DotSide b(b_.values.view());
  DotPanel panel;
  DotEstimates dots;
  for (size_t first = 0; first < cols(); first += kDotLanes) {
    panel.Pack(b, first);
    for (size_t i = 0; i < rows(); i += kDotRows) {
      panel.Dots(a, i, dots);
      for (size_t n = i; n < std::min(i + kDotRows, rows()); ++n) {
        for (size_t j = 0; j < panel.count(); ++j) {
          use(n, first + j, dots[n - i][j]);
        }
      }
    }
  }
}

void ScalarProduct::ForEachRounded(const Use& use) const {
  if (has_bits() || !IsPlain()) return ForEach(use);
  constexpr size_t kRows = 64;  // their sums stay in a cache
  const DotSide a(a_.values.view());
  const DotSide b(b_.values.view());
  DotPanel panel;
  std::vector<Estimate> dots;
  for (size_t first = 0; first < cols(); first += kDotLanes) {
    panel.Pack(b, first);
    for (size_t i = 0; i < rows(); i += kRows) {
      const size_t end = std::min(i + kRows, rows());
      panel.RoundedDots(a, i, end, dots);
      for (size_t n = i; n < end; ++n) {
        for (size_t j = 0; j < panel.count(); ++j) {
          use(n, first + j, dots[(n - i) * kDotLanes + j]);
        }
      }
    }
  }
}

size_t ScalarProduct::ForEachUncertain(MatrixView<const float> values,
                                       MatrixView<const float> addend,
                                       const Use& use) const {
  if (has_bits() || !IsPlain()) {
    ForEach(use);
    return 0;
  }
  const DotSide a(a_.values.view());
  const DotSide b(b_.values.view());
  DotPanel panel;
  DotPairs some;
  std::vector<DotPairs::Pair> pairs;
  std::vector<Estimate> dots;
  size_t certain = rows() * cols();
  for (size_t first = 0; first < cols(); first += kDotLanes) {
    panel.Pack(b, first);
    panel.FindUncertain(a, values, addend, pairs);
    some.Dots(a, b, 0, a.rows.cols(), pairs, dots);
    for (size_t n = 0; n < pairs.size(); ++n) {
      use(pairs[n].first, pairs[n].second, dots[n]);
    }
    certain -= pairs.size();
  }
  return certain;
}

void ScalarProduct::ForEachOf(std::span<const Place> places, size_t first,
                              const Use& use) const {
  std::vector<DotPairs::Pair> pairs;
  for (const Place& place : places) {
    pairs.emplace_back(place.row - first, place.column);
  }
  if (has_bits()) {
    for (const auto& [i, j] : pairs) {
      use(i, j, {.exact = static_cast<double>(Bits(i, j))});
    }
    return;
  }
  const DotSide a(a_.values.view());
  const DotSide b(b_.values.view());
  DotPairs some;
  std::vector<Estimate> dots;
  if (IsPlain()) {
    some.Dots(a, b, 0, a.rows.cols(), pairs, dots);
    for (size_t n = 0; n < pairs.size(); ++n) {
      use(pairs[n].first, pairs[n].second, dots[n]);
    }
    return;
  }
  std::vector<PieceSum> sums(
      pairs.size(), PieceSum(OuterGrid(precision_), pieces_.pieces.size()));
  for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
    some.Dots(a, b, pieces_.pieces[p].begin, pieces_.pieces[p].end, pairs,
              dots);
    for (size_t n = 0; n < pairs.size(); ++n) {
      AddPiece(p, pairs[n].first, pairs[n].second, dots[n], sums[n]);
    }
  }
  for (size_t n = 0; n < pairs.size(); ++n) {
    use(pairs[n].first, pairs[n].second, sums[n].Finish());
  }
}

/// Adds piece p of the sum of rows i and j.
void ScalarProduct::AddPiece(size_t p, size_t i, size_t j, const Estimate& dot,
                             PieceSum& sum) const {
  const size_t factors = (a_.factors.size() > 0 ? size_t{1} : 0) +
                         (b_.factors.size() > 0 ? size_t{1} : 0);
  const ScalarPieces::Piece& piece = pieces_.pieces[p];
  sum.Add(piece.begin == pieces_.begins[piece.segment], dot,
          a_.Factor(i, p) * b_.Factor(j, p), factors);
}

void ScalarProduct::ForEachScaled(const Use& use) const {
  const PieceSum none(OuterGrid(precision_), pieces_.pieces.size());
  const DotSide a(a_.values.view());
  const DotSide b(b_.values.view());
  DotPanel panel;
  DotEstimates dots;
  for (size_t first = 0; first < cols(); first += kDotLanes) {
    const size_t count = std::min(kDotLanes, cols() - first);
    std::vector<PieceSum> sums(rows() * count, none);
    for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
      panel.Pack(b, first, pieces_.pieces[p].begin, pieces_.pieces[p].end);
      for (size_t i = 0; i < rows(); ++i) {
        if (i % kDotRows == 0) panel.Dots(a, i, dots);
        for (size_t j = 0; j < count; ++j) {
          AddPiece(p, i, first + j, dots[i % kDotRows][j], sums[i * count + j]);
        }
      }
    }
    for (size_t i = 0; i < rows(); ++i) {
      for (size_t j = 0; j < count; ++j) {
        use(i, first + j, sums[i * count + j].Finish());
      }
    }
  }
}

float ScalarProduct::Bits(size_t i, size_t j) const {
  const Grid outer = OuterGrid(precision_);
  const bool scaled = a_.factors.size() > 0 || b_.factors.size() > 0;
  std::vector<float> segments(pieces_.stored_ends.size());
  for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
    const ScalarPieces::Piece& piece = pieces_.pieces[p];
    float& sum = segments[piece.segment];
    const bool begins = piece.begin == pieces_.begins[piece.segment];
    const float part = core_->Dot(a_.Steps(i, piece), b_.Steps(j, piece));
    if (scaled) {
      const float factor = a_.Factor(i, p) * b_.Factor(j, p);
      sum = begins ? part * factor : std::fma(part, factor, sum);
    } else {
      sum = begins ? part : sum + part;
    }
    sum = RoundTo(outer, static_cast<double>(sum));
  }
  return TreeSum(segments);
}

}  // namespace isoloss::oracle
