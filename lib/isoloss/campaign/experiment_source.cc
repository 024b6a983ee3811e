#include "isoloss/campaign/experiment_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {
namespace {

/// Accepts text such as 1,2,9. Users choose its length, so the function must
/// not recurse.
bool IsListOfIntegers(std::string_view text) {
  bool was_digit = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c != ',' || !was_digit)) return false;
    was_digit = is_digit;
  }
  return was_digit;
}

/// Returns N of +N, from 1 to 9999; nothing if the text has another form.
std::optional<uint64_t> AddedSeeds(std::string_view text) {
  uint64_t count = 0;
  if (!text.starts_with('+')) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + 1, end, count);
  const bool fits = error == std::errc{} && last == end && text[1] != '0';
  if (!fits || count > 9999) return std::nullopt;
  return count;
}

train::ExperimentInputs InputsOf(const ExperimentSource& source) {
  train::ExperimentInputs inputs = {
      .variables = {{"EIGEN3_INCLUDE_DIR", ISOLOSS_EIGEN3_INCLUDE_DIR}},
      .overrides = source.overrides};
  if (!source.on.empty()) {
    inputs.overrides.push_back(fmt::format("parallel.on=\"{}\"", source.on));
  }
  return inputs;
}

}  // namespace

train::Experiment ExperimentSource::Load() const {
  return train::LoadExperiment(file, InputsOf(*this));
}

train::Experiment ExperimentSource::Parse(std::string_view text) const {
  return train::ParseExperiment(text, file, InputsOf(*this));
}

std::filesystem::path ResultsFolder(const train::Experiment& experiment,
                                    const std::filesystem::path& out) {
  return out.empty() ? std::filesystem::path("runs") / experiment.name : out;
}

train::Experiment LoadWithSeeds(const ExperimentSource& source,
                                const std::string& seeds,
                                const std::filesystem::path& out) {
  if (seeds.empty()) return source.Load();
  if (IsListOfIntegers(seeds)) {
    ExperimentSource with = source;
    with.overrides.push_back(fmt::format("train.seeds=[{}]", seeds));
    return with.Load();
  }
  const std::optional<uint64_t> count = AddedSeeds(seeds);
  if (!count) {
    ThrowError(ErrorKind::kConfig,
               "--seeds {}: it must be +N with N from 1 to 9999, or a list of "
               "integers such as 1,2,9. Correct it.",
               seeds);
  }
  train::Experiment experiment = source.Load();
  std::vector<uint64_t>& own = experiment.train.seeds;
  uint64_t last = *std::ranges::max_element(own);
  for (const uint64_t seed :
       train::SeedsIn(ResultsFolder(experiment, out), experiment)) {
    last = std::max(last, seed);
  }
  if (last >
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - *count) {
    ThrowError(ErrorKind::kConfig,
               "--seeds {}: the largest seed is {}, and no {} larger ones are "
               "below 2^63. Give a list.",
               seeds, last, *count);
  }
  for (uint64_t i = 0; i < *count; ++i) own.push_back(++last);
  return experiment;
}

}  // namespace isoloss::campaign
