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
    if (line.starts_with("[")) {
      goes = std::ranges::any_of(headings, [&](const std::string& heading) {
        return line.starts_with(heading);
      });
      if (!goes) kept += comments;
      comments.clear();
    }
    if (!goes) {
      kept += line + "\n";
    } else if (line.starts_with("#")) {
      comments += line + "\n";
    } else {
      comments.clear();
    }
  }
  return kept;
}

std::string WithTable(std::string toml, const std::string& table) {
  while (toml.ends_with("\n\n")) toml.pop_back();
  return toml + "\n" + table;
}

void WriteExperiment(const std::string& toml,
                     const std::filesystem::path& file) {
  campaign::ExperimentSource{file.string()}.Parse(toml);
  WriteFileAtomically(file, toml);
}

}  // namespace isoloss::studies
