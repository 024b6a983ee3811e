#include "isoloss/base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace isoloss {
namespace {

char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = LowerCase(c);
  return lower;
}

/// Optimal string alignment distance, by rows of its table: row i holds the
/// distances from the first i characters of a to every beginning of b.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last;
  std::vector<size_t> last(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(std::string_view given,
                        std::span<const std::string> known) {
  // The given name may come from a file and have any length, but the search is
  // quadratic.
  constexpr size_t kLongestName = 200;
  if (given.size() > kLongestName) return "";
  const std::string wanted = LowerCase(given);
  size_t least = std::max<size_t>(1, given.size() / 3) + 1;
  std::string nearest;
  for (const std::string& name : known) {
    // It takes that many insertions at least.
    if (name.size() >= given.size() + least) continue;
    const size_t distance = EditDistance(wanted, LowerCase(name));
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  if (!nearest.empty() || given.empty()) return nearest;
  for (const std::string& name : known) {
    if (LowerCase(name).starts_with(wanted)) return name;
  }
  return "";
}

std::string DidYouMean(std::string_view given,
                       std::span<const std::string> known) {
  const std::string nearest = NearestName(given, known);
  return nearest.empty() ? "" : fmt::format(" Did you mean `{}`?", nearest);
}

std::string NearestKey(std::string_view name,
                       std::span<const std::string> keys) {
  std::vector<std::string> last_parts;
  for (const std::string& key : keys) {
    last_parts.push_back(key.substr(key.rfind('.') + 1));
  }
  const std::string nearest = NearestName(name, last_parts);
  const auto found = std::find(last_parts.begin(), last_parts.end(), nearest);
  return found == last_parts.end() ? "" : keys[found - last_parts.begin()];
}

}  // namespace isoloss
