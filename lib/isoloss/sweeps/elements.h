// Divides runs among processes that work side by side.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"

namespace isoloss::sweeps {

/// An element holds the runs that one process makes, one after the other.
struct Element {
  std::vector<std::string> runs = {};             ///< names
  std::vector<std::filesystem::path> files = {};  ///< that they leave
  double thread_seconds = 0;
};

struct Division {
  /// There are more if an element would get more than 500 runs.
  size_t most_elements = 1000;
  /// Runs that take less on one thread share an element: to begin a process
  /// costs a batch system about a second.
  double least_seconds = 60;
};

/// Divides the runs of `list` that have not finished. The most expensive
/// element comes first, and runs keep the list's order. The longest run is
/// placed first, each in the element with the least time so far. The result
/// takes at most 4/3 of the best division's time (Graham 1969).
std::vector<Element> Divide(const campaign::RunList& list,
                            const Division& division);

}  // namespace isoloss::sweeps
