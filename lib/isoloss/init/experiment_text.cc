#include "isoloss/init/experiment_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "isoloss/config/values.h"
#include "isoloss/config/writer.h"

namespace isoloss::init {
namespace {

using config::Quoted;

std::string ListOf(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) {
    list += fmt::format("  {},\n", Quoted(text));
  }
  return fmt::format("[\n{}]", list);
}

/// Warm-up takes a seventh of the steps, and no more than presets take.
int64_t WarmupOf(int64_t steps) {
  constexpr int64_t kMost = 100;
  return std::min(kMost, steps / 7);
}

std::string ModelSection(const ExperimentText& text) {
  std::string section = fmt::format(
      R"([model]
# A small DeepSeek-V3. docs/experiment.md, [model], lists presets and all sizes.
preset = {}
)",
      Quoted(text.preset));
  if (text.vocab_size > 0) {
    section += fmt::format(
        "# Tokens that embedding and head know: one more than the largest.\n"
        "vocab_size = {}\n",
        text.vocab_size);
  }
  return section;
}

/// Names the device that the budget was planned for.
std::string ParallelSection(const ExperimentText& text) {
  if (text.on == device::kCpu) return "";
  return fmt::format(
      "\n[parallel]\n# Where models compute: it changes the time, but no bit. "
      "docs/gpu.md.\non = {}\n",
      Quoted(text.on));
}

std::string DataSection(const ExperimentText& text) {
  const bool tokens = !text.token_type.empty();
  std::string section = fmt::format(
      R"([data]
# {} Other sources: docs/experiment.md, [data].
source = "{}"
# Paths are relative to this file. Folders are read with all below them.
paths = {}
)",
      tokens ? "Token files." : "Each byte of the text is a token.",
      tokens ? "tokens" : "files", ListOf(text.paths));
  if (tokens) {
    section += fmt::format(
        "# Their integers: flat and little-endian.\ntoken_type = \"{}\"\n",
        text.token_type);
  }
  return section +
         R"(# The end of the text is not trained on: held-out losses are of it.
held_out_share = 0.1
)";
}

/// Names the learning rate, if a sweep found one.
std::string RateLines(const ExperimentText& text) {
  if (!text.lr) return "";
  return fmt::format(
      "# The largest learning rate: the best that was tried, as in [tuning].\n"
      "lr = {}\n",
      config::RealText(*text.lr));
}

/// Without a sweep no verdict on precision is a PASS.
std::string TuningSection(const ExperimentText& text) {
  if (text.tuning.empty()) return "";
  return "\n# Held-out losses at the rates that were tried. Another model, "
         "schedule, batch or\n# text needs another sweep: isoloss study rates "
         "FILE --write\n" +
         text.tuning;
}

std::string TrainSection(const ExperimentText& text) {
  std::vector<size_t> seeds(text.seeds);
  std::iota(seeds.begin(), seeds.end(), 1);
  return fmt::format(
      R"([train]
# Each run takes so many steps; the last fifth of them is compared.
steps = {}
# The learning rate rises for so many. docs/model.md, section 11.
warmup_steps = {}
{}# Each arm is trained once for each seed: more seeds see smaller differences.
seeds = [{}]

[log]
# Held-out losses: before the first step, and after each so many.
eval_every = {}
# Of so many sequences of the end of the text.
eval_sequences = {}
)",
      text.steps, WarmupOf(text.steps), RateLines(text), fmt::join(seeds, ", "),
      EvalEvery(text.steps), text.eval_sequences);
}

std::string GateSection(const ExperimentText& text) {
  std::string section = fmt::format(
      R"([gate]
# The margin: a smaller difference, in percent of the loss, is of no concern.
# docs/gate.md, "The margin in tokens".
margin_percent = {:g}
# How far chance drives a seed pair apart, as standard deviation in percent:
# {}.
# `verify --dry-run` tells the power from it. No verdict depends on it.
spread_percent = {:.2g}
)",
      text.margin_percent, text.spread_from, text.spread_percent);
  if (text.control.empty()) {
    return section +
           "# No control arm: the candidate is the recipe that others take for "
           "one.\n\n";
  }
  config::Writer control;
  control.Names("control", text.controls);
  return fmt::format(
      "{}# {} must come out worse. docs/gate.md, \"Null arms and the "
      "control\".\n{}\n",
      section, text.graded.empty() ? "This arm" : "One of these arms",
      control.text());
}

std::string ArmSections(const ExperimentText& text) {
  std::string sections = fmt::format(
      R"(# The first arm is the baseline. `isoloss lab recipes` lists recipes;
# docs/recipes.md says how to write one of your own.
[arms.{0}]
recipe = "{0}"

# The candidate: is it as good as the baseline?
[arms.{1}]
recipe = "{1}"

# The baseline with weights that begin one unit in the last place away: what
# chance alone does.
[arms.null]
recipe = "{0}"
perturb = "one_ulp"
)",
      text.baseline, text.candidate);
  if (!text.control.empty()) {
    sections += fmt::format(
        R"(
# Known to be worse: an experiment that does not see it sees nothing.
[arms.control]
recipe = "{}"
)",
        text.control);
  }
  if (!text.graded.empty()) {
    sections +=
        "\n# Parts of its sites that harm by about half a margin and by "
        "one to one and a half.\n" +
        text.graded;
  }
  return sections;
}

}  // namespace

std::string ExperimentText::Toml() const {
  return fmt::format(
      R"(# Does {} train like {} on this text? Written by `isoloss init`.
# docs/experiment.md explains every key, docs/tutorial.md what to do with it.

# Results go to runs/<name>.
name = {}

{}
{}
{}
{}{}{})",
      candidate, baseline, Quoted(name), ModelSection(*this),
      DataSection(*this), TrainSection(*this), GateSection(*this),
      ArmSections(*this) + ParallelSection(*this), TuningSection(*this));
}

}  // namespace isoloss::init
