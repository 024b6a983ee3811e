#include "isoloss/studies/experiment_file.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"

namespace isoloss::studies {

std::vector<Option> WritingArguments::Options(const char* of_seeds,
                                              const char* of_write) {
  return {{.name = "experiment", .value = &source},
          {.name = "--seeds",
           .value = &seeds,
           .help = of_seeds,
           .least = 1,
           .most = 1000},
          {.name = "--write", .value = &write, .help = of_write}};
}

train::Experiment WritingArguments::Load(const std::string& study) const {
  if (write && !source.overrides.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --write is given with --set {}, but the file would not "
               "have what was trained. Edit the file and leave out --set.",
               study, source.overrides.front());
  }
  return source.Load();
}

train::Experiment OnSeedsOfItsOwn(train::Experiment experiment, size_t count) {
  constexpr uint64_t kFirst = 1001;
  std::vector<uint64_t> seeds;
  for (uint64_t seed = kFirst; seeds.size() < count; ++seed) {
    if (std::ranges::count(experiment.train.seeds, seed) == 0) {
      seeds.push_back(seed);
    }
  }
  experiment.train.seeds = std::move(seeds);
  experiment.arms.resize(1);
  experiment.gate = {};
  experiment.tuning = {};
  experiment.scaled_tuning = {};
  LogLossesOnly(experiment);
  return experiment;
}

std::string WithoutTables(const std::string& toml,
                          const std::vector<std::string>& headings) {
  std::istringstream lines(toml);
  std::string kept;
  std::string comments;  // in a table that goes; perhaps above the next heading
  bool goes = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string text =
        line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    if (text.starts_with("[")) {
      goes = std::ranges::any_of(headings, [&](const std::string& heading) {
        return text.starts_with(heading);
      });
      if (!goes) kept += comments;
      comments.clear();
    }
    if (!goes) {
      kept += line + "\n";
    } else if (text.starts_with("#")) {
      comments += line + "\n";
    } else {
      comments.clear();
    }
  }
  return kept + comments;
}

std::string WithTable(std::string toml, const std::string& table) {
  while (toml.ends_with("\n\n")) toml.pop_back();
  return toml + "\n" + table;
}

void WriteExperiment(const std::string& toml, const std::filesystem::path& file,
                     const std::vector<std::string>& arms) {
  const campaign::ExperimentSource source{file.string()};
  const auto rest = [&](train::Experiment experiment) {
    experiment.tuning = {};
    experiment.scaled_tuning = {};
    experiment.gate.control.clear();
    std::erase_if(experiment.arms, [&](const train::Arm& arm) {
      return std::ranges::count(arms, arm.name) > 0;
    });
    return experiment.ResolvedToml();
  };
  if (rest(source.Load()) != rest(source.Parse(toml))) {
    ThrowError(
        ErrorKind::kConfig,
        "{}: --write would alter more than the tables that it replaces, "
        "so the file stays as it is. Begin each heading on a line of its "
        "own, and no line within a string with a bracket.",
        file.string());
  }
  WriteFileAtomically(file, toml);
}

}  // namespace isoloss::studies
