#include "experiment_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/train/continuation.h"

namespace isoloss::cli {
namespace {

/// 1,2,9. Its length is the user's, so nothing here descends with it.
bool IsListOfIntegers(std::string_view text) {
  bool was_digit = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c != ',' || !was_digit)) return false;
    was_digit = is_digit;
  }
  return was_digit;
}

/// N of +N, from 1 to 9999; empty if the text is something else.
std::optional<uint64_t> AddedSeeds(std::string_view text) {
  uint64_t count = 0;
  if (!text.starts_with('+')) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + 1, end, count);
  const bool fits = error == std::errc{} && last == end && text[1] != '0';
  if (!fits || count > 9999) return std::nullopt;
  return count;
}

}  // namespace

void DeclareExperiment(CLI::App& app, campaign::ExperimentSource& source) {
  AddOption(app, "experiment", source.file, "Experiment file (TOML)")
      .Required();
  AddOption(app, "--set", source.overrides,
            "section.key=value; overrides the file, checked like it; "
            "repeatable")
      .Repeatable();
}

void ExperimentArguments::Declare(CLI::App& app) {
  DeclareExperiment(app, *this);
  AddOption(app, "--out", out,
            "Folder for the results (default: runs/<experiment name>)");
  AddOption(app, "--seeds", seeds,
            "+N: train N seeds more than train.seeds and the folder have, "
            "numbered from behind the largest of them; or a list such as "
            "1,2,9 in place of train.seeds. Seeds that are finished are "
            "kept");
  AddFlag(app, "--dry-run", dry_run,
          "Check everything, print the resolved experiment, what each GEMM "
          "gets and what the runs take (time, memory, disk), and train "
          "nothing");
  AddFlag(app, "--resume", resume,
          "Go on with unfinished runs in the folder, from their last "
          "checkpoint; finished ones are kept in any case");
  AddFlag(app, "--restart", restart,
          "Discard the runs that are in the folder, finished or not, "
          "and train them anew")
      .Excludes("--resume");
}

train::Experiment ExperimentArguments::Load() const {
  if (seeds.empty()) return campaign::ExperimentSource::Load();
  if (IsListOfIntegers(seeds)) {
    campaign::ExperimentSource source = *this;
    source.overrides.push_back(fmt::format("train.seeds=[{}]", seeds));
    return source.Load();
  }
  const std::optional<uint64_t> more = AddedSeeds(seeds);
  if (!more) {
    ThrowError(ErrorKind::kConfig,
               "--seeds {}: it must be +N with N from 1 to 9999, or a list of "
               "integers such as 1,2,9. Correct it.",
               seeds);
  }
  train::Experiment experiment = campaign::ExperimentSource::Load();
  std::set<uint64_t> all(experiment.train.seeds.begin(),
                         experiment.train.seeds.end());
  for (const uint64_t seed : train::SeedsIn(Folder(experiment), experiment)) {
    all.insert(seed);
  }
  uint64_t last = *all.rbegin();
  const uint64_t count = *more;
  if (last >
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - count) {
    ThrowError(ErrorKind::kConfig,
               "--seeds {}: the largest seed is {}, and no {} larger ones are "
               "below 2^63. Give a list.",
               seeds, last, count);
  }
  for (uint64_t i = 0; i < count; ++i) {
    experiment.train.seeds.push_back(++last);
  }
  return experiment;
}

std::string ExperimentArguments::HowToGoOn(
    const train::Experiment& experiment) const {
  if (!seeds.starts_with("+")) return "--resume";
  return fmt::format("--resume, and with --seeds {} in place of --seeds {},",
                     fmt::join(experiment.train.seeds, ","), seeds);
}

train::Leftovers ExperimentArguments::leftovers() const {
  if (resume) return train::Leftovers::kResume;
  return restart ? train::Leftovers::kDiscard : train::Leftovers::kRefuse;
}

std::filesystem::path ExperimentArguments::Folder(
    const train::Experiment& experiment) const {
  if (!out.empty()) return out;
  return std::filesystem::path("runs") / experiment.name;
}

}  // namespace isoloss::cli
