#include "isoloss/train/run_description.h"

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string_view>

#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/model/graph.h"
#include "isoloss/probes/graph_columns.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/numerics_digest.h"
#include "isoloss/train/perturbation.h"
#include "isoloss/train/process_sums.h"

namespace isoloss::train {
namespace {

void DescribeBuild(runlog::Provenance& provenance) {
  const BuildInfo build = GetBuildInfo();
  provenance.tool_version = "isoloss " + build.version;
  provenance.commit = build.commit;
  provenance.compiler = build.compiler;
  provenance.cpu_target = kernels::ActiveTarget();
}

void DescribeExperiment(const Experiment& experiment, const Arm& arm,
                        runlog::Provenance& provenance) {
  const std::string text = experiment.TomlWithoutSeeds();
  provenance.experiment_name = experiment.name;
  provenance.experiment_text = text;
  provenance.experiment_digest = DigestToHex(DigestOf(text));
  provenance.config_digest = ConfigDigest(experiment);
  provenance.arm = arm.name;
  provenance.baseline_arm = experiment.arms.front().name;
  provenance.steps_planned = experiment.train.steps;
  provenance.tokens_per_step = static_cast<int64_t>(
      experiment.train.sequences_per_batch * experiment.data.sequence_length);
}

void DescribeCorpus(const corpus::Corpus& corpus,
                    runlog::Provenance& provenance) {
  provenance.corpus_description = corpus.description();
  provenance.corpus_digest = DigestToHex(corpus.digest());
  provenance.unigram_entropy_nats = corpus.unigram_entropy_nats();
  provenance.entropy_floor_nats = corpus.entropy_floor_nats();
  provenance.bigram_entropy_nats = corpus.bigram_entropy_nats();
  provenance.deflated_bits = corpus.deflated_bits();
}

/// Returns whether a key decides which columns and rows a log has.
bool IsLogged(std::string_view key) {
  return key == "log.routing" || key.starts_with("log.statistics_") ||
         key.starts_with("log.digests_");
}

/// Returns whether a key decides which tensors are stored whole.
bool IsDumped(std::string_view key) { return key.starts_with("log.dump_"); }

/// Returns the keys in which two experiments differ, as lines of RunDifference.
std::string KeyDifferences(const std::string& before, const std::string& now,
                           bool (*counts)(std::string_view key)) {
  std::map<std::string, std::string> old_keys = runlog::KeysOf(before);
  std::map<std::string, std::string> new_keys = runlog::KeysOf(now);
  std::map<std::string, std::string> all = old_keys;
  all.insert(new_keys.begin(), new_keys.end());
  const auto value = [](std::map<std::string, std::string>& keys,
                        const std::string& key) {
    return keys.contains(key) ? keys[key] : std::string("not given");
  };
  std::string lines;
  for (const auto& [key, ignored] : all) {
    const std::string was = value(old_keys, key);
    const std::string is = value(new_keys, key);
    if (was != is && counts(key)) {
      lines += fmt::format("  {}: {} before, {} now\n", key, was, is);
    }
  }
  return lines;
}

/// Returns the first line in which two texts of several lines differ, from each
/// text.
std::string LineDifference(const std::string& name, const std::string& before,
                           const std::string& now) {
  std::istringstream old_lines(before);
  std::istringstream new_lines(now);
  std::string was;
  std::string is;
  do {
    was.clear();
    is.clear();
    std::getline(old_lines, was);
    std::getline(new_lines, is);
  } while (was == is && (old_lines || new_lines));
  return fmt::format("  {}: `{}` before, `{}` now\n", name, was, is);
}

}  // namespace

std::string DescribeRouting(const Experiment& experiment,
                            const RoutingReplay* replay) {
  std::string text = RoutingModeName(experiment.routing.mode);
  if (replay != nullptr) text += ", ids " + DigestToHex(replay->digest());
  return text;
}

runlog::ModelGraph DescribeModel(const Experiment& experiment, const Arm& arm) {
  const model::Graph graph = model::GraphOf(experiment.model);
  const std::vector<ResolvedPhase> phases = ResolvePhases(experiment, arm);
  runlog::ModelGraph columns = probes::ColumnsOf(graph, phases.front().recipe);
  for (size_t i = 1; i < phases.size(); ++i) {
    runlog::AddPhase({phases[i].first_step,
                      probes::ColumnsOf(graph, phases[i].recipe).recipe},
                     columns);
  }
  return columns;
}

namespace {

/// Refuses a device that computes something else than this processor: nothing
/// that is known of the host's runs would hold for its runs.
void RequireHostsBits(const runlog::Provenance& host, const Arm& arm,
                      Executor& executor) {
  const std::string digest = DigestToHex(NumericsDigest(arm, executor));
  if (digest == host.numerics_digest) return;
  ThrowError(ErrorKind::kConfig,
             "{}: three small steps of arm `{}` have the digest {} there, but "
             "{} on this machine's processor. Run `isoloss doctor`, and train "
             "with --on cpu.",
             executor.device(), arm.name, digest, host.numerics_digest);
}

}  // namespace

std::string ConfigDigest(const Experiment& experiment) {
  return DigestToHex(DigestOf(experiment.ConfigText()));
}

runlog::Provenance DescribePlannedRun(const Experiment& experiment,
                                      const Arm& arm, uint64_t seed,
                                      const corpus::Corpus& corpus) {
  runlog::Provenance provenance;
  DescribeBuild(provenance);
  DescribeExperiment(experiment, arm, provenance);
  DescribeCorpus(corpus, provenance);
  provenance.recipe = RecipeNames(arm);
  provenance.resolved_recipe = Describe(ResolvePhases(experiment, arm));
  provenance.seed = static_cast<int64_t>(seed);
  provenance.exchange = DescribeExchange(experiment, arm);
  provenance.perturbation = DescribePerturbation(arm);
  // The work is too small to share.
  Executor alone(1);
  provenance.numerics_digest = DigestToHex(NumericsDigest(arm, alone));
  provenance.graph = DescribeModel(experiment, arm);
  // GEMMs that several processes compute alike count once, because a run may go
  // on with a different number of processes.
  const runlog::GemmCounts gemms = CountGemms(provenance.graph.recipe);
  provenance.quantized_gemms_per_step = gemms.quantized;
  provenance.gemms_per_step = gemms.all;
  return provenance;
}

runlog::Provenance DescribeRun(const Experiment& experiment, const Arm& arm,
                               uint64_t seed, const corpus::Corpus& corpus,
                               const model::ParameterSet& initial,
                               const RoutingReplay* replay, Executor& executor,
                               expert_parallel::Mesh& mesh) {
  runlog::Provenance provenance =
      DescribePlannedRun(experiment, arm, seed, corpus);
  if (!executor.device().empty()) {
    provenance.cpu_target += "; " + executor.device();
    RequireHostsBits(provenance, arm, executor);
  }
  provenance.parameters =
      static_cast<int64_t>(model::ParameterSet(experiment.model).value_count());
  provenance.initial_weights_digest =
      DigestToHex(WholeDigest(experiment.model, initial, mesh));
  provenance.workers = executor.size();
  DescribeMesh(experiment, arm, mesh, provenance);
  provenance.routing = DescribeRouting(experiment, replay);
  return provenance;
}

std::string RunDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now) {
  std::string lines;
  if (before.config_digest != now.config_digest) {
    lines += KeyDifferences(before.experiment_text, now.experiment_text,
                            runlog::IsOfConfig);
    if (lines.empty()) {
      lines += fmt::format("  configuration digest: {} before, {} now\n",
                           before.config_digest, now.config_digest);
    }
  }
  const auto compare = [&lines](const char* name, const auto& was,
                                const auto& is) {
    if (was != is && !is.empty()) {
      lines += fmt::format("  {}: {} before, {} now\n", name, was, is);
    }
  };
  compare("name", before.experiment_name, now.experiment_name);
  compare("first arm", before.baseline_arm, now.baseline_arm);
  compare("arm", before.arm, now.arm);
  if (before.seed != now.seed) {
    lines += fmt::format("  seed: {} before, {} now\n", before.seed, now.seed);
  }
  compare("recipe", before.recipe, now.recipe);
  if (before.resolved_recipe != now.resolved_recipe) {
    lines += LineDifference("recipe of a GEMM site", before.resolved_recipe,
                            now.resolved_recipe);
  }
  compare("exchange", before.exchange, now.exchange);
  if (before.perturbation != now.perturbation) {
    const auto shown = [](const std::string& text) {
      return text.empty() ? "none" : text;
    };
    lines += fmt::format("  perturbation: {} before, {} now\n",
                         shown(before.perturbation), shown(now.perturbation));
  }
  compare("routing", before.routing, now.routing);
  if (before.corpus_digest != now.corpus_digest) {
    lines += fmt::format("  corpus: {} (digest {}) before, {} ({}) now\n",
                         before.corpus_description, before.corpus_digest,
                         now.corpus_description, now.corpus_digest);
  }
  compare("initial weights", before.initial_weights_digest,
          now.initial_weights_digest);
  if (before.numerics_digest != now.numerics_digest) {
    lines += fmt::format(
        "  code numerics: {} ({}, commit {}) before, {} ({}, commit {}) now\n",
        before.numerics_digest, before.tool_version, before.commit,
        now.numerics_digest, now.tool_version, now.commit);
  }
  return lines;
}

std::string LogDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now) {
  return KeyDifferences(before.experiment_text, now.experiment_text, IsLogged);
}

std::string FinishedDifference(const runlog::Provenance& before,
                               const runlog::Provenance& now) {
  std::string lines = RunDifference(before, now) + LogDifference(before, now);
  if (runlog::KeysOf(now.experiment_text)["log.dump_tensors"] != "[]") {
    lines +=
        KeyDifferences(before.experiment_text, now.experiment_text, IsDumped);
  }
  return lines;
}

}  // namespace isoloss::train
