// Sums of the rows of each token, by their weights, and of what is added.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// What of a combine may be otherwise.
struct CombineRule {
  int weights = 1;                ///< how often rows are multiplied by them
  bool weights_reversed = false;  ///< among the rows of each token
  double routed = 1.0;            ///< how often their sum is added
  double addends = 1.0;           ///< how often the addend is added
  bool bf16_sums = false;
  bool bf16_products = false;
  enum class Skip { kNone, kFirst, kLast } skip = Skip::kNone;
  size_t skip_begin = 0;  ///< rows that are left out
  size_t skip_end = 0;
  bool addend_last = false;
};

/// What one token has in place of its own sum. Rows are places in `rows`.
struct TokenChange {
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  enum class Kind {
    kNone,
    kZero,           ///< nothing
    kRowsMissing,    ///< its addend only
    kAddendMissing,  ///< its rows only
    kOtherToken,     ///< all of `token`
    kOtherRows,      ///< its own addend, and the routed part of `token`
    kOtherAddend,    ///< its own rows, and the addend of `token`
    kRowMissing,     ///< `row` is left out
    kRowTwice,       ///< `row` counts twice
    kRowExtra,       ///< `other`, which belongs to another token, is added
    kRowReplaced,    ///< `other` stands in place of `row`
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
  Grid grid() const { return grid_; }

  Comparison Compare(const CombineRule& rule,
                     const TokenChanges& changes = {}) const {
    Comparison comparison(grid_);
    const MatrixView<const float> output = output_.Rows();
    for (size_t t = 0; t < output.rows(); ++t) {
      const auto found = changes.find(t);
      const TokenChange change =
          found == changes.end() ? TokenChange{} : found->second;
      for (size_t d = 0; d < output.cols(); ++d) {
        comparison.Add(t, d, output(t, d), Sum(rule, t, d, change));
      }
    }
    return comparison;
  }

  /// Factors of the routed part, the addend and both.
  std::vector<Fit> Fits() const;
  /// What explains each token that has others, if one change does.
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
    double product = rule.routed * static_cast<double>(rows_(row, column));
    for (int i = 0; weights_ != nullptr && i < rule.weights; ++i) {
      product *= static_cast<double>(weights_->values[weight]);
    }
    return rule.bf16_products
               ? static_cast<double>(RoundTo(Grid::kBf16, product))
               : product;
  }
  double Addend(size_t token, size_t column) const {
    return addend_ == nullptr
               ? 0.0
               : static_cast<double>(addend_->Rows()(token, column));
  }

  /// Any order of FP32: each of n terms is rounded once as a product and takes
  /// part in n additions at most; a factor of the rows is rounded twice. Sums
  /// in BF16 have the order of rows.
  Estimate Sum(const CombineRule& rule, size_t token, size_t column,
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
        sum = static_cast<double>(RoundTo(Grid::kBf16, sum));
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
          rule.weights_reversed ? rows[rows.size() - 1 - i] : row;
      add((is_changed ? 2.0 : 1.0) * Product(rule, row, weight, column));
    }
    if (change.other != TokenChange::kNone) {
      add(Product(rule, change.other, change.other, column));
    }
    if (rule.addend_last) sum += addend;
    if (rule.bf16_sums) return {.exact = sum};
    return Around(sum, size, terms + 1);
  }

  /// Whether all elements of a token are what `change` gives. Takes what that
  /// costs from `left`.
  bool Explains(size_t token, const TokenChange& change, int64_t& left) const;
  std::optional<TokenChange> ChangeOf(size_t token, int64_t& left) const;

  const MatrixView<const float> rows_;
  const Integers& source_;
  const Floats* weights_;
  const Floats* addend_;
  const Floats& output_;
  const Grid grid_;
  std::vector<std::vector<size_t>> of_token_;
};

std::vector<Fit> Combine::Fits() const {
  LeastSquares routed, addend, both;
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t d = 0; d < rows_.cols(); ++d) {
      const auto output = static_cast<double>(output_.Rows()(t, d));
      const double once = Addend(t, d);
      const double rows = Sum({}, t, d).exact - once;
      routed.Add(rows, output - once);
      addend.Add(once, output - rows);
      both.Add(rows + once, output);
    }
  }
  const auto fit = [this](const char* name, const LeastSquares& sums,
                          const char* sentence, bool of_rows, bool of_addend) {
    return Fit{.name = name,
               .sums = sums,
               .sentence =
                   [sentence](double factor) {
                     return fmt::format(fmt::runtime(sentence), factor);
                   },
               .compare =
                   [this, of_rows, of_addend](double factor) {
                     CombineRule rule;
                     if (of_rows) rule.routed = factor;
                     if (of_addend) rule.addends = factor;
                     return Compare(rule);
                   }};
  };
  std::vector<Fit> fits = {
      fit("routed_scaled", routed,
          "the routed part was {:.9g} times what weights and rows give", true,
          false)};
  if (addend_ == nullptr) return fits;
  fits.push_back(fit("addend_scaled", addend,
                     "the addend was added {:.9g} times", false, true));
  fits.push_back(fit("output_scaled", both,
                     "the output was {:.9g} times what addend, weights and "
                     "rows give",
                     true, true));
  return fits;
}

bool Combine::Explains(size_t token, const TokenChange& change,
                       int64_t& left) const {
  for (size_t d = 0; d < rows_.cols(); ++d) {
    left -= static_cast<int64_t>(of_token_[token].size()) + 2;
    if (left < 0) return false;
    const Estimate sum = Sum({}, token, d, change);
    const float value = output_.Rows()(token, d);
    if (!(RoundTo(grid_, sum.exact - sum.bound) <= value &&
          value <= RoundTo(grid_, sum.exact + sum.bound))) {
      return false;
    }
  }
  return true;
}

/// Those of its own rows first, since they need the fewest assumptions.
std::optional<TokenChange> Combine::ChangeOf(size_t token,
                                             int64_t& left) const {
  using Kind = TokenChange::Kind;
  const auto explains = [&](const TokenChange& change) {
    return Explains(token, change, left);
  };
  TokenChange change;
  for (const Kind kind :
       {Kind::kZero, Kind::kRowsMissing, Kind::kAddendMissing}) {
    change = {.kind = kind};
    if (explains(change)) return change;
  }
  const std::vector<size_t>& rows = of_token_[token];
  for (const Kind kind : {Kind::kRowMissing, Kind::kRowTwice}) {
    for (const size_t row : rows) {
      change = {.kind = kind, .row = row};
      if (explains(change)) return change;
    }
  }
  for (const Kind kind :
       {Kind::kOtherToken, Kind::kOtherRows, Kind::kOtherAddend}) {
    for (size_t other = 0; other < tokens(); ++other) {
      change = {.kind = kind, .token = other};
      if (other != token && !of_token_[other].empty() && explains(change)) {
        return change;
      }
    }
  }
  for (size_t other = 0; other < rows_.rows(); ++other) {
    if (TokenOf(other) == token) continue;
    change = {.kind = Kind::kRowExtra, .other = other};
    if (explains(change)) return change;
    for (const size_t row : rows) {
      change = {.kind = Kind::kRowReplaced, .row = row, .other = other};
      if (explains(change)) return change;
    }
  }
  return std::nullopt;
}

TokenChanges Combine::Changes(const std::vector<bool>& wrong) const {
  TokenChanges changes;
  // Fewer columns match by chance.
  constexpr size_t kFewestColumns = 4;
  if (rows_.cols() < kFewestColumns) return changes;
  int64_t left = int64_t{1} << 26;
  for (size_t t = 0; t < wrong.size() && left > 0; ++t) {
    if (!wrong[t]) continue;
    if (const auto change = ChangeOf(t, left)) changes[t] = *change;
  }
  return changes;
}

struct CombineMistake {
  const char* name;
  const char* sentence;
  CombineRule rule;
  bool needs_weights = false;
  bool needs_addend = false;
};
const CombineMistake kCombineMistakes[] = {
    {"sums_bf16",
     "sums were rounded to BF16 on the way",
     {.bf16_sums = true, .bf16_products = false}},
    {"sums_and_products_bf16",
     "products and sums were rounded to BF16 on the way",
     {.bf16_sums = true, .bf16_products = true}},
    {"sums_bf16_addend_last",
     "sums were rounded to BF16 on the way, and the addend came last",
     {.bf16_sums = true, .addend_last = true},
     false,
     true},
    {"products_and_sums_bf16_addend_last",
     "products and sums were rounded to BF16, and the addend came last",
     {.bf16_sums = true, .bf16_products = true, .addend_last = true},
     false,
     true},
    {"products_bf16",
     "products of weights and rows were rounded to BF16",
     {.bf16_products = true}},
    {"slot_missing_first",
     "the first row of each token was left out",
     {.skip = CombineRule::Skip::kFirst}},
    {"slot_missing_last",
     "the last row of each token was left out",
     {.skip = CombineRule::Skip::kLast}},
    {"weight_missing",
     "rows were added without their weights",
     {.weights = 0},
     true},
    {"weights_twice",
     "rows were multiplied by their weights twice",
     {.weights = 2},
     true},
    {"weights_reversed",
     "rows of each token had the weights of its rows in reverse order",
     {.weights_reversed = true},
     true},
    {"addend_missing", "the addend was not added", {.addends = 0}, false, true},
    {"addend_twice", "the addend was added twice", {.addends = 2}, false, true},
};

/// Each expert's rows left out, if it is known which they are.
constexpr size_t kMostExperts = 256;

std::vector<Trial> CombineTrials(const Combine& combine,
                                 const Integers* group_ends) {
  std::vector<Trial> trials;
  for (const CombineMistake& mistake : kCombineMistakes) {
    if (mistake.needs_weights && !combine.has_weights()) continue;
    if (mistake.needs_addend && !combine.has_addend()) continue;
    trials.push_back({mistake.name, mistake.sentence, [&combine, &mistake] {
                        return std::optional(combine.Compare(mistake.rule));
                      }});
  }
  if (group_ends == nullptr || group_ends->values.size() > kMostExperts) {
    return trials;
  }
  int64_t begin = 0;
  for (size_t e = 0; e < group_ends->values.size(); ++e) {
    CombineRule rule;
    rule.skip_begin = static_cast<size_t>(begin);
    rule.skip_end = static_cast<size_t>(group_ends->values[e]);
    begin = group_ends->values[e];
    if (rule.skip_begin == rule.skip_end) continue;
    trials.push_back(
        {"expert_missing",
         "the rows of expert " + std::to_string(e) + " were left out",
         [&combine, rule] { return std::optional(combine.Compare(rule)); }});
  }
  return trials;
}

// ---- rows of single tokens --------------------------------------------------

/// Name, and the sentence of all tokens: {0} is "s" of several, {1} lists them,
/// {2} the tokens whose parts they have. Empty: one of each token.
struct TokenChangeText {
  TokenChange::Kind kind;
  const char* name;
  const char* sentence;
};
constexpr TokenChangeText kTokenChangeTexts[] = {
    {TokenChange::Kind::kZero, "token_zero", "output of token{0} {1} is zero"},
    {TokenChange::Kind::kRowsMissing, "rows_missing",
     "all rows of token{0} {1} were left out"},
    {TokenChange::Kind::kAddendMissing, "addend_missing",
     "the addend of token{0} {1} was not added"},
    {TokenChange::Kind::kOtherToken, "wrong_token",
     "output of token{0} {1} is that of token{0} {2}"},
    {TokenChange::Kind::kOtherRows, "wrong_token",
     "the routed part of token{0} {1} is that of token{0} {2}"},
    {TokenChange::Kind::kOtherAddend, "wrong_addend",
     "the addend of token{0} {1} is that of token{0} {2}"},
    {TokenChange::Kind::kRowMissing, "row_missing", ""},
    {TokenChange::Kind::kRowTwice, "row_twice", ""},
    {TokenChange::Kind::kRowExtra, "wrong_row", ""},
    {TokenChange::Kind::kRowReplaced, "wrong_row", ""},
};

std::string SentenceOfRow(const Combine& combine, size_t token,
                          const TokenChange& change) {
  using Kind = TokenChange::Kind;
  if (change.kind == Kind::kRowMissing) {
    return fmt::format("token {} lacks row {} times its weight", token,
                       change.row);
  }
  if (change.kind == Kind::kRowTwice) {
    return fmt::format("token {} counts row {} twice", token, change.row);
  }
  const std::string extra = fmt::format("row {} of token {}", change.other,
                                        combine.TokenOf(change.other));
  return change.kind == Kind::kRowExtra
             ? fmt::format("token {} has {} besides its own", token, extra)
             : fmt::format("token {} has {} in place of its row {}", token,
                           extra, change.row);
}

/// "": no token has it.
std::string SentenceOf(const Combine& combine, const TokenChangeText& text,
                       const TokenChanges& changes) {
  std::vector<size_t> tokens, others;
  std::vector<std::string> each;
  const bool of_rows = *text.sentence == '\0';
  for (const auto& [token, change] : changes) {
    if (change.kind != text.kind) continue;
    tokens.push_back(token);
    others.push_back(change.token);
    if (of_rows) each.push_back(SentenceOfRow(combine, token, change));
  }
  if (tokens.empty()) return "";
  if (!of_rows) {
    return fmt::format(fmt::runtime(text.sentence),
                       tokens.size() == 1 ? "" : "s", FirstFew(tokens),
                       FirstFew(others));
  }
  constexpr size_t kFew = 4;
  each.resize(std::min(each.size(), kFew));
  return fmt::format(
      "{}{}", fmt::join(each, ", "),
      tokens.size() > kFew
          ? fmt::format(", and {} more such tokens", tokens.size() - kFew)
          : "");
}

std::vector<Trial> RowTrials(const Combine& combine,
                             const std::vector<bool>& wrong) {
  const TokenChanges changes = combine.Changes(wrong);
  if (changes.empty()) return {};
  std::string name;
  std::vector<std::string> sentences;
  for (const TokenChangeText& text : kTokenChangeTexts) {
    std::string sentence = SentenceOf(combine, text, changes);
    if (sentence.empty()) continue;
    if (name.empty()) name = text.name;
    sentences.push_back(std::move(sentence));
  }
  return {{name, fmt::format("{}", fmt::join(sentences, "; ")),
           [&combine, changes] {
             return std::optional(combine.Compare({}, changes));
           }}};
}

}  // namespace

void CheckCombine(const OperationCase& given, const Integers* group_ends,
                  std::vector<Finding>& findings) {
  const Combine combine(given);
  Finding finding = FindingOf(given, "output", "output", combine.Compare({}));
  finding.places = PlacesOf(finding.comparison, combine.tokens(), "tokens");
  Explain(CombineTrials(combine, group_ends), finding, [&] {
    std::vector<Trial> trials = Confirmed(combine.Fits());
    std::ranges::move(RowTrials(combine, finding.comparison.wrong_rows()),
                      std::back_inserter(trials));
    return trials;
  });
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
