#include "isoloss/oracle/dot_panel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"

namespace isoloss::oracle {

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
  steps_.Resize(depth, kDotLanes);
  facts_ = {};
  for (size_t j = 0; j < count_; ++j) {
    const float* row = b.rows.Row(first + j) + begin;
    for (size_t k = 0; k < depth; ++k) steps_(k, j) = row[k];
    const RowFacts& facts = b.facts[first + j];
    facts_.lowest_bit[j] = facts.lowest_bit;
    facts_.largest[j] = facts.largest;
    facts_.norm[j] = facts.norm;
    facts_.block_norm[j] = facts.block_norm;
  }
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

/// Returns whether all terms are multiples of 1 / 2^24 of `size` or more, so
/// that no order of adding them rounds.
bool DotPanel::AnyOrderFits(const float* left, const float* right,
                            double size) const {
  for (size_t k = 0; k < steps_.rows(); ++k) {
    const double term =
        static_cast<double>(left[k]) * static_cast<double>(right[k]);
    if (size > LowestBit(term) * 0x1p24) return false;
  }
  return true;
}

Estimate DotPanel::Result(const DotSide& a, size_t row, size_t lane, size_t i,
                          size_t j) const {
  const float* left = a.rows.Row(row) + begin_;
  const float* right = b_->rows.Row(first_ + lane) + begin_;
  const double size = sums_.size[i][j];
  const double unit = a.facts[row].lowest_bit * facts_.lowest_bit[lane];
  // Near FP32's limits Dot goes through the terms one by one.
  if (!(size <= kMostSize && unit >= kTiny)) {
    return Dot(left, right, steps_.rows());
  }
  const auto n = static_cast<double>(steps_.rows());
  const double squares = sums_.squares[i][j];
  const double spacing = size > 0.0 ? Ulp(sums_.largest[i][j]) : 0.0;
  const double others = n / 12.0 * spacing * spacing;
  const bool rounds = others > squares && size > unit * 0x1p24 &&
                      !AnyOrderFits(left, right, size);
  return {.exact = sums_.exact[i][j],
          .bound = Gamma(steps_.rows()) * size + (size > 0.0 ? n * kTiny : 0.0),
          .noise = std::sqrt(rounds ? others : squares)};
}

void DotPanel::Dots(const DotSide& a, size_t first, DotEstimates& out) {
  SumTerms(RowsFrom(a, first).data(), steps_.view(), scratch_.data(), sums_);
  const size_t rows = std::min(kDotRows, a.rows.rows() - first);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < count_; ++j) {
      out[i][j] = Result(a, first + i, j, i, j);
    }
  }
}

void DotPanel::RoundedDots(const DotSide& a, size_t first, size_t end,
                           std::vector<Estimate>& out) {
  // Bounds on partial sums hold for runs that begin where the row begins.
  ISOLOSS_ASSERT(begin_ % kPrefixTerms == 0);
  out.resize((end - first) * kDotLanes);
  std::vector<Pair> unsure;
  for (size_t begin = first; begin < end; begin += kDotRows) {
    SumExactly(RowsFrom(a, begin).data(), steps_.view(), scratch_.data(),
               exact_);
    for (size_t row = begin; row < std::min(begin + kDotRows, end); ++row) {
      alignas(64) double want[kDotLanes];
      const unsigned sure = RoundsSurely(
          exact_.exact[row - begin], a.facts[row], facts_, steps_.rows(), want);
      for (size_t j = 0; j < count_; ++j) {
        out[(row - first) * kDotLanes + j] = {.exact = want[j]};
        if ((sure >> j & 1) == 0) unsure.emplace_back(row, j);
      }
    }
  }
  std::vector<Estimate> estimates;
  DotsOf(a, unsure, estimates);
  for (size_t n = 0; n < unsure.size(); ++n) {
    const auto [row, lane] = unsure[n];
    out[(row - first) * kDotLanes + lane] = estimates[n];
  }
}

void DotPanel::FindUncertain(const DotSide& a, MatrixView<const float> values,
                             size_t column, std::vector<Pair>& uncertain) {
  // Bounds on partial sums hold for runs that begin where the row begins.
  ISOLOSS_ASSERT(begin_ % kPrefixTerms == 0);
  uncertain.clear();
  const unsigned all = (1u << count_) - 1;
  for (size_t first = 0; first < a.rows.rows(); first += kDotRows) {
    SumExactly(RowsFrom(a, first).data(), steps_.view(), scratch_.data(),
               exact_);
    const size_t rows = std::min(kDotRows, a.rows.rows() - first);
    for (size_t i = 0; i < rows; ++i) {
      alignas(64) float row[kDotLanes] = {};
      std::copy_n(values.Row(first + i) + column, count_, row);
      const unsigned certain =
          CannotFlip(exact_.exact[i], exact_.highest[i], a.facts[first + i],
                     facts_, steps_.rows(), row);
      for (unsigned left = all & ~certain; left != 0; left &= left - 1) {
        uncertain.emplace_back(first + i,
                               static_cast<size_t>(std::countr_zero(left)));
      }
    }
  }
}

void DotPanel::DotsOf(const DotSide& a, const std::vector<Pair>& pairs,
                      std::vector<Estimate>& out) {
  out.resize(pairs.size());
  const size_t depth = steps_.rows();
  left_.ResizeUninitialized(depth, kDotLanes);
  right_.ResizeUninitialized(depth, kDotLanes);
  for (size_t begin = 0; begin < pairs.size(); begin += kDotLanes) {
    const size_t count = std::min(kDotLanes, pairs.size() - begin);
    // Missing lanes compute the first pair again.
    for (size_t n = 0; n < kDotLanes; ++n) {
      const auto [row, lane] = pairs[begin + (n < count ? n : 0)];
      const float* left = a.rows.Row(row) + begin_;
      const float* right = b_->rows.Row(first_ + lane) + begin_;
      for (size_t k = 0; k < depth; ++k) {
        left_(k, n) = left[k];
        right_(k, n) = right[k];
      }
    }
    SumPairs(left_.view(), right_.view(), sums_);
    for (size_t n = 0; n < count; ++n) {
      const auto [row, lane] = pairs[begin + n];
      out[begin + n] = Result(a, row, lane, 0, n);
    }
  }
}

}  // namespace isoloss::oracle
