#include "isoloss/train/experiment_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "isoloss/base/nearest_name.h"

namespace isoloss::train {
namespace {

/// Replaces each ${NAME}; `fields` is [data].
std::string Expand(const std::string& path, const config::Reader& fields,
                   const std::map<std::string, std::string>& variables) {
  std::string expanded;
  size_t begin = 0;
  for (size_t open = path.find("${"); open != std::string::npos;
       open = path.find("${", begin)) {
    const size_t close = path.find('}', open);
    if (close == std::string::npos) {
      fields.Fail("paths", fmt::format("holds \"{}\", but ${{ needs a closing "
                                       "brace. Write ${{NAME}}.",
                                       path));
    }
    const std::string name = path.substr(open + 2, close - open - 2);
    const auto variable = variables.find(name);
    if (variable == variables.end()) {
      std::vector<std::string> known;
      for (const auto& [key, folder] : variables) known.push_back(key);
      fields.Fail(
          "paths",
          fmt::format("uses the unknown variable `{}`. Known "
                      "variables: {}.{}",
                      name,
                      known.empty() ? "none"
                                    : fmt::format("{}", fmt::join(known, ", ")),
                      DidYouMean(name, known)));
    }
    expanded += path.substr(begin, open - begin) + variable->second;
    begin = close + 1;
  }
  return expanded + path.substr(begin);
}

std::vector<std::filesystem::path> ResolvePaths(
    const Experiment& experiment, const config::Reader& fields,
    const std::map<std::string, std::string>& variables) {
  if (experiment.data.paths.empty()) {
    fields.Require("paths", "List the files or folders to train on.");
    fields.Fail("paths", "is empty. List the files or folders to train on.");
  }
  std::vector<std::filesystem::path> paths;
  for (const std::string& path : experiment.data.paths) {
    paths.push_back(
        (experiment.path.parent_path() / Expand(path, fields, variables))
            .lexically_normal());
  }
  return paths;
}

}  // namespace

corpus::Source MakeSource(const Experiment& experiment,
                          const config::Reader& fields,
                          const std::map<std::string, std::string>& variables) {
  const DataConfig& data = experiment.data;
  const size_t vocab_size = experiment.model.vocab_size;
  if (data.source == "synthetic") {
    if (data.noise_levels > vocab_size) {
      fields.Fail("noise_levels",
                  fmt::format("is {}, but must be at most model.vocab_size = "
                              "{}. Correct either.",
                              data.noise_levels, vocab_size));
    }
    return corpus::SyntheticSource{vocab_size, data.order, data.noise_levels,
                                   data.tokens, data.seed};
  }
  auto paths = ResolvePaths(experiment, fields, variables);
  if (data.source == "tokens") {
    return corpus::TokensSource{std::move(paths), data.token_bits, vocab_size};
  }
  if (vocab_size < corpus::kByteVocabulary) {
    fields.Fail("source",
                fmt::format("is \"files\", whose bytes need a vocabulary of "
                            "{}, but model.vocab_size is {}. Raise it.",
                            corpus::kByteVocabulary, vocab_size));
  }
  return corpus::FilesSource{std::move(paths), data.include};
}

corpus::Corpus LoadCorpusOf(const Experiment& experiment) {
  return corpus::LoadCorpus(experiment.corpus_source,
                            experiment.data.held_out_share);
}

}  // namespace isoloss::train
