// Computes a batch in consecutive equal shares, one after the other: a step is
// a fold over them. Each share is a node of all trees over tokens, sequences
// and dispatch units, so no bit depends on the number of shares.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/config/reader.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/tokens.h"

namespace isoloss::train {

struct Experiment;

/// Requires that parallel.micro_batches, of which `fields` is the section, cuts
/// a batch into nodes of all trees, and that the run's parts can take shares.
/// Errors   ConfigError.
void CheckMicroBatches(const config::Reader& fields,
                       const Experiment& experiment);

/// Makes each step of `experiment` compute its batch in one share, for
/// listeners that need the tensors of whole batches. Returns a sentence that
/// says so; "" if it was so before.
std::string TakeWholeBatches(Experiment& experiment);

/// Returns into how many shares a batch is cut: fewer than asked for if its
/// sequences, those of an evaluation, cannot be shared out equally.
size_t SharesOf(size_t micro_batches, size_t sequences);

/// Holds the ends of a share, counted from its first token.
struct ShareEnds {
  std::vector<size_t> of_documents;
  std::vector<size_t> of_sequences;
};

/// Returns a share of `batch`, whose ends are held by `ends`.
/// Errors   none; asserts that it is whole sequences, and that all shares have
///          equally many tokens.
model::TokenBatch ShareOf(const model::TokenBatch& batch,
                          const expert_parallel::BatchShare& share,
                          ShareEnds& ends);

/// Calls visit(share) with the shares of this process's batch that the mesh
/// asks for. mesh.share() is that share meanwhile, and the whole afterwards.
void ForEachShare(
    const model::TokenBatch& batch, expert_parallel::Mesh& mesh,
    const std::function<void(const model::TokenBatch& share)>& visit);

/// Adds up the gradients of shares, in the aligned tree over them. It keeps a
/// set of gradients for each level of the tree.
class GradientFold {
 public:
  /// Keeps the references.
  GradientFold(const model::ModelConfig& config, Executor& executor,
               model::ParameterSet& total)
      : config_(config), executor_(executor), total_(total) {}

  /// Calls differentiate(share, gradients) with each share. Leaves in the total
  /// the sum of what the calls write to `gradients`, which may be the total.
  void Run(
      const model::TokenBatch& batch, expert_parallel::Mesh& mesh,
      const std::function<void(const model::TokenBatch& share,
                               model::ParameterSet& gradients)>& differentiate);

 private:
  const model::ModelConfig& config_;
  Executor& executor_;
  model::ParameterSet& total_;
  std::deque<model::ParameterSet> spare_;  // kept from step to step
};

}  // namespace isoloss::train
