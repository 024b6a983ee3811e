#include "isoloss/init/new_experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/init/experiment_size.h"
#include "isoloss/init/experiment_text.h"
#include "isoloss/init/preparation.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/report/live_view.h"
#include "isoloss/step_checks/probe_cases.h"
#include "isoloss/train/presets.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::init {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBaseline = "bf16";
constexpr const char* kControl = "mxfp4_floor";

void CheckPath(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  const std::string shown = Printable(path.string());
  if (type == fs::file_type::not_found || error) {
    ThrowError(ErrorKind::kConfig,
               "{}: {}, but an experiment needs text. Give files or folders.",
               shown, error ? error.message() : "is not there");
  }
  // A pipe or device may never end.
  if (type != fs::file_type::regular && type != fs::file_type::directory) {
    ThrowError(ErrorKind::kConfig,
               "{}: is neither a file nor a folder, but an experiment needs "
               "text that stays. Give files or folders.",
               shown);
  }
  if (path.string().find("${") != std::string::npos) {
    ThrowError(ErrorKind::kConfig,
               "{}: holds \"${{\", which begins a variable in data.paths. Give "
               "a link to it that has another name.",
               shown);
  }
  if (shown != path.string()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the name has control characters or is no UTF-8, but TOML "
               "is UTF-8. Give a link to it that has another name.",
               shown);
  }
}

/// data.paths has paths relative to the experiment file's folder.
std::vector<std::string> PathsFrom(const fs::path& folder,
                                   const std::vector<fs::path>& paths) {
  std::error_code error;
  const bool is_here = folder.empty() || fs::equivalent(folder, ".", error);
  std::vector<std::string> written;
  for (const fs::path& path : paths) {
    written.push_back(is_here ? path.string() : fs::canonical(path).string());
    CheckPath(written.back());
  }
  return written;
}

/// Returns the largest token of a flat file of little-endian integers; 0 if it
/// is no file.
template <typename T>
uint64_t LargestToken(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return 0;
  uint64_t largest = 0;
  std::vector<T> chunk(size_t{1} << 16);
  std::ifstream file(path, std::ios::binary);
  while (file) {
    file.read(reinterpret_cast<char*>(chunk.data()),  // NOLINT
              static_cast<std::streamsize>(chunk.size() * sizeof(T)));
    const auto count = static_cast<size_t>(file.gcount()) / sizeof(T);
    for (size_t i = 0; i < count; ++i) {
      largest = std::max<uint64_t>(largest, chunk[i]);
    }
  }
  return largest;
}

/// Returns the vocabulary that the model needs; 0 if that of its preset is
/// enough.
size_t VocabularyFor(const NewExperiment& request) {
  constexpr uint64_t kMost = 1 << 20;
  if (request.token_type.empty()) return 0;
  uint64_t largest = 0;
  for (const fs::path& path : request.paths) {
    largest = std::max(largest, request.token_type == "uint32"
                                    ? LargestToken<uint32_t>(path)
                                    : LargestToken<uint16_t>(path));
    if (largest < kMost) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: holds token {} as {}, but a vocabulary has at most {} "
               "tokens here. Give the type that the file has with --tokens.",
               Printable(path.string()), largest, request.token_type, kMost);
  }
  const size_t known = train::PresetByName(request.preset).model.vocab_size;
  return largest < known ? 0 : static_cast<size_t>(largest) + 1;
}

ExperimentText TextFor(const NewExperiment& request, const fs::path& file) {
  ExperimentText text;
  text.name = request.name;
  text.preset = request.preset;
  text.on = request.on;
  text.vocab_size = VocabularyFor(request);
  text.token_type = request.token_type;
  text.paths = PathsFrom(file.parent_path(), request.paths);
  text.baseline = kBaseline;
  text.candidate = request.candidate;
  if (request.candidate != kControl) text.control = kControl;
  text.steps = kFewestSteps;
  text.seeds = kFewestSeeds;
  text.margin_percent = request.margin_percent;
  text.spread_percent = AssumedSpread().percent;
  return text;
}

void CheckRequest(const NewExperiment& request, const fs::path& file) {
  if (std::error_code error; fs::exists(fs::symlink_status(file, error))) {
    ThrowError(ErrorKind::kConfig,
               "--out {}: is there already, and no file is replaced. Give "
               "another name, or remove it.",
               Printable(file.string()));
  }
  if (file.has_parent_path() && !fs::is_directory(file.parent_path())) {
    ThrowError(
        ErrorKind::kConfig,
        "--out {}: is in no folder that is there. Make the folder first.",
        Printable(file.string()));
  }
  precision::RecipeByName(request.candidate);
  train::PresetByName(request.preset);
  if (request.candidate == kBaseline) {
    ThrowError(ErrorKind::kConfig,
               "--candidate {}: is the baseline's recipe, so that nothing "
               "would differ. Give another of `isoloss lab recipes`.",
               request.candidate);
  }
  for (const fs::path& path : request.paths) CheckPath(path);
}

/// Returns the number of held-out windows that share no label. More than
/// kEnough are not needed to tell arms apart.
size_t EvaluatedSequences(const train::Experiment& experiment,
                          const corpus::Corpus& corpus) {
  constexpr size_t kEnough = 128;
  const size_t tokens = corpus.held_out().count;
  const size_t windows =
      tokens == 0 ? 0 : (tokens - 1) / experiment.data.sequence_length;
  return std::clamp<size_t>(windows, 1, kEnough);
}

void CheckLength(const train::Experiment& experiment,
                 const corpus::Corpus& corpus) {
  const auto tokens = static_cast<size_t>(train::TokensPerStep(experiment));
  const size_t fewest = FewestTrainingTokens(tokens);
  if (corpus.training().count >= fewest) return;
  const auto needed =
      static_cast<size_t>(static_cast<double>(fewest) /
                          (1 - experiment.data.held_out_share)) +
      1;
  ThrowError(ErrorKind::kConfig,
             "corpus: holds {} tokens, but {} steps of {} tokens, which read "
             "each token {:g} times, need {}. Give more text.",
             corpus.size(), kFewestSteps, tokens, kMostReadings, needed);
}

double OracleSeconds(const train::Experiment& experiment,
                     const campaign::ArmRates& rates,
                     const std::string& candidate) {
  const double flops =
      train::FlopsPerToken(experiment) * train::TokensPerStep(experiment);
  const double steps = static_cast<double>(campaign::OracleSteps(
                           1, step_checks::ProbeCases().size())) *
                       static_cast<double>(campaign::kOracleStepCost);
  const int workers = train::CrewFor(experiment, 1).workers;
  return steps * flops / rates.at(candidate).flops_per_second / workers;
}

/// Returns the pilot that kPilotShare of the budget allows, or nothing if it
/// would say too little.
std::optional<train::Experiment> PilotFor(const NewExperiment& request,
                                          const train::Experiment& experiment,
                                          const campaign::ArmRates& rates) {
  if (!request.pilot) return std::nullopt;
  const train::Experiment pilot = PilotOf(experiment, kPilotSteps);
  const double whole =
      campaign::TrainingSeconds(pilot, train::PlanRuns(pilot), rates);
  const double share = kPilotShare * 60 * request.budget_minutes / whole;
  if (share >= 1) return pilot;
  const auto steps = static_cast<int64_t>(share * double{kPilotSteps});
  if (steps < kFewestPilotSteps) return std::nullopt;
  return PilotOf(experiment, steps);
}

void AnnouncePilot(const train::Experiment& pilot,
                   const campaign::ArmRates& rates) {
  const std::vector<train::Run> runs = train::PlanRuns(pilot);
  fmt::print(
      stderr,
      "isoloss: pilot: {} runs of {} steps, about {}, show how far "
      "chance drives two runs apart. --no-pilot leaves it out.\n",
      runs.size(), pilot.train.steps,
      report::DurationText(campaign::TrainingSeconds(pilot, runs, rates)));
}

/// Chooses among sizes.
class SizeChoice {
 public:
  SizeChoice(const NewExperiment& request, const train::Experiment& experiment,
             const corpus::Corpus& corpus, const campaign::ArmRates& rates,
             const Spread& spread)
      : request_(request),
        experiment_(experiment),
        rates_(rates),
        spread_(spread),
        oracle_(OracleSeconds(experiment, rates, request.candidate)),
        // Curves flatten: more steps than twice the preset's say little more.
        most_steps_(std::min(
            {2 * train::PresetByName(request.preset).train.steps,
             kForetold * spread.steps,
             MostSteps(
                 corpus.training().count,
                 static_cast<size_t>(train::TokensPerStep(experiment)))})) {}

  /// Returns the best size, or the best one of so many steps.
  ExperimentSize Best(std::optional<int64_t> steps = std::nullopt) const {
    return MostTellingSize(
        [&](const ExperimentSize& size) { return Seconds(size); },
        [&](const ExperimentSize& size) {
          return Power(size, request_.margin_percent);
        },
        60 * request_.budget_minutes, most_steps_, steps);
  }

  /// Refuses a budget that is too small, before anything is trained.
  void RequireLeast() const {
    const std::string smallest = NewExperiment{}.preset;
    const double least = Seconds({kFewestSteps, kFewestSeeds});
    if (least <= 60 * request_.budget_minutes) return;
    ThrowError(ErrorKind::kConfig,
               "--budget {:g}: is in minutes, but {} steps of {} seeds, the "
               "least that a verdict needs, take {:.1f} on this machine with "
               "{} token ids. Give --budget {:.0f}{}.",
               request_.budget_minutes, kFewestSteps, kFewestSeeds, least / 60,
               experiment_.model.vocab_size, std::ceil(least / 60),
               request_.preset == smallest
                   ? ""
                   : fmt::format(", or --preset {}", smallest));
  }

  /// Says how to give `size` the power that it lacks; "" if it has enough.
  std::string Remedy(const ExperimentSize& size) const {
    if (Power(size, request_.margin_percent) >= kWantedPower) return "";
    double low = request_.margin_percent;
    double high = 100;
    while (high - low > 0.005) {
      const double middle = (low + high) / 2;
      (Power(size, middle) >= kWantedPower ? high : low) = middle;
    }
    const double seconds = SecondsForWantedPower(
        [&](const ExperimentSize& other) { return Seconds(other); },
        [&](const ExperimentSize& other) {
          return Power(other, request_.margin_percent);
        },
        most_steps_);
    const std::string more =
        std::isfinite(seconds)
            ? fmt::format("--budget {:.0f}, or ", std::ceil(seconds / 60))
            : "";
    return fmt::format(
        "The budget is too small to expect an answer. {:g} of power take "
        "{}--margin {:.2f}.",
        kWantedPower, more, std::ceil(100 * high) / 100);
  }

 private:
  double Seconds(const ExperimentSize& size) const {
    train::Experiment sized = experiment_;
    sized.train.steps = size.steps;
    sized.log.eval_every = EvalEvery(size.steps);
    sized.train.seeds.resize(size.seeds);
    return oracle_ +
           campaign::TrainingSeconds(sized, train::PlanRuns(sized), rates_);
  }
  double Power(const ExperimentSize& size, double margin) const {
    gate::Policy policy;
    policy.margin_percent = margin;
    return PowerOf(spread_.After(size.steps), size.seeds, policy);
  }

  const NewExperiment& request_;
  const train::Experiment& experiment_;
  const campaign::ArmRates& rates_;
  const Spread spread_;
  const double oracle_;
  const int64_t most_steps_;
};

std::vector<std::string> NotesOn(const NewExperiment& request,
                                 const WrittenExperiment& written,
                                 const corpus::Corpus& corpus,
                                 const std::string& remedy) {
  std::vector<std::string> notes;
  if (!remedy.empty()) notes.push_back(remedy);
  if (written.readings > 1) {
    notes.push_back(fmt::format(
        "The text is short: each run reads it {:.1f} times. With {} tokens to "
        "train on, none would be read twice on average.",
        written.readings,
        static_cast<size_t>(written.readings *
                            static_cast<double>(corpus.training().count))));
  }
  if (written.experiment.tuning.rates.empty()) {
    notes.push_back(fmt::format(
        "The learning rate is not tuned, so no verdict is a PASS before "
        "`isoloss study rates {} --write` and the rate that it finds.",
        Printable(written.experiment.path.string())));
  }
  if (written.experiment.gate.control.size() == 1) {
    notes.push_back(fmt::format(
        "No part of the control is known to harm by about a margin, so a "
        "verdict may say little of such differences. `isoloss study controls "
        "{} --write` looks for parts.",
        Printable(written.experiment.path.string())));
  }
  if (request.preset.ends_with("-topology")) {
    notes.emplace_back(
        "This preset shows where tokens travel. It is not made for judging "
        "convergence.");
  }
  return notes;
}

/// Returns nothing if a signal came.
std::optional<Spread> LearnSpread(const NewExperiment& request,
                                  const WrittenExperiment& written) {
  const auto pilot = PilotFor(request, written.experiment, written.rates);
  if (!pilot) return AssumedSpread();
  AnnouncePilot(*pilot, written.rates);
  return TrainPilot(*pilot);
}

/// Returns the rates of all arms. A part of the control was not measured; it
/// trains like the control.
campaign::ArmRates RatesOf(const WrittenExperiment& written) {
  campaign::ArmRates rates = written.rates;
  const std::vector<std::string>& controls = written.experiment.gate.control;
  for (const std::string& part : controls) {
    rates.emplace(part, rates.at(controls.back()));
  }
  return rates;
}

/// Chooses steps, learning rate, parts of the control and seeds, in this order,
/// and tells `text`.
/// `remedy` says what is lacking. Returns false if a signal came.
bool Plan(const NewExperiment& request, const corpus::Corpus& corpus,
          ExperimentText& text, WrittenExperiment& written,
          std::string& remedy) {
  const auto read = [&] {
    written.experiment =
        train::ParseExperiment(text.Toml(), written.experiment.path);
  };
  campaign::ArmRates rates = written.rates;
  const auto choice = [&](const Spread& spread) {
    return SizeChoice(request, written.experiment, corpus, rates, spread);
  };
  choice(AssumedSpread()).RequireLeast();
  text.steps = choice(AssumedSpread()).Best().steps;
  read();
  if (request.pilot) {
    if (!TuneRate(written.experiment, written.rates, text)) return false;
    read();
    const double oracle =
        OracleSeconds(written.experiment, written.rates, request.candidate);
    if (!GradeControl(written.experiment, written.rates,
                      60 * request.budget_minutes, oracle, text)) {
      return false;
    }
  }
  read();
  rates = RatesOf(written);
  const auto spread = LearnSpread(request, written);
  if (!spread) return false;
  written.spread = *spread;
  const ExperimentSize size = choice(*spread).Best(text.steps);
  remedy = choice(*spread).Remedy(size);
  text.seeds = size.seeds;
  text.spread_percent = spread->After(size.steps);
  text.spread_from = SpreadText(*spread);
  read();
  return true;
}

/// Describes what the experiment costs, and how likely it is to answer.
void Describe(const NewExperiment& request, const corpus::Corpus& corpus,
              WrittenExperiment& written) {
  const train::Experiment& experiment = written.experiment;
  written.power =
      ExpectedPower(experiment, verdicts::ForPrecision(
                                    verdicts::PolicyOf("", experiment), ""))
          .value();
  written.corpus = corpus.description();
  written.training_tokens = corpus.training().count;
  written.held_out_tokens = corpus.held_out().count;
  written.readings = static_cast<double>(experiment.train.steps) *
                     train::TokensPerStep(experiment) /
                     static_cast<double>(corpus.training().count);
  written.training_seconds = campaign::TrainingSeconds(
      experiment, train::PlanRuns(experiment), RatesOf(written));
  written.oracle_seconds =
      OracleSeconds(experiment, written.rates, request.candidate);
}

/// Writes the file whole or not at all, and never replaces another one.
void WriteNewFile(const fs::path& file, const std::string& text) {
  CreateFile(file);  // from now on it is ours
  try {
    WriteFileAtomically(file, text);
  } catch (const Error&) {
    std::error_code error;
    fs::remove(file, error);
    throw;
  }
}

}  // namespace

std::optional<WrittenExperiment> WriteExperiment(const NewExperiment& given) {
  campaign::RequireOneProcess("init", "one file is written");
  NewExperiment request = given;
  if (request.name.empty()) {
    request.name = fmt::format("{}_vs_{}", request.candidate, kBaseline);
  }
  const fs::path file =
      request.out.empty() ? fs::path(request.name + ".toml") : request.out;
  CheckRequest(request, file);
  ExperimentText text = TextFor(request, file);
  const auto read = [&] { return train::ParseExperiment(text.Toml(), file); };
  WrittenExperiment written{.experiment = read()};
  const corpus::Corpus corpus = train::LoadCorpusOf(written.experiment);
  CheckLength(written.experiment, corpus);
  text.eval_sequences = EvaluatedSequences(written.experiment, corpus);
  written.experiment = read();
  train::CheckMemory(written.experiment,
                     train::CrewFor(written.experiment, kFewestSeeds));
  written.rates = campaign::MeasureArms(written.experiment,
                                        train::PlanRuns(written.experiment));
  std::string remedy;
  if (!Plan(request, corpus, text, written, remedy)) return std::nullopt;
  WriteNewFile(file, text.Toml());

  Describe(request, corpus, written);
  written.notes = NotesOn(request, written, corpus, remedy);
  return written;
}

}  // namespace isoloss::init
