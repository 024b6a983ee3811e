#include "isoloss/layouts/token_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/layouts/difference.h"

namespace isoloss::layouts {
namespace {

using operations::Integers;

Whole Picked(const Whole& whole, const std::vector<size_t>& rows) {
  Whole picked;
  picked.type = whole.type;
  picked.values.ResizeUninitialized(rows.size(), whole.values.cols());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(whole.values.Row(rows[i]), whole.values.cols(),
                picked.values.Row(i));
    picked.piece_of_row.push_back(whole.piece_of_row[rows[i]]);
  }
  return picked;
}

/// Lists the rows of each expert.
std::vector<std::vector<size_t>> RowsByExpert(const Batch& batch,
                                              const OperationKey& key) {
  std::vector<std::vector<size_t>> rows;
  size_t first_row = 0;
  for (const Piece& piece : batch.Of(key)) {
    const Integers& ends = *piece.operation->FindIntegers("group_ends");
    size_t begin = 0;
    for (size_t e = 0; e < ends.values.size(); ++e) {
      const auto end = static_cast<size_t>(ends.values[e]);
      const size_t expert = piece.first_expert + e;
      if (rows.size() <= expert) rows.resize(expert + 1);
      for (size_t i = begin; i < end; ++i) {
        rows[expert].push_back(first_row + i);
      }
      begin = end;
    }
    first_row += piece.operation->Find("x")->extent[0];
  }
  return rows;
}

/// Returns the experts of each token, sorted; nothing if a piece has none.
std::vector<std::vector<int64_t>> ChoicesOf(const Batch& batch,
                                            const OperationKey& key) {
  std::vector<std::vector<int64_t>> choices;
  for (const Piece& piece : batch.Of(key)) {
    const Integers* ids = piece.operation->FindIntegers("expert_ids");
    if (ids == nullptr) return {};
    const auto slots = static_cast<ptrdiff_t>(ids->extent[1]);
    for (size_t t = 0; t < ids->extent[0]; ++t) {
      const auto begin =
          ids->values.begin() + static_cast<ptrdiff_t>(t) * slots;
      std::ranges::sort(choices.emplace_back(begin, begin + slots));
    }
  }
  return choices;
}

}  // namespace

TokenRows::TokenRows(const Batch& a, const Batch& b)
    : a_(a),
      b_(b),
      order_(OrderOfTokens(a, b)),
      skipped_(order_.b_of_a.size()) {}

std::optional<Pair> TokenRows::Of(const OperationKey& key,
                                  const std::string& tensor) const {
  auto a = a_.Rows(key, tensor);
  auto b = b_.Rows(key, tensor);
  if (!a || !b || a->values.cols() != b->values.cols()) return std::nullopt;
  if (key.type == "grouped_linear") {
    if (experts_ != key) return std::nullopt;
    return Pair{Picked(*a, rows_of_a_), Picked(*b, rows_of_b_)};
  }
  if (a->values.rows() != b->values.rows()) return std::nullopt;
  if (!order_.is_same && b->values.rows() == tokens()) {
    b = Picked(*b, order_.b_of_a);
  }
  return Pair{std::move(*a), std::move(*b)};
}

std::optional<Pair> TokenRows::Shared(const OperationKey& key,
                                      const std::string& tensor) const {
  auto a = a_.Shared(key, tensor);
  auto b = b_.Shared(key, tensor);
  if (!a || !b) return std::nullopt;
  Pair pair = {std::move(*a), std::move(*b)};
  if (!pair.HasOneExtent()) return std::nullopt;
  return pair;
}

size_t TokenRows::MatchExperts(const OperationKey& key) {
  experts_ = {};
  rows_of_a_.clear();
  rows_of_b_.clear();
  const auto a = a_.Rows(key, "x");
  const auto b = b_.Rows(key, "x");
  if (!a || !b || a->values.cols() != b->values.cols()) return 0;
  experts_ = key;
  FindSource(key);
  auto of_a = RowsByExpert(a_, key);
  auto of_b = RowsByExpert(b_, key);
  const size_t experts = std::max(of_a.size(), of_b.size());
  of_a.resize(experts);
  of_b.resize(experts);
  size_t lost = 0;
  for (size_t e = 0; e < experts; ++e) {
    const Whole x = Picked(*a, of_a[e]);
    const Whole y = Picked(*b, of_b[e]);
    const auto nearest = NearestRows(x.view(), y.view(), /*farthest=*/0.5);
    size_t matched = 0;
    for (size_t i = 0; i < nearest.size(); ++i) {
      if (nearest[i] == kNoRow) continue;
      ++matched;
      rows_of_a_.push_back(of_a[e][i]);
      rows_of_b_.push_back(of_b[e][nearest[i]]);
    }
    lost += of_a[e].size() + of_b[e].size() - 2 * matched;
  }
  return lost;
}

void TokenRows::MatchGradients() {
  const auto x = a_.Rows(experts_, "x");
  const auto a = a_.Rows(experts_, "grad_output");
  auto b = b_.Rows(experts_, "grad_output");
  if (!x || !a || !b || a->values.cols() != b->values.cols()) return;
  const auto ends_of_a = RowsByExpert(a_, experts_);
  std::map<std::pair<size_t, uint64_t>, std::vector<size_t>> alike;
  std::vector<size_t> expert_of(a->values.rows());
  for (size_t e = 0; e < ends_of_a.size(); ++e) {
    for (const size_t row : ends_of_a[e]) expert_of[row] = e;
  }
  for (size_t i = 0; i < rows_of_a_.size(); ++i) {
    const size_t row = rows_of_a_[i];
    alike[{expert_of[row],
           DigestOf(x->values.Row(row), x->values.cols() * sizeof(float))}]
        .push_back(i);
  }
  for (const auto& [key, places] : alike) {
    if (places.size() < 2) continue;
    std::vector<size_t> of_a;
    std::vector<size_t> of_b;
    for (const size_t i : places) {
      of_a.push_back(rows_of_a_[i]);
      of_b.push_back(rows_of_b_[i]);
    }
    const Whole left = Picked(*a, of_a);
    Whole right = Picked(*b, of_b);
    // Losses may have been divided by other numbers.
    constexpr double kLeast = 1e-30;
    const double ratio = std::max(NormOf(left.view()), kLeast) /
                         std::max(NormOf(right.view()), kLeast);
    for (size_t i = 0; i < right.values.size(); ++i) {
      right.values.data()[i] = static_cast<float>(
          ratio * static_cast<double>(right.values.data()[i]));
    }
    const auto nearest = NearestRows(left.view(), right.view(), HUGE_VAL);
    for (size_t i = 0; i < places.size(); ++i) {
      if (nearest[i] != kNoRow) rows_of_b_[places[i]] = of_b[nearest[i]];
    }
  }
}

std::optional<size_t> TokenRows::CompareChoices(const OperationKey& key) {
  const auto of_a = ChoicesOf(a_, key);
  const auto of_b = ChoicesOf(b_, key);
  if (of_a.size() != of_b.size() || of_a.size() != tokens()) {
    return std::nullopt;
  }
  size_t flipped = 0;
  for (size_t t = 0; t < of_a.size(); ++t) {
    const auto& x = of_a[t];
    const auto& y = of_b[order_.b_of_a[t]];
    if (x == y) continue;
    ++flipped;
    std::vector<int64_t> common;
    std::ranges::set_intersection(x, y, std::back_inserter(common));
    flipped_slots_ += x.size() + y.size() - 2 * common.size();
    skipped_[t] = true;
  }
  return flipped;
}

/// Later layers of the same experts have their rows in the same places as the
/// first one, which reads tokens.
void TokenRows::FindSource(const OperationKey& key) {
  if (source_of_.contains(key)) return;
  const auto tokens = a_.Rows(source_.first, source_.second);
  const auto x = a_.Rows(key, "x");
  if (tokens && x && tokens->values.cols() == x->values.cols() &&
      tokens->values.rows() == skipped_.size()) {
    source_of_[key] = {source_.first, source_.second, key};
  } else if (source_of_.contains(last_experts_) &&
             RowsByExpert(a_, last_experts_) == RowsByExpert(a_, key)) {
    source_of_[key] = source_of_[last_experts_];
  }
  last_experts_ = key;
}

/// Marks rows of A's experts whose bits are those of a skipped token.
std::vector<bool> TokenRows::SkippedRowsOf(const OperationKey& key) const {
  const auto source = source_of_.find(key);
  if (flipped() == 0 || source == source_of_.end()) return {};
  const auto tokens = a_.Rows(source->second.key, source->second.tensor);
  const auto x = a_.Rows(source->second.experts, "x");
  const auto digest = [](const Whole& whole, size_t row) {
    return DigestOf(whole.values.Row(row), whole.values.cols() * sizeof(float));
  };
  std::set<uint64_t> skipped;
  for (size_t t = 0; t < skipped_.size(); ++t) {
    if (skipped_[t]) skipped.insert(digest(*tokens, t));
  }
  std::vector<bool> rows(x->values.rows());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = skipped.contains(digest(*x, i));
  }
  return rows;
}

std::vector<bool> TokenRows::SkippedOf(const OperationKey& key,
                                       const Pair& pair) const {
  if (key.type != "grouped_linear") {
    return pair.a.values.rows() == tokens() ? skipped_ : std::vector<bool>();
  }
  const std::vector<bool> rows = SkippedRowsOf(key);
  std::vector<bool> skipped;
  for (const size_t row : rows_of_a_) {
    skipped.push_back(row < rows.size() && rows[row]);
  }
  return skipped;
}

size_t TokenRows::flipped() const {
  return static_cast<size_t>(std::ranges::count(skipped_, true));
}

}  // namespace isoloss::layouts
