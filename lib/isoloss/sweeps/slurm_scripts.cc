#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "isoloss/sweeps/scripts.h"
#include "isoloss/sweeps/slurm.h"

namespace isoloss::sweeps {
namespace {

int MinutesOf(const Sweep& sweep) {
  if (sweep.request.minutes > 0) return sweep.request.minutes;
  double longest = 0;
  for (const Element& element : sweep.elements) {
    longest = std::max(longest, element.thread_seconds);
  }
  constexpr double kMinute = 60;
  constexpr double kFactor = 3;
  constexpr double kMore = 10;
  return static_cast<int>(std::min(1e6, std::ceil(kFactor * longest / kMinute) + kMore));
}

std::string Directives(const Sweep& sweep,
                       const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& option : options) {
    text += fmt::format("#SBATCH {}\n", option);
  }
  for (const std::string& option : sweep.request.sbatch) {
    text += fmt::format("#SBATCH {}\n", option);
  }
  return text;
}

}  // namespace

std::vector<Script> SlurmScripts(const Sweep& sweep) {
  (void)sweep; (void)MinutesOf; (void)Directives;
  return {};
}

}  // namespace isoloss::sweeps
