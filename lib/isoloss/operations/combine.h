// Compares the sums of each token's weighted rows and addend with the oracle's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"

namespace isoloss::operations {

/// A combine may differ from a right one in these ways.
struct CombineRule {
  int weights = 1;                ///< how often rows are multiplied by weights
  bool weights_reversed = false;  ///< among the rows of each token
  double routed = 1.0;            ///< how often the sum of rows is added
  double addends = 1.0;           ///< how often the addend is added
  bool bf16_sums = false;
  bool bf16_products = false;
  enum class Skip { kNone, kFirst, kLast } skip = Skip::kNone;
  size_t skip_begin = 0;  ///< rows that are left out
  size_t skip_end = 0;
  bool addend_last = false;
  bool bf16_routed = false;  ///< the sum of rows, before the addend
  /// Each place has the row, or row and weight, of the place `shift` after it.
  size_t shift = 0;
  static constexpr size_t kBack = std::numeric_limits<size_t>::max();
  bool shifts_weights = false;
};

/// One token may have this in place of its own sum. Rows are places in `rows`.
struct TokenChange {
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  enum class Kind {
    kNone,
    kZero,             ///< nothing
    kRowsMissing,      ///< only its addend
    kAddendMissing,    ///< only its rows
    kOtherToken,       ///< all of `token`
    kOtherRows,        ///< its own addend, and the routed part of `token`
    kOtherAddend,      ///< its own rows, and the addend of `token`
    kWeightsReversed,  ///< among its rows
    kRowMissing,       ///< `row` is left out
    kRowTwice,         ///< `row` counts twice
    kRowExtra,         ///< `other`, which belongs to another token, is added
    kRowReplaced,      ///< `other` takes the place of `row`
  } kind = Kind::kNone;
  size_t token = kNone;
  size_t row = kNone;
  size_t other = kNone;
};
using TokenChanges = std::map<size_t, TokenChange>;

class Combine {
 public:
  explicit Combine(const OperationCase& given)
      : rows_(given.operation.Find("rows")->Rows()),
        source_(*given.operation.FindIntegers("source")),
        weights_(given.operation.Find("weights")),
        addend_(given.operation.Find("addend")),
        output_(*given.operation.Find("output")),
        grid_(GridOf(output_, "output", given.where)),
        of_token_(output_.extent[0]) {
    for (size_t m = 0; m < source_.values.size(); ++m) {
      of_token_[static_cast<size_t>(source_.values[m])].push_back(m);
    }
  }

  bool has_weights() const { return weights_ != nullptr; }
  bool has_addend() const { return addend_ != nullptr; }
  oracle::Grid grid() const { return grid_; }

  /// `only` marks the tokens to which the rule applies; null: all.
  oracle::Comparison Compare(const CombineRule& rule,
                             const TokenChanges& changes = {},
                             const std::vector<bool>* only = nullptr) const {
    oracle::Comparison comparison(grid_);
    const MatrixView<const float> output = output_.Rows();
    for (size_t t = 0; t < output.rows(); ++t) {
      const auto found = changes.find(t);
      const TokenChange change =
          found == changes.end() ? TokenChange{} : found->second;
      const bool is_meant = only == nullptr || (t < only->size() && (*only)[t]);
      for (size_t d = 0; d < output.cols(); ++d) {
        comparison.Add(t, d, output(t, d),
                       Sum(is_meant ? rule : CombineRule{}, t, d, change));
      }
    }
    return comparison;
  }

  /// Returns fits of the wrong tokens: the routed part, the addend, and both.
  std::vector<Fit> Fits(const std::vector<bool>& wrong) const;
  /// Returns the change that explains each wrong token, if one change does.
  TokenChanges Changes(const std::vector<bool>& wrong) const;
  size_t TokenOf(size_t row) const {
    return static_cast<size_t>(source_.values[row]);
  }
  size_t tokens() const { return of_token_.size(); }

 private:
  bool IsSkipped(const CombineRule& rule, size_t token, size_t row) const {
    const std::vector<size_t>& rows = of_token_[token];
    return (row >= rule.skip_begin && row < rule.skip_end) ||
           (rule.skip == CombineRule::Skip::kFirst && row == rows.front()) ||
           (rule.skip == CombineRule::Skip::kLast && row == rows.back());
  }

  double Product(const CombineRule& rule, size_t row, size_t weight,
                 size_t column) const {
    const size_t count = rows_.rows();
    const size_t from =
        (row + (rule.shift == CombineRule::kBack ? count - 1 : rule.shift)) %
        count;
    double product = rule.routed * static_cast<double>(rows_(from, column));
    for (int i = 0; weights_ != nullptr && i < rule.weights; ++i) {
      product *= static_cast<double>(
          weights_->values[rule.shifts_weights ? from : weight]);
    }
    return rule.bf16_products
               ? static_cast<double>(RoundTo(oracle::Grid::kBf16, product))
               : product;
  }
  double Addend(size_t token, size_t column) const {
    return addend_ == nullptr
               ? 0.0
               : static_cast<double>(addend_->Rows()(token, column));
  }

  /// Allows any order of FP32: each of n terms is rounded once as a product and
  /// takes part in n additions at most; a factor of the rows is rounded twice.
  /// Sums in BF16 have the order of rows.
  oracle::Estimate Sum(const CombineRule& rule, size_t token, size_t column,
                       const TokenChange& change = {}) const {
    using Kind = TokenChange::Kind;
    const bool is_other = change.kind == Kind::kOtherToken;
    const bool has_addend =
        change.kind != Kind::kZero && change.kind != Kind::kAddendMissing;
    const bool has_rows =
        change.kind != Kind::kZero && change.kind != Kind::kRowsMissing;
    const double addend =
        has_addend ? rule.addends *
                         Addend(is_other || change.kind == Kind::kOtherAddend
                                    ? change.token
                                    : token,
                                column)
                   : 0.0;
    double sum = rule.addend_last ? 0.0 : addend;
    double size = std::fabs(addend);
    size_t terms = rule.routed == 1.0 && rule.weights < 2 ? 1 : 3;
    const auto add = [&](double product) {
      sum += product;
      if (rule.bf16_sums) {
        sum = static_cast<double>(RoundTo(oracle::Grid::kBf16, sum));
      }
      size += std::fabs(product);
      ++terms;
    };
    const std::vector<size_t>& rows =
        of_token_[is_other || change.kind == Kind::kOtherRows ? change.token
                                                              : token];
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = rows[i];
      if (!has_rows || IsSkipped(rule, token, row)) continue;
      const bool is_changed = row == change.row;
      if (is_changed && change.kind != Kind::kRowTwice) continue;
      const size_t weight =
          rule.weights_reversed || change.kind == Kind::kWeightsReversed
              ? rows[rows.size() - 1 - i]
              : row;
      add((is_changed ? 2.0 : 1.0) * Product(rule, row, weight, column));
    }
    if (change.other != TokenChange::kNone) {
      add(Product(rule, change.other, change.other, column));
    }
    if (rule.bf16_routed) {
      // `size` includes the addend, which takes part in one addition.
      return RoundedOnTheWay(oracle::Grid::kBf16,
                             Around(sum, size - std::fabs(addend), terms)) +
             Around(addend, size, 1);
    }
    if (rule.addend_last) sum += addend;
    if (rule.bf16_sums) return {.exact = sum};
    return Around(sum, size, terms + 1);
  }

  /// Returns whether `change` gives all of a token. Takes the cost from `left`.
  bool Explains(size_t token, const TokenChange& change, int64_t& left) const;
  std::optional<TokenChange> ChangeOf(size_t token, int64_t& left) const;

  const MatrixView<const float> rows_;
  const Integers& source_;
  const Floats* weights_;
  const Floats* addend_;
  const Floats& output_;
  const oracle::Grid grid_;
  std::vector<std::vector<size_t>> of_token_;
};

/// Returns trials that explain the wrong tokens one by one.
std::vector<Trial> TrialsOfTokens(const Combine& combine,
                                  const std::vector<bool>& wrong);

}  // namespace isoloss::operations
