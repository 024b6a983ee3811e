#include "mesh_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "isoloss/compare/golden.h"
#include "isoloss/transport/process_transport.h"
#include "support/memory_network.h"

namespace isoloss::train {
namespace {

/// 256 tokens a step and 256 experts: an expert has 4 rows on average, many
/// have none, and of 256 ranks each owns one token.
constexpr std::string_view kText = R"(name = "mesh"
[model]
vocab_size = 23
dim = 32
n_layers = 2
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 40
moe_hidden_dim = 32
num_experts = 256
num_shared_experts = 1
top_k = 4
[data]
source = "synthetic"
sequence_length = 32
noise_levels = 4
tokens = 4000
[train]
steps = 8
sequences_per_batch = 8
seeds = [1]
warmup_steps = 2
lr = 0.01
[log]
eval_every = 4
eval_sequences = 8
routing = true
statistics_every = 4
digests_every = 4
[arms.trial]
recipe = "bf16"
)";

constexpr const char* kGate = "layers.1.moe.router.gate.weight";

void ZeroGate(model::ParameterSet& tensors) {
  Matrix<float>& gate = tensors.ByName(kGate).values;
  std::fill_n(gate.data(), gate.size(), 0.0F);
}

RunHooks HooksOf(const Case& what) {
  RunHooks hooks;
  if (!what.tied_gates) return hooks;
  hooks.edit_initial_weights = ZeroGate;
  hooks.before_update = [](int64_t, model::ParameterSet& gradients) {
    ZeroGate(gradients);
  };
  return hooks;
}

const corpus::Corpus& CorpusOf(const Experiment& experiment) {
  // The same for all cases: none overrides where tokens come from.
  static const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  return corpus;
}

runlog::RunLog RunHere(const Experiment& experiment, int workers,
                       const RunHooks& hooks) {
  Executor executor(workers);
  return TrainRun(experiment, experiment.arms.front(),
                  experiment.train.seeds.front(), CorpusOf(experiment),
                  executor, hooks);
}

runlog::RunLog RunOverMemoryLinks(const Experiment& experiment,
                                  const Execution& how, const RunHooks& hooks) {
  transport::MemoryNetwork network(static_cast<int>(how.processes));
  CorpusOf(experiment);
  std::vector<runlog::RunLog> logs(how.processes);
  std::vector<std::exception_ptr> errors(how.processes);
  std::vector<std::thread> threads;
  for (size_t process = 0; process < how.processes; ++process) {
    threads.emplace_back([&, process] {
      RunHooks mine = hooks;
      mine.make_transport = [&](const transport::TransportOptions& options,
                                Executor& executor) {
        return std::make_unique<transport::ProcessTransport>(
            "memory", options, executor, /*run_id=*/1,
            &network.endpoint(static_cast<int>(process)));
      };
      try {
        logs[process] = RunHere(experiment, how.workers, mine);
      } catch (...) {
        errors[process] = std::current_exception();
        network.Silence(static_cast<int>(process));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return std::move(logs.front());
}

}  // namespace

const std::vector<Case>& AllCases() {
  static const std::vector<Case> cases = {
      {"learned"},
      {"ties", {"train.load_balance_coeff=0"}, /*tied_gates=*/true},
      {"ties_with_biases", {"train.load_balance_coeff=0.01"}, true},
      {"groups", {"model.num_expert_groups=8", "model.num_limited_groups=4"}},
      {"softmax", {"model.score_function=softmax"}},
      {"forced_balance", {"routing.mode=forced_balance"}},
      {"awkward",
       {"model.dim=40", "model.moe_hidden_dim=36", "data.sequence_length=21",
        "train.sequences_per_batch=13", "log.eval_sequences=14"},
       false,
       /*shareable=*/false}};
  return cases;
}

const Case& CaseByLabel(const std::string& label) {
  for (const Case& what : AllCases()) {
    if (what.label == label) return what;
  }
  throw std::out_of_range(label);
}

const std::vector<std::string>& AllRecipes() {
  static const std::vector<std::string> recipes = {"bf16", "mxfp8_rceil",
                                                   "mxfp8_rceil_wgrad_with_hp"};
  return recipes;
}

std::string Execution::Label() const {
  return fmt::format("V={} {} n={} W={}", ranks, transport, processes, workers);
}

std::vector<Execution> AllExecutions() {
  std::vector<Execution> all;
  for (size_t ranks = 1; ranks <= 256; ranks *= 2) {
    for (const int workers : {1, 2, 5}) {
      for (const char* transport : {"loop", "threads", "shuffled"}) {
        all.push_back({ranks, transport, 1, workers});
      }
      for (size_t processes = 1; processes <= std::min<size_t>(ranks, 8);
           processes *= 2) {
        all.push_back({ranks, "memory", processes, workers});
      }
    }
  }
  return all;
}

const std::vector<Hierarchy>& AllHierarchies() {
  static const std::vector<Hierarchy> all = {
      {"rank", {"parallel.exchange=rank"}},
      {"rank_last_slot",
       {"parallel.exchange=rank", "parallel.combine_order=last_slot"}},
      {"node_fp8",
       {"parallel.exchange=node", "parallel.ranks_per_node=4",
        "parallel.payload=mx1x32", "parallel.weight_site=before_fc2"}},
      {"node_last_slot",
       {"parallel.exchange=node", "parallel.ranks_per_node=2",
        "parallel.combine_order=last_slot", "parallel.expert_padding=32"}},
      {"titan_bf16",
       {"parallel.exchange=titan_bf16", "parallel.payload=e4m3_1x128_fp32"}}};
  return all;
}

std::vector<std::string> CopiesOfExperts(int copies, int units) {
  return {fmt::format("parallel.expert_data_parallel={}", copies),
          fmt::format("parallel.dispatch_units={}", units)};
}

runlog::RunLog RunOf(const Case& what, const std::string& recipe,
                     const Execution& how,
                     const std::vector<std::string>& more) {
  ExperimentInputs inputs = {.variables = {}, .overrides = what.overrides};
  inputs.overrides.push_back("arms.trial.recipe=" + recipe);
  inputs.overrides.push_back(fmt::format("parallel.ranks={}", how.ranks));
  inputs.overrides.insert(inputs.overrides.end(), more.begin(), more.end());
  const bool memory = how.transport == "memory";
  if (!memory) {
    inputs.overrides.push_back("parallel.transport=" + how.transport);
  }
  const Experiment experiment =
      ParseExperiment(kText, "mesh.toml", std::move(inputs));
  const RunHooks hooks = HooksOf(what);
  return memory ? RunOverMemoryLinks(experiment, how, hooks)
                : RunHere(experiment, how.workers, hooks);
}

Content ContentOf(const runlog::RunLog& log) {
  Content content;
  for (compare::ContentPart& part : compare::ContentOf(log)) {
    content.emplace(std::move(part.name), std::move(part.digest));
  }
  return content;
}

Content WithoutMesh(Content content) {
  std::erase_if(content, [](const auto& part) {
    const std::string& name = part.first;
    for (const char* of_mesh :
         {"ranks", "ranks_per_node", "exchange", "expert_data_parallel"}) {
      if (name == of_mesh) return true;
    }
    // One rank without padding exchanges nothing.
    return name.starts_with("/exchange");
  });
  return content;
}

std::vector<std::string> Differing(const Content& a, const Content& b) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second != digest) names.push_back(name);
  }
  for (const auto& [name, digest] : b) {
    if (!a.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace isoloss::train
