#include "stage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/transport/process_transport.h"

namespace isoloss::faults {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Not;

constexpr std::string_view kText = R"(name = "faults"
[model]
vocab_size = 23
dim = 32
n_layers = 3
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 40
moe_hidden_dim = 32
num_experts = 8
num_shared_experts = 1
top_k = 2
[data]
source = "synthetic"
sequence_length = 32
noise_levels = 4
tokens = 4000
[train]
steps = 2
sequences_per_batch = 4
seeds = [1]
warmup_steps = 0
[parallel]
ranks = 4
[log]
eval_every = 2
eval_sequences = 4
[arms.trial]
recipe = "bf16"
)";

const corpus::Corpus& CorpusOf(const train::Experiment& experiment) {
  // The same for all scenes: none overrides where tokens come from.
  static const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  return corpus;
}

class Player {
 public:
  Player(const Scene& scene, Ending& ending)
      : scene_(scene),
        ending_(ending),
        experiment_(Experiment(scene)),
        corpus_(CorpusOf(experiment_)),
        network_(scene.processes, size_t{1} << 30, scene.wire) {
    if (scene.network != nullptr) *scene.network = &network_;
  }

  void PlayProcess(int process) {
    train::RunHooks hooks;
    const auto given = scene_.hooks.find(process);
    if (given != scene_.hooks.end()) hooks = given->second;
    hooks.make_transport = [&, process](
                               const transport::TransportOptions& options,
                               Executor& executor) {
      return MakeTransport(process, options, executor);
    };
    const auto& arm = experiment_.arms.front();
    const auto at = static_cast<size_t>(process);
    Executor executor(1);
    try {
      if (scene_.parity) {
        ending_.reports[at] =
            train::CompareWithOneRank(experiment_, arm, /*seed=*/1, corpus_,
                                      executor, experiment_.train.steps, hooks);
      } else {
        ending_.logs[at] =
            TrainRun(experiment_, arm, /*seed=*/1, corpus_, executor, hooks);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kTransport) << error.what();
      ending_.errors[at] = error.what();
    }
  }

 private:
  static train::Experiment Experiment(const Scene& scene) {
    train::ExperimentInputs inputs = {.variables = {},
                                      .overrides = scene.overrides};
    inputs.overrides.push_back(
        fmt::format("parallel.deadline_seconds={}", scene.deadline_seconds));
    return train::ParseExperiment(kText, "faults.toml", inputs);
  }

  std::unique_ptr<transport::Transport> MakeTransport(
      int process, transport::TransportOptions options, Executor& executor) {
    options.damage = scene_.damage;
    std::unique_ptr<transport::Transport> made;
    if (scene_.processes == 1) {
      made = transport::MakeTransport(experiment_.parallel.transport, options,
                                      executor);
    } else {
      made = std::make_unique<transport::ProcessTransport>(
          "memory", options, executor, /*run_id=*/1,
          &network_.endpoint(process));
    }
    const auto faults = scene_.faults.find(process);
    if (faults == scene_.faults.end()) return made;
    return std::make_unique<TamperedTransport>(std::move(made), faults->second);
  }

  const Scene& scene_;
  Ending& ending_;
  const train::Experiment experiment_;
  const corpus::Corpus& corpus_;
  transport::MemoryNetwork network_;
};

}  // namespace

bool Ending::healthy() const {
  return testing::Matches(Each(std::string()))(errors) && difference().empty();
}

std::string Ending::difference() const {
  std::string text;
  for (const train::ParityReport& report : reports) {
    const std::string mine = report.first ? report.first->Describe() : "";
    EXPECT_TRUE(text.empty() || mine == text) << mine << "\n" << text;
    text = mine;
  }
  return text;
}

Ending Play(const Scene& scene) {
  const auto processes = static_cast<size_t>(scene.processes);
  Ending ending;
  ending.errors.resize(processes);
  ending.logs.resize(processes);
  if (scene.parity) ending.reports.resize(processes);
  Player player(scene, ending);
  std::vector<std::thread> threads;
  for (int process = 0; process < scene.processes; ++process) {
    threads.emplace_back([&, process] { player.PlayProcess(process); });
  }
  for (std::thread& thread : threads) thread.join();
  ending.over = Injection::Clock::now();
  return ending;
}

Ending PlayHealthy(Scene scene) {
  scene.faults.clear();
  scene.hooks.clear();
  scene.wire = {};
  scene.damage = {};
  scene.deadline_seconds = 60;
  return Play(scene);
}

void ExpectDetected(const Scene& scene, const Injection& injection,
                    const testing::Matcher<std::string>& message) {
  EXPECT_TRUE(PlayHealthy(scene).healthy()) << "without the fault";

  const Ending ending = Play(scene);

  ASSERT_TRUE(injection.struck());
  EXPECT_THAT(ending.errors, AllOf(Each(Not("")), Contains(message)));
  EXPECT_LT(injection.SecondsUntil(ending.over), scene.deadline_seconds + 1);
}

void ExpectNamed(const Scene& scene, const Injection& injection,
                 const testing::Matcher<std::string>& difference) {
  ASSERT_TRUE(scene.parity);
  EXPECT_TRUE(PlayHealthy(scene).healthy()) << "without the fault";

  const Ending ending = Play(scene);

  ASSERT_TRUE(injection.struck());
  EXPECT_THAT(ending.errors, Each(""));
  EXPECT_THAT(ending.difference(), difference);
}

void ExpectHarmless(const Scene& scene, const Injection& injection) {
  ASSERT_TRUE(scene.parity);

  const Ending ending = Play(scene);

  ASSERT_TRUE(injection.struck());
  EXPECT_THAT(ending.errors, Each(""));
  EXPECT_EQ(ending.difference(), "");
  for (const train::ParityReport& report : ending.reports) {
    EXPECT_TRUE(report.passed());
  }
}

Faults NormOfOwnExperts(Injection& injection) {
  using transport::OpKind;
  const auto in_norm = std::make_shared<bool>(false);
  Faults faults;
  faults.take_part = [in_norm](const Place& place, transport::Transport&) {
    if (place.operation.kind == OpKind::kVote) *in_norm = false;
    if (place.operation.kind == OpKind::kConservation) {
      *in_norm = place.step > 0;
    }
    return true;
  };
  faults.on_receive = [&injection, in_norm](const Message& message) {
    if (!*in_norm || message.place.operation.kind != OpKind::kScalars) return;
    std::fill(message.payload.begin(), message.payload.end(), std::byte{0});
    injection.Strike();
  };
  return faults;
}

std::vector<std::string> TraceOf(const runlog::RunLog& log) {
  std::vector<std::string> trace = {log.provenance.initial_weights_digest,
                                    log.provenance.final_weights_digest};
  const auto append = [&](const std::vector<double>& values) {
    for (const double value : values) {
      trace.push_back(fmt::format("{:a}", value));
    }
  };
  append(log.steps.loss_nats);
  append(log.steps.grad_norm);
  append(log.moe.expert_bias);
  append(log.eval.per_sequence_loss_nats);
  return trace;
}

}  // namespace isoloss::faults
