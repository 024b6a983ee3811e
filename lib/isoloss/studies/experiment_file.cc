#include "isoloss/studies/experiment_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::studies {

std::vector<Option> WritingArguments::Options(const char* of_seeds,
                                              const char* of_write) {
  return {{.name = "experiment", .value = &source},
          {.name = "--seeds",
           .value = &seeds,
           .help = of_seeds,
           .least = kOwnSeeds,
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

std::vector<TableText> TablesOf(const std::string& toml) {
  std::istringstream lines(toml);
  std::vector<TableText> tables(1);
  std::string comments;
  for (std::string line; std::getline(lines, line);) {
    const std::string text =
        line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    line += "\n";
    if (text.starts_with("#")) {
      comments += line;
      continue;
    }
    if (text.starts_with("[")) {
      tables.push_back({.heading = text.substr(0, text.find(']') + 1),
                        .above = std::exchange(comments, "")});
    }
    tables.back().lines += std::exchange(comments, "") + line;
  }
  tables.push_back({.above = comments});
  return tables;
}

std::string TextOf(const std::vector<TableText>& tables) {
  std::string text;
  for (const TableText& table : tables) text += table.above + table.lines;
  return text;
}

std::string WithTable(const std::string& toml, const std::string& heading,
                      const std::string& table) {
  std::vector<TableText> tables = TablesOf(toml);
  const auto place = std::ranges::find(tables, heading, &TableText::heading);
  if (place == tables.end()) {
    std::string text = TextOf(tables);
    while (text.ends_with("\n\n")) text.pop_back();
    return table.empty() ? toml : text + "\n" + table;
  }
  if (table.empty()) {
    tables.erase(place);
    return TextOf(tables);
  }
  const size_t last = place->lines.find_last_not_of("\r\n \t");
  const size_t blank = place->lines.find('\n', last) + 1;
  place->lines = table + place->lines.substr(blank);
  return TextOf(tables);
}

train::Experiment ParseRewrite(const std::string& toml,
                               const std::filesystem::path& file,
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
  std::string reason;
  try {
    train::Experiment rewritten = source.Parse(toml);
    if (rest(source.Load()) == rest(rewritten)) return rewritten;
  } catch (const Error& error) {
    reason = fmt::format(" ({})", error.what());
  }
  ThrowError(ErrorKind::kConfig,
             "{}: --write would alter more than the tables that it replaces{}, "
             "so the file stays as it is. Begin each heading on a line of its "
             "own, and no line within a string with a bracket.",
             file.string(), reason);
}

}  // namespace isoloss::studies
