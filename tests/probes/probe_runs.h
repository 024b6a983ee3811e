// One training step of a small model, listened to, on any number of ranks and
// processes.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/announce.h"
#include "isoloss/model/transformer.h"
#include "isoloss/transport/process_transport.h"
#include "model/small_model.h"
#include "support/memory_network.h"

namespace isoloss::test_support {

/// Awkward widths; experts that 1, 2 and 4 ranks can share.
inline model::ModelConfig ProbedConfig() {
  model::ModelConfig config = SmallConfig();
  config.num_experts = 8;
  config.top_k = 3;
  return config;
}

/// How a step is executed; no bit depends on it.
struct Setting {
  size_t ranks = 1;
  size_t processes = 1;
  size_t copies = 1;  ///< of the experts
  size_t units = 1;   ///< bits depend on this one
  int threads = 1;
};

/// One process of a setting.
struct Process {
  Process(const Setting& setting, transport::Link* link,
          const precision::Recipe& recipe)
      : executor(setting.threads),
        mesh({.topology = {.experts = ProbedConfig().num_experts,
                           .ranks = setting.ranks,
                           .replicas = setting.copies},
              .options = {},
              .dispatch_units = setting.units},
             MakeTransport(setting, link), executor),
        transformer(ProbedConfig(), recipe, executor, mesh),
        weights(ProbedConfig(), mesh.experts()),
        gradients(ProbedConfig(), mesh.experts()) {
    model::InitializeParameters(3, weights);
  }

  /// Forward and Backward of this process's share of four sequences; then the
  /// weights and their gradients of the whole batch.
  void Step(model::TapSink& sink) {
    constexpr size_t kSequences = 4;
    const size_t mine = kSequences / mesh.processes();
    const SmallBatch all(ProbedConfig(), {64, 64, 64, 64});
    SmallBatch share(ProbedConfig(), std::vector<size_t>(mine, 64));
    const auto take = [&](const auto& from, auto& to) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(
                                            mesh.process() * mine * 64);
      to.assign(first, first + static_cast<std::ptrdiff_t>(mine * 64));
    };
    take(all.tokens, share.tokens);
    take(all.labels, share.labels);
    transformer.LoadWeights(weights);
    transformer.Forward(share.view(), &sink);
    transformer.Backward(share.view(), gradients, &sink);
    model::ParameterSet rounded(ProbedConfig(), mesh.experts());
    transformer.AnnounceWeights(weights, rounded, sink);
    SumGradients();
    model::AnnounceParameters(model::TensorKind::kWgrad, gradients, mesh, sink);
  }

  Executor executor;
  expert_parallel::Mesh mesh;
  model::Transformer transformer;
  model::ParameterSet weights;
  model::ParameterSet gradients;

 private:
  std::unique_ptr<transport::Transport> MakeTransport(const Setting& setting,
                                                      transport::Link* link) {
    const transport::TransportOptions options = {
        .ranks = static_cast<int>(setting.ranks)};
    if (link != nullptr) {
      return std::make_unique<transport::ProcessTransport>(
          "memory", options, executor, /*run_id=*/1, link);
    }
    if (setting.ranks == 1 && setting.units == 1) return nullptr;
    return transport::MakeTransport("loop", options, executor);
  }

  void SumGradients() {
    std::vector<MatrixView<float>> replicated;
    std::vector<MatrixView<float>> of_experts;
    for (model::Parameter& gradient : gradients.parameters()) {
      (gradient.of_experts ? of_experts : replicated)
          .push_back(gradient.values.view());
    }
    expert_parallel::SumReplicated(mesh, replicated);
    expert_parallel::SumExperts(mesh, of_experts);
  }
};

/// Calls `body` for each process of the setting, each on a thread of its own.
inline void RunProcesses(const Setting& setting,
                         const precision::Recipe& recipe,
                         const std::function<void(Process&)>& body) {
  if (setting.processes == 1) {
    Process alone(setting, nullptr, recipe);
    body(alone);
    return;
  }
  transport::MemoryNetwork network(static_cast<int>(setting.processes));
  std::vector<std::exception_ptr> errors(setting.processes);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < setting.processes; ++i) {
    threads.emplace_back([&, i] {
      try {
        Process process(setting, &network.endpoint(static_cast<int>(i)),
                        recipe);
        body(process);
      } catch (...) {
        errors[i] = std::current_exception();
        network.Silence(static_cast<int>(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

inline void RunProcesses(const Setting& setting, const std::string& recipe,
                         const std::function<void(Process&)>& body) {
  RunProcesses(setting, precision::RecipeByName(recipe), body);
}

/// Stochastic NVFP4 along rows; down columns the same quantised once more, and
/// in dgrad casts and transformed blocks.
inline precision::Recipe GeneralRecipe() {
  const auto by_name = [](const char* name) {
    return formats::QuantizationByName(name);
  };
  precision::Recipe recipe = precision::RecipeByName("mxfp8_rceil");
  recipe.name = "general";
  const auto nvfp4 = by_name("e2m1.te.e4m3.1x16.two_level.stochastic8");
  recipe.fprop.left = nvfp4;
  recipe.fprop.right = by_name("e4m3.te.fp32.0x0");
  recipe.dgrad.left = by_name("e4m3.rceil.hadamard16_random");
  recipe.dgrad.right = by_name("e4m3.rceil.hadamard16_random");
  recipe.wgrad.left = by_name("fp16.none");
  recipe.wgrad.right = by_name("e4m3.rceil");
  recipe.wgrad.right_again = true;
  return recipe;
}

}  // namespace isoloss::test_support
