#include "isoloss/compare/common_steps.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace isoloss::compare {
namespace {

std::unordered_map<std::string, size_t> Places(
    std::span<const std::string> names) {
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < names.size(); ++i) places.try_emplace(names[i], i);
  return places;
}

}  // namespace

std::optional<size_t> RowOfStep(std::span<const int64_t> steps, int64_t step) {
  const auto found = std::lower_bound(steps.begin(), steps.end(), step);
  if (found == steps.end() || *found != step) return std::nullopt;
  return static_cast<size_t>(found - steps.begin());
}

std::vector<int64_t> CommonSteps(std::span<const int64_t> a,
                                 std::span<const int64_t> b) {
  std::vector<int64_t> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::back_inserter(common));
  return common;
}

MatchedNames MatchNames(std::span<const std::string> a,
                        std::span<const std::string> b) {
  const auto places_a = Places(a);
  const auto places_b = Places(b);
  MatchedNames matched;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto place = places_b.find(a[i]);
    if (place == places_b.end()) {
      matched.only_a.push_back(a[i]);
    } else if (places_a.at(a[i]) == i) {
      matched.shared.push_back({i, place->second});
    }
  }
  for (const std::string& name : b) {
    if (!places_a.contains(name)) matched.only_b.push_back(name);
  }
  return matched;
}

}  // namespace isoloss::compare
