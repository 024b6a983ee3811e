#include "isoloss/sweeps/elements.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>

namespace isoloss::sweeps {
namespace {

using Runs = std::vector<const campaign::ListedRun*>;

/// An element's names are one argument of a program. A name has at most
/// 200 characters, and an argument at most 128 KiB (MAX_ARG_STRLEN of Linux).
constexpr size_t kMostRuns = 500;

double SecondsOfAll(const Runs& runs) {
  double seconds = 0;
  for (const campaign::ListedRun* run : runs) seconds += run->thread_seconds;
  return seconds;
}

size_t CountOf(const Runs& runs, const Division& division) {
  const double shortest = (*std::ranges::min_element(
                               runs, {}, &campaign::ListedRun::thread_seconds))
                              ->thread_seconds;
  size_t count = runs.size();
  // Without times each run is an element.
  if (SecondsOfAll(runs) > 0 && shortest < division.least_seconds) {
    const double by_time =
        std::ceil(SecondsOfAll(runs) / division.least_seconds);
    count = std::min(count, static_cast<size_t>(std::max(1.0, by_time)));
  }
  count = std::min(count, std::max<size_t>(1, division.most_elements));
  return std::max(count, (runs.size() + kMostRuns - 1) / kMostRuns);
}

/// Returns the places in `runs` of the runs that each of `count` elements
/// makes.
std::vector<std::vector<size_t>> Places(const Runs& runs, size_t count) {
  std::vector<size_t> longest_first(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) longest_first[i] = i;
  std::ranges::stable_sort(longest_first, std::greater<>(),
                           [&](size_t i) { return runs[i]->thread_seconds; });
  // The element with the least time comes first, then that with the fewest
  // runs, then the first one.
  using Load = std::tuple<double, size_t, size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (size_t i = 0; i < count; ++i) loads.emplace(0.0, 0, i);
  std::vector<std::vector<size_t>> places(count);
  for (const size_t run : longest_first) {
    const auto [seconds, size, element] = loads.top();
    loads.pop();
    places[element].push_back(run);
    loads.emplace(seconds + runs[run]->thread_seconds, size + 1, element);
  }
  for (std::vector<size_t>& own : places) std::ranges::sort(own);
  return places;
}

}  // namespace

std::vector<Element> Divide(const campaign::RunList& list,
                            const Division& division) {
  Runs runs;
  for (const campaign::ListedRun& run : list.runs) {
    if (!list.IsFinished(run)) runs.push_back(&run);
  }
  if (runs.empty()) return {};
  std::vector<Element> elements;
  for (const auto& places : Places(runs, CountOf(runs, division))) {
    Element& element = elements.emplace_back();
    for (const size_t place : places) {
      element.runs.push_back(runs[place]->name);
      element.files.push_back(runs[place]->file);
      element.thread_seconds += runs[place]->thread_seconds;
    }
  }
  std::ranges::stable_sort(elements, std::greater<>(),
                           &Element::thread_seconds);
  return elements;
}

}  // namespace isoloss::sweeps
