#include "isoloss/layouts/row_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "isoloss/base/digest.h"
#include "isoloss/layouts/difference.h"

namespace isoloss::layouts {
namespace {

using Keys = std::vector<uint64_t>;

Keys LabelsOf(const Batch& batch) {
  Keys keys;
  for (const OperationKey& key : batch.order()) {
    if (key.type != "loss") continue;
    for (const Piece& piece : batch.Of(key)) {
      for (const int64_t label :
           piece.operation->FindIntegers("labels")->values) {
        keys.push_back(static_cast<uint64_t>(label));
      }
    }
    break;
  }
  return keys;
}

Keys RowsOf(const Batch& batch, const OperationKey& first) {
  Keys keys;
  const auto whole = batch.Rows(first, "x");
  if (!whole) return keys;
  for (size_t i = 0; i < whole->values.rows(); ++i) {
    keys.push_back(
        DigestOf(whole->values.Row(i), whole->values.cols() * sizeof(float)));
  }
  return keys;
}

Keys Joined(const Keys& a, const Keys& b) {
  if (a.size() != b.size()) return {};
  Keys keys;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t both[] = {a[i], b[i]};
    keys.push_back(DigestOf(both, sizeof both));
  }
  return keys;
}

std::string CountsText(const char* what, size_t a, size_t b) {
  return fmt::format(
      "A has {0} {2}, B has {1} {2}; ranks that have the same tokens must be "
      "recorded with one data_rank",
      a, b, what);
}

/// Says why B's labels are not A's, as when two ranks read one part of the
/// data.
std::string MismatchOf(const Batch& b, const Keys& of_a, const Keys& of_b) {
  if (of_a.size() != of_b.size()) {
    return CountsText("labels", of_a.size(), of_b.size());
  }
  for (const OperationKey& key : b.order()) {
    if (key.type != "loss") continue;
    const std::vector<Piece>& pieces = b.Of(key);
    for (size_t i = 1; i < pieces.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (pieces[i].operation->FindIntegers("labels")->values !=
            pieces[j].operation->FindIntegers("labels")->values) {
          continue;
        }
        return fmt::format(
            "B's ranks {} and {} have the same labels, so that a part of the "
            "batch counts twice and another one is missing",
            b.FileOf(pieces[j]).rank, b.FileOf(pieces[i]).rank);
      }
    }
  }
  return "B's labels are not those of A";
}

RowOrder OrderOf(std::vector<size_t> places) {
  RowOrder order;
  for (size_t i = 0; i < places.size(); ++i) {
    order.is_same = order.is_same && places[i] == i;
  }
  order.b_of_a = std::move(places);
  return order;
}

/// After updates rows are near each other, and not equal. Rows of other tokens
/// are further off than a quarter of their length.
std::optional<RowOrder> OrderOfNearRows(const Batch& a, const Batch& b,
                                        const OperationKey& first) {
  constexpr double kNear = 0.25;
  const auto rows_a = a.Rows(first, "x");
  const auto rows_b = b.Rows(first, "x");
  if (!rows_a || !rows_b || rows_a->values.rows() != rows_b->values.rows() ||
      rows_a->values.cols() != rows_b->values.cols()) {
    return std::nullopt;
  }
  std::vector<size_t> places(rows_a->values.rows());
  std::iota(places.begin(), places.end(), size_t{0});
  if (Differ(rows_a->view(), rows_b->view()).largest_row >= kNear) {
    places = NearestRows(rows_a->view(), rows_b->view(), kNear);
    if (std::ranges::find(places, kNoRow) != places.end()) return std::nullopt;
  }
  return OrderOf(std::move(places));
}

}  // namespace

std::optional<std::vector<size_t>> MatchKeys(const Keys& a, const Keys& b) {
  if (a.size() != b.size()) return std::nullopt;
  std::vector<size_t> places(a.size());
  std::iota(places.begin(), places.end(), size_t{0});
  if (a == b) return places;
  std::unordered_map<uint64_t, std::vector<size_t>> of_key;
  for (size_t j = 0; j < b.size(); ++j) of_key[b[j]].push_back(j);
  std::vector<bool> taken(b.size());
  const auto run = [&](size_t i, size_t j) {
    constexpr size_t kLongest = 64;
    size_t length = 0;
    while (length < kLongest && i + length < a.size() &&
           j + length < b.size() && !taken[j + length] &&
           a[i + length] == b[j + length]) {
      ++length;
    }
    return length;
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t next = i == 0 ? b.size() : places[i - 1] + 1;
    size_t best = b.size();
    if (next < b.size() && !taken[next] && a[i] == b[next]) {
      best = next;
    } else {
      const auto found = of_key.find(a[i]);
      if (found == of_key.end()) return std::nullopt;
      size_t longest = 0;
      size_t tried = 0;
      std::erase_if(found->second, [&](size_t j) { return taken[j]; });
      for (const size_t j : found->second) {
        constexpr size_t kMostTried = 256;
        const size_t length = ++tried > kMostTried ? 0 : run(i, j);
        if (length > longest) {
          longest = length;
          best = j;
        }
      }
      if (best == b.size()) return std::nullopt;
    }
    taken[best] = true;
    places[i] = best;
  }
  return places;
}

RowOrder OrderOfTokens(const Batch& a, const Batch& b) {
  const Keys labels_a = LabelsOf(a);
  const Keys labels_b = LabelsOf(b);
  const auto first = std::ranges::find_if(
      a.order(), [](const OperationKey& key) { return key.type == "linear"; });
  Keys rows_a;
  Keys rows_b;
  if (first != a.order().end()) {
    rows_a = RowsOf(a, *first);
    rows_b = RowsOf(b, *first);
  }
  const size_t tokens = std::max(rows_a.size(), labels_a.size());
  // The first operation may read rows that are not equal to the bit.
  for (const auto& [keys_a, keys_b] :
       {std::pair(Joined(labels_a, rows_a), Joined(labels_b, rows_b)),
        std::pair(rows_a, rows_b), std::pair(labels_a, labels_b)}) {
    if (keys_a.size() < tokens || keys_a.empty()) continue;
    if (auto places = MatchKeys(keys_a, keys_b)) {
      RowOrder order = OrderOf(std::move(*places));
      if (labels_a.empty() || labels_a.size() != labels_b.size()) return order;
      for (size_t i = 0; i < labels_a.size(); ++i) {
        if (order.b_of_a.size() == labels_a.size() &&
            labels_a[i] != labels_b[order.b_of_a[i]]) {
          order.mismatch = MismatchOf(b, labels_a, labels_b);
        }
      }
      return order;
    }
  }
  if (first != a.order().end()) {
    if (auto order = OrderOfNearRows(a, b, *first)) return *order;
  }
  std::vector<size_t> places(tokens);
  std::iota(places.begin(), places.end(), size_t{0});
  RowOrder order = OrderOf(std::move(places));
  if (!labels_a.empty() && !labels_b.empty()) {
    order.mismatch = MismatchOf(b, labels_a, labels_b);
  } else if (!rows_a.empty() && rows_a.size() != rows_b.size()) {
    order.mismatch = CountsText("tokens", rows_a.size(), rows_b.size());
  } else {
    order.is_assumed = true;
  }
  return order;
}

std::vector<size_t> NearestRows(MatrixView<const float> a,
                                MatrixView<const float> b, double farthest) {
  std::vector<size_t> nearest(a.rows(), kNoRow);
  std::vector<bool> taken(b.rows());
  const auto squares = [](const float* x, const float* y, size_t cols,
                          double most) {
    double sum = 0.0;
    for (size_t k = 0; k < cols && sum < most; ++k) {
      const double d = static_cast<double>(x[k]) -
                       (y == nullptr ? 0.0 : static_cast<double>(y[k]));
      sum += d * d;
    }
    return sum;
  };
  // Rows mostly keep their order, so the search begins after the last match.
  size_t begin = 0;
  for (size_t i = 0; i < a.rows(); ++i) {
    const double length = squares(a.Row(i), nullptr, a.cols(), HUGE_VAL);
    double best = farthest * farthest * length;
    for (size_t n = 0; n < b.rows(); ++n) {
      const size_t j = (begin + n) % b.rows();
      if (taken[j]) continue;
      const double d = squares(a.Row(i), b.Row(j), a.cols(), best);
      if (d < best || (d == 0.0 && nearest[i] == kNoRow)) {
        best = d;
        nearest[i] = j;
        if (d == 0.0) break;
      }
    }
    if (nearest[i] == kNoRow) continue;
    taken[nearest[i]] = true;
    begin = nearest[i] + 1;
  }
  return nearest;
}

}  // namespace isoloss::layouts
