// Explains tokens whose sums lack rows, or have rows of another token.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/operations/combine.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

/// Each text has a name and a sentence about all its tokens: {0} is "s" for
/// several, {1} lists them, {2} lists the tokens whose parts they have. If the
/// sentence is empty, each token gets its own.
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
    {TokenChange::Kind::kWeightsReversed, "weights_reversed",
     "rows of token{0} {1} had their weights in reverse order"},
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

/// Returns "" if no token has this change.
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

}  // namespace

bool Combine::Explains(size_t token, const TokenChange& change,
                       int64_t& left) const {
  const std::vector<size_t>& rows =
      of_token_[change.token < tokens() ? change.token : token];
  const size_t cost = std::max(rows.size(), of_token_[token].size()) + 2;
  for (size_t d = 0; d < rows_.cols(); ++d) {
    left -= static_cast<int64_t>(cost);
    if (left < 0) return false;
    const oracle::Estimate sum = Sum({}, token, d, change);
    const float value = output_.Rows()(token, d);
    if (!(RoundTo(grid_, sum.exact - sum.bound) <= value &&
          value <= RoundTo(grid_, sum.exact + sum.bound))) {
      return false;
    }
  }
  return true;
}

/// Changes of a token's own rows are first: they need the fewest assumptions.
std::optional<TokenChange> Combine::ChangeOf(size_t token,
                                             int64_t& left) const {
  using Kind = TokenChange::Kind;
  const auto explains = [&](const TokenChange& change) {
    return Explains(token, change, left);
  };
  TokenChange change;
  for (const Kind kind : {Kind::kZero, Kind::kRowsMissing, Kind::kAddendMissing,
                          Kind::kWeightsReversed}) {
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
  for (size_t other = 0; other < rows_.rows() && left >= 0; ++other) {
    if (TokenOf(other) == token) continue;
    change = {.kind = Kind::kRowExtra, .other = other};
    if (explains(change)) return change;
    for (const size_t row : rows) {
      change = {.kind = Kind::kRowReplaced, .row = row, .other = other};
      if (explains(change)) return change;
      if (left < 0) break;
    }
  }
  return std::nullopt;
}

TokenChanges Combine::Changes(const std::vector<bool>& wrong) const {
  TokenChanges changes;
  // With fewer columns, rows agree by chance.
  constexpr size_t kFewestColumns = 4;
  if (rows_.cols() < kFewestColumns) return changes;
  int64_t left = int64_t{1} << 28;
  for (size_t t = 0; t < wrong.size() && left > 0; ++t) {
    if (!wrong[t]) continue;
    if (const auto change = ChangeOf(t, left)) changes[t] = *change;
  }
  return changes;
}

std::vector<Trial> TrialsOfTokens(const Combine& combine,
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

}  // namespace isoloss::operations
