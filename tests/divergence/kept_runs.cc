#include "kept_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/transport/process_transport.h"
#include "support/memory_network.h"

namespace isoloss::train {
namespace {

/// 256 tokens a step and 16 experts of 1024 values a matrix: two processes can
/// share them.
constexpr std::string_view kText = R"(name = "kept"
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
num_experts = 16
num_shared_experts = 1
top_k = 2
[data]
source = "synthetic"
sequence_length = 32
noise_levels = 4
tokens = 4000
[train]
steps = 8
sequences_per_batch = 4
seeds = [1]
warmup_steps = 2
lr = 0.01
[log]
eval_every = 4
eval_sequences = 4
routing = true
statistics_first = 1
statistics_every = 5
digests_first = 8
checkpoint_every = 3
checkpoint_minutes = 0
[arms.mxfp8]
recipe = "mxfp8_rceil"
[arms.bf16]
recipe = "bf16"
[arms.mxfp4_rht_sr]
recipe = "mxfp4_rht_sr"
[arms.te_fp8_delayed]
recipe = "te_fp8_delayed"
[arms.te_nvfp4]
recipe = "te_nvfp4"
)";

runlog::RunLog ExecuteHere(const Experiment& experiment,
                           const Execution& execution, RunHooks hooks) {
  const auto arm = std::find_if(
      experiment.arms.begin(), experiment.arms.end(),
      [&](const Arm& candidate) { return candidate.name == execution.arm; });
  std::atomic<bool> stop{false};
  const auto on_step = hooks.on_step;
  hooks.on_step = [&stop, &execution, on_step](const runlog::StepRow& row) {
    stop = row.step >= execution.stop_after;
    if (on_step) on_step(row);
  };
  hooks.stop = &stop;
  Executor threads(execution.manner.workers);
  Executor* const device = execution.manner.device;
  Executor& executor = device != nullptr ? *device : threads;
  return TrainRun(
      experiment, *arm, execution.seed, CorpusOf(experiment), executor, hooks,
      RunFiles{.paths = PathsIn(execution.folder), .resume = execution.resume});
}

}  // namespace

Experiment KeptExperiment(const Manner& manner,
                          std::vector<std::string> overrides) {
  overrides.push_back(fmt::format("parallel.ranks={}", manner.ranks));
  if (manner.transport != "memory") {
    overrides.push_back(fmt::format("parallel.transport={}", manner.transport));
  }
  return ParseExperiment(kText, "kept.toml",
                         {.variables = {}, .overrides = std::move(overrides)});
}

corpus::Corpus CorpusOf(const Experiment& experiment) {
  return LoadCorpus(experiment.corpus_source, experiment.data.held_out_share);
}

runlog::RunLog Execute(const Execution& execution) {
  const Manner& manner = execution.manner;
  const Experiment experiment = KeptExperiment(manner, execution.overrides);
  if (manner.transport != "memory") {
    return ExecuteHere(experiment, execution, execution.hooks);
  }
  transport::MemoryNetwork network(static_cast<int>(manner.processes));
  std::vector<runlog::RunLog> logs(manner.processes);
  std::vector<std::exception_ptr> errors(manner.processes);
  std::vector<std::thread> threads;
  for (size_t process = 0; process < manner.processes; ++process) {
    threads.emplace_back([&, process] {
      RunHooks hooks = execution.hooks;
      hooks.make_transport = [&](const transport::TransportOptions& options,
                                 Executor& executor) {
        return std::make_unique<transport::ProcessTransport>(
            "memory", options, executor, /*run_id=*/1,
            &network.endpoint(static_cast<int>(process)));
      };
      try {
        logs[process] = ExecuteHere(experiment, execution, hooks);
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

runlog::RunPaths PathsIn(const std::filesystem::path& folder) {
  return {folder, "kept"};
}

std::vector<std::string> EventsOf(const runlog::RunLog& log,
                                  const std::string& kind) {
  std::vector<std::string> texts;
  for (const runlog::Event& event : log.events) {
    if (event.kind == kind) texts.push_back(event.text);
  }
  return texts;
}

void ExpectSame(const runlog::RunLog& log, const runlog::RunLog& whole,
                const std::filesystem::path& folder, bool exchange) {
  for (const runlog::RunLog& read :
       {log, runlog::ReadRunLog(PathsIn(folder).Log())}) {
    runlog::RunLog found = read;
    runlog::RunLog expected = whole;
    if (!exchange) found.exchange = expected.exchange = {};
    EXPECT_EQ(runlog::FirstDifference(found, expected), "");
    EXPECT_EQ(found.steps.step, expected.steps.step);
    EXPECT_EQ(found.eval.step, expected.eval.step);
    EXPECT_EQ(found.parameters.step, expected.parameters.step);
    EXPECT_EQ(found.tensors.step, expected.tensors.step);
    EXPECT_EQ(found.tensors.names, expected.tensors.names);
    EXPECT_EQ(found.tensors.digest, expected.tensors.digest);
    EXPECT_EQ(found.moe.step, expected.moe.step);
    EXPECT_EQ(found.moe.expert_ids, expected.moe.expert_ids);
    EXPECT_EQ(found.exchange.step, expected.exchange.step);
    EXPECT_EQ(found.exchange.bytes_by_pair, expected.exchange.bytes_by_pair);
    EXPECT_EQ(found.provenance.final_weights_digest,
              expected.provenance.final_weights_digest);
    EXPECT_EQ(found.provenance.complete, expected.provenance.complete);
  }
  EXPECT_FALSE(std::filesystem::exists(PathsIn(folder).Journal()));
  EXPECT_FALSE(std::filesystem::exists(PathsIn(folder).PartialLog()));
}

}  // namespace isoloss::train
