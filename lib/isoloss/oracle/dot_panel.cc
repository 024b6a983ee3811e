#include "isoloss/oracle/dot_panel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/reach.h"

namespace isoloss::oracle {
namespace {

/// Returns the least power of two that is not below a normal number > 0.
double PowerAtOrAbove(double size) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  // A carry out of the fraction raises the exponent.
  return std::bit_cast<double>((std::bit_cast<uint64_t>(size) + kFraction) &
                               ~kFraction);
}

/// Returns the dot product of two rows whose terms are multiples of `unit`. Its
/// sums are at [i, j].
Estimate DotOf(const float* left, const float* right, size_t depth, double unit,
               const TermSums& sums, size_t i, size_t j) {
  const double size = sums.size[i][j];
  // Near FP32's limits Dot goes through the terms one by one.
  if (!(size <= kMostSize && unit >= kTiny)) return Dot(left, right, depth);
  const auto n = static_cast<double>(depth);
  const double squares = sums.squares[i][j];
  const double spacing = size > 0.0 ? Ulp(sums.largest[i][j]) : 0.0;
  const double others = n / 12.0 * spacing * spacing;
  // If the ascending order rounded, some order rounds. None does if all terms
  // are multiples of a unit of which `size` has at most 2^24.
  const bool rounds =
      others > squares && size > unit * 0x1p24 &&
      (squares > 0.0 ||
       !AreMultiples(PowerAtOrAbove(size) * 0x1p-24, left, right, depth));
  return {.exact = sums.exact[i][j],
          .bound = Gamma(depth) * size + (size > 0.0 ? n * kTiny : 0.0),
          .noise = std::sqrt(rounds ? others : squares)};
}

/// Returns the lanes whose value is `want`. If there is an addend, it is their
/// sum, and no rounding of this can flip.
unsigned RightLanes(const double* want, const float* addend,
                    const float* values, size_t count) {
  unsigned right = 0;
  for (size_t j = 0; j < count; ++j) {
    bool is_right = want[j] == static_cast<double>(values[j]);
    if (addend != nullptr) {
      const Reach sum = Exactly(want[j] + static_cast<double>(addend[j]));
      is_right = IsFarFromFlips(values[j], Rounded32(sum));
    }
    right |= (is_right ? 1u : 0u) << j;
  }
  return right;
}

}  // namespace

DotSide::DotSide(MatrixView<const float> values) : rows(values) {
  facts.reserve(rows.rows());
  for (size_t row = 0; row < rows.rows(); ++row) {
    facts.push_back(FactsOf(rows.Row(row), rows.cols()));
  }
}

void DotPanel::Pack(const DotSide& b, size_t first, size_t begin, size_t end) {
  b_ = &b;
  first_ = first;
  begin_ = begin;
  count_ = std::min(kDotLanes, b.rows.rows() - first);
  const size_t depth = end - begin;
  steps_.ResizeUninitialized(depth, kDotLanes);
  const float* rows[kDotLanes];
  for (size_t j = 0; j < kDotLanes; ++j) {
    // The first row stands in for missing rows.
    const size_t row = first + (j < count_ ? j : 0);
    rows[j] = b.rows.Row(row) + begin;
    const RowFacts& facts = b.facts[row];
    facts_.lowest_bit[j] = facts.lowest_bit;
    facts_.largest[j] = facts.largest;
    facts_.norm[j] = facts.norm;
    facts_.block_norm[j] = facts.block_norm;
  }
  PackLanes(rows, steps_.view());
  scratch_.resize(kDotRows * depth);
}

/// The last row stands in for missing rows.
std::array<const float*, kDotRows> DotPanel::RowsFrom(const DotSide& a,
                                                      size_t first) const {
  std::array<const float*, kDotRows> rows;
  for (size_t i = 0; i < kDotRows; ++i) {
    rows[i] = a.rows.Row(std::min(first + i, a.rows.rows() - 1)) + begin_;
  }
  return rows;
}

void DotPanel::Dots(const DotSide& a, size_t first, DotEstimates& out) {
  SumTerms(RowsFrom(a, first).data(), steps_.view(), scratch_.data(), sums_);
  const size_t rows = std::min(kDotRows, a.rows.rows() - first);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < count_; ++j) {
      out[i][j] = DotOf(a.rows.Row(first + i) + begin_,
                        b_->rows.Row(first_ + j) + begin_, steps_.rows(),
                        a.facts[first + i].lowest_bit * facts_.lowest_bit[j],
                        sums_, i, j);
    }
  }
}

void DotPanel::RoughDots(const DotSide& a, size_t first, DotEstimates& out) {
  SumExactly(RowsFrom(a, first).data(), steps_.view(), scratch_.data(), exact_);
  const size_t rows = std::min(kDotRows, a.rows.rows() - first);
  const auto n = static_cast<double>(steps_.rows());
  const double roundings = std::sqrt(n / 12.0);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < count_; ++j) {
      const double size = a.facts[first + i].norm * facts_.norm[j];
      out[i][j] = {.exact = exact_.exact[i][j],
                   .bound = Gamma(steps_.rows()) * size + n * kTiny,
                   .noise = roundings * Ulp(exact_.highest[i][j])};
    }
  }
}

void DotPanel::RoundedDots(const DotSide& a, size_t first, size_t end,
                           std::vector<Estimate>& out) {
  // Bounds on partial sums hold for runs that begin where the row begins.
  ISOLOSS_ASSERT(begin_ % kPrefixTerms == 0);
  out.resize((end - first) * kDotLanes);
  std::vector<DotPairs::Pair> unsure;
  for (size_t begin = first; begin < end; begin += kDotRows) {
    SumExactly(RowsFrom(a, begin).data(), steps_.view(), scratch_.data(),
               exact_);
    for (size_t row = begin; row < std::min(begin + kDotRows, end); ++row) {
      alignas(64) double want[kDotLanes];
      const unsigned sure = RoundsSurely(
          exact_.exact[row - begin], a.facts[row], facts_, steps_.rows(), want);
      for (size_t j = 0; j < count_; ++j) {
        out[(row - first) * kDotLanes + j] = {.exact = want[j]};
        if ((sure >> j & 1) == 0) unsure.emplace_back(row, first_ + j);
      }
    }
  }
  std::vector<Estimate> estimates;
  pairs_.Dots(a, *b_, begin_, begin_ + steps_.rows(), unsure, estimates);
  for (size_t n = 0; n < unsure.size(); ++n) {
    const auto [row, column] = unsure[n];
    out[(row - first) * kDotLanes + column - first_] = estimates[n];
  }
}

void DotPanel::FindUncertain(const DotSide& a, MatrixView<const float> values,
                             MatrixView<const float> addend,
                             std::vector<DotPairs::Pair>& uncertain) {
  // Bounds on partial sums hold for runs that begin where the row begins.
  ISOLOSS_ASSERT(begin_ % kPrefixTerms == 0);
  uncertain.clear();
  const unsigned all = (1u << count_) - 1;
  for (size_t first = 0; first < a.rows.rows(); first += kDotRows) {
    SumExactly(RowsFrom(a, first).data(), steps_.view(), scratch_.data(),
               exact_);
    const size_t rows = std::min(kDotRows, a.rows.rows() - first);
    for (size_t i = 0; i < rows; ++i) {
      alignas(64) double want[kDotLanes];
      const unsigned certain =
          CannotFlip(exact_.exact[i], exact_.highest[i], a.facts[first + i],
                     facts_, steps_.rows(), want);
      const size_t row = first + i;
      const unsigned right =
          RightLanes(want, addend.empty() ? nullptr : addend.Row(row) + first_,
                     values.Row(row) + first_, count_);
      for (unsigned left = all & ~(certain & right); left != 0;
           left &= left - 1) {
        uncertain.emplace_back(
            row, first_ + static_cast<size_t>(std::countr_zero(left)));
      }
    }
  }
}

void DotPairs::Dots(const DotSide& a, const DotSide& b, size_t begin,
                    size_t end, std::span<const Pair> pairs,
                    std::vector<Estimate>& out) {
  out.resize(pairs.size());
  const size_t depth = end - begin;
  left_.ResizeUninitialized(depth, kDotLanes);
  right_.ResizeUninitialized(depth, kDotLanes);
  const float* left[kDotLanes];
  const float* right[kDotLanes];
  for (size_t first = 0; first < pairs.size(); first += kDotLanes) {
    const size_t count = std::min(kDotLanes, pairs.size() - first);
    // Missing lanes compute the first pair again.
    for (size_t n = 0; n < kDotLanes; ++n) {
      const auto [row, column] = pairs[first + (n < count ? n : 0)];
      left[n] = a.rows.Row(row) + begin;
      right[n] = b.rows.Row(column) + begin;
    }
    PackLanes(left, left_.view());
    PackLanes(right, right_.view());
    SumPairs(left_.view(), right_.view(), sums_);
    for (size_t n = 0; n < count; ++n) {
      const auto [row, column] = pairs[first + n];
      out[first + n] = DotOf(
          left[n], right[n], depth,
          a.facts[row].lowest_bit * b.facts[column].lowest_bit, sums_, 0, n);
    }
  }
}

}  // namespace isoloss::oracle
